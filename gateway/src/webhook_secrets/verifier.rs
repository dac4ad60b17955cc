//! The verifier of one webhook: its keys, the rules by which its tool signs, and the networks that
//! may send.

use std::net::IpAddr;

use jiff::Timestamp;
use letterbox_common::{
    ids::WebhookId,
    process::networks::Networks,
    sealing::Secret,
    webhook::{
        DeliveryFault, KeptHeaders, KeptNames, Keys, KindPlace, Reply, Rules, SameBy, Tool,
        WebhookRequest,
    },
};

use super::store::StoredChecks;

/// A request whose sender is to be proven.
#[derive(Clone, Copy)]
pub(crate) struct Presented<'a> {
    pub(crate) request: WebhookRequest<'a>,
    /// The address of the client.
    pub(crate) from: IpAddr,
}

/// The result of a successful verification.
#[derive(Debug)]
pub(crate) struct Proven {
    /// The answer that is wanted, if it is no event.
    pub(crate) reply: Option<Reply>,
    /// The webhook under whose id its bodies are remembered.
    pub(crate) memory: WebhookId,
    /// The version of the webhook that verified it.
    pub(crate) version: i64,
    /// What is kept of the headers.
    pub(crate) headers: KeptHeaders,
    /// The sender's id, if by that it is the same as another one.
    pub(crate) same_by: Option<String>,
    /// The member of the body that is its id, if it is.
    pub(crate) same_by_member: Option<String>,
    /// What the tool says that it is, if a header says so.
    pub(crate) event_type: Option<String>,
    /// The member of the body that says what it is, if one does.
    pub(crate) event_type_member: Option<&'static str>,
}

/// What a webhook checks, apart from its secret.
pub(super) struct Checks {
    tool: Tool,
    rules: Rules,
    kept: KeptNames,
    same_by: SameBy,
    awaits_secret: bool,
    /// The networks that may send; `None` for all.
    allow_from: Option<Networks>,
}

impl Checks {
    /// Parses what is stored.
    pub(super) fn parse(stored: &StoredChecks) -> Result<Self, String> {
        let tool = stored.tool.parse::<Tool>();
        let tool = tool.map_err(|error| error.to_string())?;
        let rules = match (&stored.rules, tool.rules()) {
            (Some(rules), None) => Rules::parse(rules).map_err(|error| error.to_string())?,
            (_, rules) => rules.ok_or("a custom webhook has no rules")?,
        };
        let kept = KeptNames::of_stored(tool, &rules, &stored.kept_headers);
        let same_by = stored.same_by.parse::<SameBy>();
        let networks = stored.allow_from.as_ref();
        let allow_from = networks.map(|text| text.parse::<Networks>()).transpose();
        Ok(Self {
            tool,
            rules,
            kept,
            same_by: same_by.map_err(|error| error.to_string())?,
            awaits_secret: stored.awaits_secret,
            allow_from: allow_from.map_err(|error| error.to_string())?,
        })
    }

    /// The checks of the decoy, which is signed to as Letterbox itself signs.
    #[expect(clippy::expect_used, reason = "only custom has no rules of its own")]
    pub(super) fn decoy() -> Self {
        let tool = Tool::letterbox();
        let rules = tool.rules().expect("it is not custom");
        Self {
            kept: KeptNames::of_stored(tool, &rules, &[]),
            tool,
            rules,
            same_by: SameBy::Body,
            awaits_secret: false,
            allow_from: None,
        }
    }
}

/// Checks the signatures of one webhook.
pub(super) struct Verifier {
    checks: Checks,
    memory: WebhookId,
    /// The version of the webhook that it is of.
    pub(super) version: i64,
    /// The keys by which it verifies.
    pub(super) keys: Keys,
    secret: Secret,
    /// Until when it may be used, because its former secret ends.
    until: Option<Timestamp>,
}

impl Verifier {
    /// Creates the verifier of a version of a webhook whose secret was opened. `memory` is the
    /// webhook under whose id its bodies are remembered. `former` is the secret that is valid, too.
    pub(super) fn new(
        checks: Checks,
        (memory, version): (WebhookId, i64),
        secret: &Secret,
        former: Option<(&Secret, Timestamp)>,
    ) -> Result<Self, String> {
        // One whose secret is to be set has one that nobody knows, in any form.
        let keys = match checks.awaits_secret {
            true => Checks::decoy().rules.keys(secret),
            false => checks.rules.keys(secret),
        };
        let until = former.map(|(_, until)| until);
        let former = former.and_then(|(former, _)| checks.rules.keys(former).ok());
        let keys = keys.map_err(|error| error.to_string())?.beside(former);
        Ok(Self {
            until,
            checks,
            memory,
            version,
            keys,
            secret: secret.clone(),
        })
    }

    /// Whether its former secret counts no more.
    pub(super) fn is_over(&self) -> bool {
        self.until.is_some_and(|until| until <= Timestamp::now())
    }

    /// The rules of its tool, and its secret.
    pub(super) fn rules_and_secret(&self) -> (&Rules, &Secret) {
        (&self.checks.rules, &self.secret)
    }

    /// What a request proves, if it is signed and comes from a network that may send. Always checks
    /// both.
    pub(super) fn proves(&self, presented: Presented<'_>) -> Option<Proven> {
        let now = Timestamp::now().as_second().unsigned_abs();
        let rules = &self.checks.rules;
        let is_signed = rules.verifies(&self.keys, &presented.request, now);
        let is_proven = is_signed & self.may_send(presented.from);
        is_proven.then(|| self.proven(&presented.request, now))
    }

    /// The answer to a question, to who has proven to be the tool.
    pub(super) fn answers(&self, presented: Presented<'_>) -> Option<Reply> {
        let rules = &self.checks.rules;
        let reply = rules.answer_query(&self.keys, &presented.request);
        reply.filter(|_| self.may_send(presented.from))
    }

    fn proven(&self, request: &WebhookRequest<'_>, now: u64) -> Proven {
        let checks = &self.checks;
        let headers = checks.kept.keep(request.headers);
        // An empty id would make all of them the same.
        let id = checks.rules.id(request.headers);
        let id = id.filter(|id| checks.same_by == SameBy::Id && !id.is_empty());
        let (event_type, event_type_member) = match &checks.tool.described().kind {
            Some(KindPlace::Header(name)) => (headers.get(name).map(str::to_owned), None),
            Some(KindPlace::Pointer(pointer)) => (None, Some(&**pointer)),
            None => (None, None),
        };
        let same_by_member = match &checks.same_by {
            SameBy::Member(pointer) => Some(pointer.clone()),
            SameBy::Body | SameBy::Id => None,
        };
        Proven {
            reply: checks.rules.answer(&self.keys, request, now),
            memory: self.memory,
            version: self.version,
            headers,
            same_by: id.map(str::to_owned),
            same_by_member,
            event_type,
            event_type_member,
        }
    }

    /// Why a request does not verify.
    pub(super) fn complaint(&self, presented: Presented<'_>) -> DeliveryFault {
        if !self.may_send(presented.from) {
            return DeliveryFault::Address;
        }
        if self.checks.awaits_secret {
            return DeliveryFault::NoSecretYet;
        }
        let now = Timestamp::now().as_second().unsigned_abs();
        let request = &presented.request;
        match request.method {
            "POST" => self.checks.rules.complaint(request.headers, now),
            _ => DeliveryFault::Handshake,
        }
    }

    fn may_send(&self, from: IpAddr) -> bool {
        let allowed = self.checks.allow_from.as_ref();
        allowed.is_none_or(|networks| networks.contains(from))
    }
}
