//! The states, roles and kinds that one process writes and another reads. The database holds the
//! same words in CHECK constraints.

use crate::text_enum;

text_enum! {
    /// The state of a workflow. Only a deployed one has a live form link.
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
    /// The role of a member in a workspace.
    pub enum MemberRole {
        /// Runs workflows and answers approvals
        Owner = "owner",
        /// Runs workflows and answers approvals
        Editor = "editor",
        /// Runs workflows
        Runner = "runner",
        /// Reads only
        Viewer = "viewer",
    }
}

text_enum! {
    /// How a person has proven who they are.
    pub enum Proof {
        /// Not at all: an operator says so
        Asserted = "asserted",
        /// By a session of the desk, which began with a sign-in link
        Link = "link",
        /// By a session of the desk, which began on the word of an issuer of OpenID Connect
        Oidc = "oidc",
    }
}

text_enum! {
    /// The state of a run.
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
        /// Over: it was cancelled
        Cancelled = "cancelled",
        /// Never started
        Refused = "refused",
    }
}

text_enum! {
    /// The state of a run that is not over.
    pub enum ActiveState {
        /// Waits for its time
        Scheduled = "scheduled",
        /// Due; waits for its turn
        Ready = "ready",
        /// A worker has it
        Taken = "taken",
    }
}

text_enum! {
    /// Why a run was refused.
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
    /// The kinds of data that retention deletes.
    pub enum Forgotten {
        /// Bodies of signals
        Bodies = "bodies",
        /// Inputs of runs that are over
        Inputs = "inputs",
        /// Requests that such runs have sent
        Requests = "requests",
        /// Such runs entirely
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
    /// The state of an action of a run.
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
    /// The state of an approval: the answer to the question whether a request may be sent.
    pub enum ApprovalState {
        /// Nothing yet
        Pending = "pending",
        /// The request may be sent
        Approved = "approved",
        /// The request must not be sent
        Denied = "denied",
        /// No one answered in time, or the run is over
        Expired = "expired",
        /// The policy no longer asks; if it does again, the question is pending again
        Withdrawn = "withdrawn",
    }
}

text_enum! {
    /// The kind of a signal.
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

text_enum! {
    /// The state of a segment of the memory.
    pub enum SegmentState {
        /// Holds nothing
        Empty = "empty",
        /// Claims are copied into it
        Copying = "copying",
        /// Looked up; its claims are still there
        Copied = "copied",
        /// Looked up
        Ready = "ready",
        /// Others are merged into it
        Merging = "merging",
        /// Replaced by the one that it was merged into, to be emptied
        Retired = "retired",
    }
}

text_enum! {
    /// The kinds of claims.
    pub enum ClaimKind {
        /// Of bodies
        Deliveries = "deliveries",
        /// Of idempotency keys
        Submissions = "submissions",
    }
}

text_enum! {
    /// What a connected account waits for, and with it every run that is to call it.
    pub enum AccountWait {
        /// A worker gets it a token
        Token = "token",
        /// Its owner connects it, or connects it again
        Owner = "owner",
    }
}

text_enum! {
    /// The programs that tell the database that they are alive.
    pub enum Program {
        /// Receives deliveries and submissions
        Gateway = "gateway",
        /// Records them and executes runs
        Worker = "worker",
    }
}
