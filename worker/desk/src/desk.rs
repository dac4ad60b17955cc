//! What everything that serves a browser shares, and how much each party has of it.

use letterbox_common::{
    ids::UserId,
    process::{
        client_address::{ClientAddress, TrustedProxies},
        shares::Shares,
    },
};
use letterbox_database::Database;
use letterbox_operator::Addresses;

use crate::{oidc::Oidc, pages::Pages};

/// Maximum open connections; a further one takes the place of a stranger's.
pub(crate) const MAX_CONNECTIONS: usize = 256;
/// What one party has of them at once: connections of a peer that is no trusted proxy, requests of
/// a client that is not signed in, and of a person who is.
pub(crate) const SHARE: usize = MAX_CONNECTIONS / 8;

/// What the rooms share.
pub(crate) struct Desk {
    pub(crate) database: Database,
    pub(crate) proxies: TrustedProxies,
    /// Scheme, host and port of the desk, as browsers name them in `Origin`.
    pub(crate) origin: String,
    /// Begin the links that are shown.
    pub(crate) addresses: Addresses,
    /// Whether people can have a link sent to sign in with.
    pub(crate) signs_in_by_email: bool,
    /// Who else vouches for people.
    pub(crate) oidc: Option<Oidc>,
    pub(crate) pages: Pages,
    /// Requests of those who are not signed in.
    pub(crate) strangers: Shares<ClientAddress>,
    /// Requests of which it is being looked up whose they are.
    pub(crate) lookups: Shares<ClientAddress>,
    /// Requests of those who are.
    pub(crate) people: Shares<UserId>,
}

impl Desk {
    /// Whether browsers reach the desk over TLS.
    pub(crate) fn is_https(&self) -> bool {
        self.origin.starts_with("https:")
    }
}
