//! Checks claims: a gateway claims an entry before it publishes it, so an entry without a claim was
//! not accepted by a gateway and is not trusted. The protocol is in
//! `gateway/src/acceptance/README.md`.

mod store;

use letterbox_broker::UNCLAIMED;

use crate::outcome::{Cause, Rejection};

pub(crate) use self::store::{Claimed, STATEMENTS};

/// The rejection of an unclaimed entry.
pub(crate) fn rejection() -> Rejection {
    let reason =
        format!("{UNCLAIMED}: no gateway has claimed it, or the claim was lost with the database");
    Rejection {
        cause: Cause::Unclaimed,
        reason,
    }
}
