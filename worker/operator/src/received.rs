//! When runs were received, by their ids, which begin with the time of their claims.

use jiff::{SignedDuration, Timestamp};
use letterbox_common::ids::RunId;

/// How long before it was received a run may have got its id, if its claim was taken over.
const CLAIMED_BEFORE: SignedDuration = SignedDuration::from_hours(24);
/// How long after.
const CLAIMED_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// The least id that a run can get at this time.
fn earliest_id(time: Timestamp) -> RunId {
    RunId::earliest_at(u64::try_from(time.as_millisecond()).unwrap_or_default())
}

/// The least id of the last 24 hours, but for a few whose claims were taken over.
pub(crate) fn a_day_ago() -> RunId {
    earliest_id(Timestamp::now() - SignedDuration::from_hours(24))
}

/// No run that was received since then has a lesser id.
pub(crate) fn since_id(since: Timestamp) -> RunId {
    earliest_id(since - CLAIMED_BEFORE)
}

/// Every run that was received before then has a lesser id.
pub(crate) fn before_id(until: Timestamp) -> RunId {
    earliest_id(until + CLAIMED_AFTER)
}
