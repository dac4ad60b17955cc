//! State that all pages share, and the limits of each client.

use letterbox_common::{
    ids::UserId,
    process::{
        client_address::{ClientAddress, TrustedProxies},
        shares::Shares,
    },
};
use letterbox_database::Database;
use letterbox_form_page::Documents;
use letterbox_operator::Addresses;

use crate::oidc::Oidc;

/// Maximum open connections; a further one takes the place of a stranger's.
pub(crate) const MAX_CONNECTIONS: usize = 256;
/// Concurrent connections of a peer that is no trusted proxy; concurrent requests of a client that
/// is not signed in, and of a signed-in person.
pub(crate) const SHARE: usize = MAX_CONNECTIONS / 8;

/// State that all pages share.
pub(crate) struct Desk {
    pub(crate) database: Database,
    pub(crate) proxies: TrustedProxies,
    /// Scheme, host and port of the desk, as browsers name them in `Origin`.
    pub(crate) origin: String,
    /// Begin the links that are shown.
    pub(crate) addresses: Addresses,
    /// Makes the previews of forms.
    pub(crate) form_pages: Documents,
    /// Whether people can have a link sent to sign in with.
    pub(crate) signs_in_by_email: bool,
    /// The trusted OpenID Connect issuer, if there is one.
    pub(crate) oidc: Option<Oidc>,
    /// Requests without a session.
    pub(crate) strangers: Shares<ClientAddress>,
    /// Requests of which it is being looked up whose they are.
    pub(crate) lookups: Shares<ClientAddress>,
    /// Rehearsals, which compute.
    pub(crate) rehearsals: Shares<UserId>,
    /// Requests with a session.
    pub(crate) people: Shares<UserId>,
}

impl Desk {
    /// Whether browsers reach the desk over TLS.
    pub(crate) fn is_https(&self) -> bool {
        self.origin.starts_with("https:")
    }
}
