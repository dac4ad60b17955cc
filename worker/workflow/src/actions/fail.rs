//! `fail`: the run fails, for a reason that its owner has written.

use super::{ActionKind, Step};

pub(super) const KIND: ActionKind = ActionKind {
    name: "fail",
    steering: None,
    sends: false,
    parse: |fields| {
        let reason = fields.text("reason", MAX_REASON);
        // A reason is kept, logged and told where values must not be.
        let place = fields.place("reason");
        fields.diagnostics.check_fixed(&place, &reason);
        Some(Step::Fail(reason))
    },
};

/// Maximum characters of a reason.
const MAX_REASON: usize = 200;
