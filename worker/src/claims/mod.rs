//! Claims, as workers see them: a gateway claims before it publishes, so an entry without a claim
//! does not come from a gateway's door, whoever could publish it. It is not believed. The protocol
//! is in `gateway/src/acceptance/README.md`.

mod store;

use letterbox_broker::UNCLAIMED;

use crate::outcome::{Cause, Rejection};

pub(crate) use self::store::{STATEMENTS, unclaimed_deliveries, unclaimed_submissions};

/// Why an entry is dead-lettered that nobody has claimed.
pub(crate) fn rejection() -> Rejection {
    let reason =
        format!("{UNCLAIMED}: no gateway has claimed it, or the claim was lost with the database");
    Rejection {
        cause: Cause::Unclaimed,
        reason,
    }
}
