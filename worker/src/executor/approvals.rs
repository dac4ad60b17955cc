//! Approvals: whether an action may be sent, by the policy and by the person whom it asks. Pure.
//! Questions are asked, withdrawn and closed by `store/` and by `end_runs` in the database; people
//! answer them through the operator.

use std::time::Duration;

use letterbox_workflow::Decision;

/// How a person's answer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalStatus {
    /// There is none yet; the question expires after this time.
    Pending(Duration),
    Approved,
    /// Approved by a person who may no longer approve it.
    Lapsed,
    Denied,
    Expired,
    /// The policy did not ask any more.
    Withdrawn,
}

/// Whether an action may be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permission {
    Granted,
    /// A person must answer within this time.
    Awaited(Duration),
    /// It must not be sent, for this reason.
    Denied(&'static str),
}

/// Combines what the policy says now with what a person has said. `time_limit` is how long a person
/// may take who has not been asked yet.
pub(super) fn permission(
    decision: Decision,
    approval: Option<ApprovalStatus>,
    time_limit: Duration,
) -> Permission {
    use ApprovalStatus::{Approved, Denied, Expired, Lapsed, Pending, Withdrawn};
    match (decision, approval) {
        (Decision::Deny, _) => Permission::Denied("denied by the policy"),
        // A person's no outlives a policy that would not ask any more.
        (_, Some(Denied)) => Permission::Denied("denied by a member"),
        (Decision::Allow, _) | (Decision::Approve, Some(Approved)) => Permission::Granted,
        (Decision::Approve, Some(Expired)) => Permission::Denied("not approved in time"),
        (Decision::Approve, Some(Pending(time_left))) => Permission::Awaited(time_left),
        (Decision::Approve, None | Some(Withdrawn | Lapsed)) => Permission::Awaited(time_limit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_decision_with_every_answer() {
        use ApprovalStatus::{Approved, Denied, Expired, Lapsed, Pending, Withdrawn};
        let limit = Duration::from_secs(60);
        let left = Duration::from_secs(5);
        let by_policy = Permission::Denied("denied by the policy");
        let by_member = Permission::Denied("denied by a member");
        let late = Permission::Denied("not approved in time");
        let answers = [
            None,
            Some(Pending(left)),
            Some(Approved),
            Some(Denied),
            Some(Expired),
            Some(Withdrawn),
            Some(Lapsed),
        ];
        let granted = Permission::Granted;
        for (decision, expected) in [
            (
                Decision::Allow,
                [
                    granted, granted, granted, by_member, granted, granted, granted,
                ],
            ),
            (
                Decision::Approve,
                [
                    Permission::Awaited(limit),
                    Permission::Awaited(left),
                    granted,
                    by_member,
                    late,
                    Permission::Awaited(limit),
                    Permission::Awaited(limit),
                ],
            ),
            (Decision::Deny, [by_policy; 7]),
        ] {
            let given = answers.map(|answer| permission(decision, answer, limit));
            assert_eq!(given, expected, "{decision}");
        }
    }
}
