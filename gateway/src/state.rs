//! The state of the handlers: one value, shared by all requests.

use std::time::Duration;

use letterbox_common::{form::TokenHash, ids::WebhookId, process::client_address::TrustedProxies};
use letterbox_form_page::Documents;

use crate::{
    acceptance::{Acceptance, Delivery, Submission},
    admission::Admission,
    ceilings::Ceilings,
    claims::Claims,
    cors::AllowedOrigins,
    faults::Faults,
    proof::Proofs,
    repeats::Repeats,
    request_log::RequestLog,
    webhook_secrets::WebhookSecrets,
};

/// The running gateway.
pub(crate) struct Gateway {
    /// The public address, without a slash at its end.
    pub(crate) base_url: String,
    pub(crate) origins: AllowedOrigins,
    pub(crate) proxies: TrustedProxies,
    pub(crate) trusted_request_ids: bool,
    pub(crate) documents: Documents,
    pub(crate) proofs: Proofs,
    pub(crate) secrets: WebhookSecrets,
    pub(crate) ceilings: Ceilings,
    pub(crate) admission: Admission,
    pub(crate) claims: Claims,
    pub(crate) faults: Faults,
    pub(crate) request_log: RequestLog,
    pub(crate) repeats: Repeats<TokenHash>,
    pub(crate) changed_deliveries: Repeats<WebhookId>,
    pub(crate) deliveries: Acceptance<Delivery>,
    pub(crate) submissions: Acceptance<Submission>,
    /// The deadline of an answer, from the arrival of the body.
    pub(crate) answer_deadline: Duration,
}
