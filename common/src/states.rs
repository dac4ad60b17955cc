//! The states, roles and kinds that one process writes and another reads. The database holds the
//! same words in CHECK constraints.

use crate::text_enum;

text_enum! {
    /// Where a workflow is in its life. Only a deployed one has a live form link.
    pub enum WorkflowState {
        /// Never deployed, or returned to draft
        Draft = "draft",
        /// Takes submissions
        Deployed = "deployed",
        /// Takes none until it is activated or deployed again
        Paused = "paused",
        /// Gone for good; its runs stay
        Deleted = "deleted",
    }
}

text_enum! {
    /// What a member may do in a workspace.
    pub enum MemberRole {
        /// Runs workflows and answers approvals
        Owner = "owner",
        /// Runs workflows and answers approvals
        Editor = "editor",
        /// Runs workflows
        Runner = "runner",
        /// Looks only
        Viewer = "viewer",
    }
}

text_enum! {
    /// Where a run is in its life.
    pub enum RunState {
        /// Waits for a worker
        Queued = "queued",
        /// A worker has it, or it waits for a retry
        Running = "running",
        /// Waits for a person
        WaitingApproval = "waiting_approval",
        /// Over: every action succeeded
        Succeeded = "succeeded",
        /// Over: an action failed
        Failed = "failed",
        /// Over: the policy or a person denied an action
        Denied = "denied",
        /// Over: somebody cancelled it
        Cancelled = "cancelled",
        /// Never started
        Refused = "refused",
    }
}

text_enum! {
    /// Where the wake of a run is.
    pub enum WakeState {
        /// Waits for its time
        Scheduled = "scheduled",
        /// Its time has come; waits for its turn
        Ready = "ready",
        /// The broker or a worker has it
        HandedOver = "handed_over",
    }
}

text_enum! {
    /// Why a run never started.
    pub enum RefusedReason {
        /// The owner left, was deactivated, or became a viewer
        OwnerCannotRun = "owner_cannot_run",
        /// The workflow was deleted
        WorkflowUnavailable = "workflow_unavailable",
        /// The workspace has used up its runs of this month
        AllowanceExhausted = "allowance_exhausted",
        /// The workspace has stored as much today as it may
        StorageExhausted = "storage_exhausted",
    }
}

text_enum! {
    /// What retention forgets.
    pub enum Forgotten {
        /// Bodies of signals
        Bodies = "bodies",
        /// Inputs of runs that are over
        Inputs = "inputs",
        /// Requests that such runs have sent
        Requests = "requests",
        /// Such runs as a whole
        Runs = "runs",
    }
}

text_enum! {
    /// Whether a run's input can be trusted.
    pub enum InputTrust {
        /// A stranger wrote it
        Untrusted = "untrusted",
    }
}

text_enum! {
    /// Where a run is with one of its actions.
    pub enum ActionState {
        /// An attempt has begun; its outcome may be unknown
        Running = "running",
        /// Waits for its next attempt
        Retrying = "retrying",
        /// Waits for its time
        Waiting = "waiting",
        /// Waits for a person
        WaitingApproval = "waiting_approval",
        /// Over
        Succeeded = "succeeded",
        /// Over, and the run with it
        Failed = "failed",
        /// Over, and the run with it
        Denied = "denied",
        /// Not done, or not done again: the run was cancelled
        Cancelled = "cancelled",
    }
}

text_enum! {
    /// What people have said about a request that needs their approval.
    pub enum ApprovalState {
        /// Nothing yet
        Pending = "pending",
        /// The request may be sent
        Approved = "approved",
        /// The request must not be sent
        Denied = "denied",
        /// Nobody answered in time, or the run is over
        Expired = "expired",
        /// The policy did not ask any more; if it does again, the question is pending again
        Withdrawn = "withdrawn",
    }
}

text_enum! {
    /// What a signal is about.
    pub enum SignalKind {
        /// A body that keeps the proposal contract
        ProposalCreated = "proposal.created",
        /// A body that keeps the proposal contract
        ProposalWon = "proposal.won",
        /// A body that keeps the proposal contract
        ClientCreated = "client.created",
        /// Any other body
        Generic = "generic",
    }
}
