//! Columns that are not read as they are into the record of a run.

use std::time::{Duration, Instant};

use letterbox_common::states::ApprovalState;
use letterbox_database::{Row, RowError};

use super::approvals::ApprovalStatus;

pub(super) fn approval(row: &Row) -> Result<Option<ApprovalStatus>, RowError> {
    let Some(state) = row.try_get::<_, Option<ApprovalState>>("approval_state")? else {
        return Ok(None);
    };
    let has_lapsed: Option<bool> = row.try_get("approval_lapsed")?;
    let time_left = seconds(row.try_get("approval_expires_in")?);
    Ok(Some(match (state, time_left) {
        (ApprovalState::Approved, _) if has_lapsed == Some(true) => ApprovalStatus::Lapsed,
        (ApprovalState::Approved, _) => ApprovalStatus::Approved,
        (ApprovalState::Withdrawn, _) => ApprovalStatus::Withdrawn,
        (ApprovalState::Denied, _) => ApprovalStatus::Denied,
        (ApprovalState::Pending, Some(time_left)) => ApprovalStatus::Pending(time_left),
        (ApprovalState::Pending, None) | (ApprovalState::Expired, _) => ApprovalStatus::Expired,
    }))
}

/// `None` if it is null, or its time has passed.
pub(super) fn seconds(seconds: Option<f64>) -> Option<Duration> {
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

pub(super) fn age(age: Option<f64>) -> Duration {
    seconds(age).unwrap_or_default()
}

pub(super) fn status(status: Option<i32>) -> Option<u16> {
    status.and_then(|status| u16::try_from(status).ok())
}

pub(super) fn length(length: i32) -> usize {
    usize::try_from(length).unwrap_or_default()
}

/// When the row was read.
pub(super) fn now(_: &Row) -> Result<Instant, RowError> {
    Ok(Instant::now())
}
