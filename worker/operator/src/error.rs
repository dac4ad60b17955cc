//! Why an order was not carried out.

use letterbox_broker::BrokerError;
use letterbox_common::{
    RandomError,
    process::settings::SettingError,
    sealing::SealError,
    states::{ApprovalState, WorkflowState},
};
use letterbox_database::{DatabaseError, health::OldSchema, migrations::MigrationError};
use tokio_postgres::error::SqlState;

use crate::store::Noun;

/// Why an order was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// As things are, the order can't be carried out.
    #[error(transparent)]
    Refused(#[from] Reason),
    /// A call of the database failed.
    #[error("the database: {0}")]
    Database(#[from] DatabaseError),
    /// The broker failed.
    #[error("the broker: {0}")]
    Broker(#[from] BrokerError),
    /// The schema could not be brought up to date.
    #[error("the schema: {0}")]
    Migration(#[from] MigrationError),
    /// A setting can't be used.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// No new token or secret could be made.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// A new secret or credential could not be sealed.
    #[error(transparent)]
    Seal(#[from] SealError),
}

/// What is in the way of an order, for whoever gave it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Holds the kind of thing that does not exist.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// The beginning of an id could be that of too many.
    #[error("nothing has this id, and a beginning of one has four characters or more")]
    IdTooShort,
    /// A dead letter stays one. Holds why.
    #[error("the dead letter is left where it is: {0}")]
    LeftDead(&'static str),
    /// Nothing has this name, or an id that begins so.
    #[error("there is no {noun} {text:?}")]
    NotNamed {
        /// The kind of thing.
        noun: Noun,
        /// What was written.
        text: String,
    },
    /// More than one thing can be meant.
    #[error("{text:?} can be\n  {}", .meant.join("\n  "))]
    Ambiguous {
        /// What was written.
        text: String,
        /// Some of those that can be meant, with their ids.
        meant: Vec<String>,
    },
    /// The database has no role for operators yet. Holds the database's words.
    #[error("{0}: run 'letterbox migrate' first")]
    NoRole(String),
    /// The database lacks migrations that this program needs.
    #[error(transparent)]
    OldSchema(#[from] OldSchema),
    /// The name of a workspace, user, webhook, account or workflow is invalid.
    #[error("a name must have 1 to 200 characters and must not be blank")]
    InvalidName,
    /// What `all` stands for is no workspace.
    #[error("a workspace can't be called 'all'")]
    ReservedName,
    /// Nothing is stored to find runs of the workspace by.
    #[error("runs of this workspace are not found by what was submitted: see workspace search")]
    NotSearchable,
    /// Longer texts are not found.
    #[error("only values of at most 200 characters are found")]
    ValueTooLong,
    /// The e-mail address of a user is invalid.
    #[error("an e-mail address must have 3 to 200 characters and contain an @")]
    InvalidEmail,
    /// E-mail addresses are compared without regard to case.
    #[error("another user has this e-mail address")]
    DuplicateEmail,
    /// The allowance of a workspace is beyond what the database can store.
    #[error("an allowance must be at most 2,147,483,647 runs")]
    AllowanceTooLarge,
    /// A user who is not a member can't be removed and can't have an account.
    #[error("the user is not a member of this workspace")]
    NotAMember,
    /// A workflow can't be created for this owner.
    #[error("the owner must be a member of the workspace who may run workflows")]
    OwnerMustRun,
    /// A form link needs an owner who is an active member and not a viewer.
    #[error("the workflow's owner may not run workflows here")]
    OwnerCannotRun,
    /// Only a deployed workflow can have a form link.
    #[error("the workflow is not deployed")]
    NotDeployed,
    /// A form link that closes must do so later.
    #[error("a form link can't close in the past")]
    ClosesInThePast,
    /// The deploy was given no definition, and the workflow has none to deploy again.
    #[error("the workflow has no definition: give one")]
    NoDefinition,
    /// What is said of a webhook's sender.
    #[error("{0}")]
    InvalidScheme(String),
    /// PostgreSQL knows no such names.
    #[error("the name of a login has 1 to 63 bytes")]
    InvalidLogin,
    /// Holds every mistake, as `path: problem`.
    #[error("the definition can't be deployed:\n  {}", .0.join("\n  "))]
    InvalidDefinition(Vec<String>),
    /// What a run was given is needed until it is over.
    #[error("the run is not over")]
    RunNotOver,
    /// The state of the workflow does not allow this move.
    #[error("the workflow is {from} and can't become {to} this way")]
    ImpossibleMove {
        /// The state that it is in.
        from: WorkflowState,
        /// The state that the move leads to.
        to: WorkflowState,
    },
    /// The name of an account is too long or has control characters.
    #[error("an account's name must have at most 100 characters, none of them control characters")]
    InvalidAccountName,
    /// The base URL of an account has another scheme, or no host.
    #[error("the base URL must begin with http:// or https:// and a host")]
    InvalidBaseUrl,
    /// The base URL of an account has parts that requests can't begin with.
    #[error("the base URL must not contain a user, a password, a query or a fragment")]
    BaseUrlWithExtras,
    /// The header for a credential has an invalid name.
    #[error("that is not a valid header name")]
    InvalidHeader,
    /// The header belongs to the connection or to Letterbox.
    #[error("that header is reserved and can't carry a credential")]
    ReservedHeader,
    /// The credential is empty or is no valid header value.
    #[error("the credential must not be empty or contain control characters")]
    InvalidCredential,
    /// Two connected accounts of one user can't have the same name.
    #[error("the user has an account of this name: disconnect it first")]
    DuplicateAccount,
    /// Holds what is wrong with it, and where.
    #[error("the policy is invalid: {0}")]
    InvalidPolicy(String),
    /// Two operators set the next version: nothing of this one was stored.
    #[error("another policy was set at the same time")]
    PolicyConflict,
    /// The approval is open, but not for this user.
    #[error("only an active owner or editor of the workspace may answer")]
    MayNotAnswer,
    /// Nobody answered the approval in time.
    #[error("the approval has expired")]
    ApprovalExpired,
    /// The approval is no longer open. Holds its state.
    #[error("the approval is {0} already")]
    AlreadyAnswered(ApprovalState),
    /// The policy wants four eyes.
    #[error("the run acts as this user: by the policy another one must answer")]
    ForAnother,
    /// The order is for runs that are not over.
    #[error("the run is over already")]
    RunOver,
    /// The order is for runs that ended before they had done everything.
    #[error("only a run that failed, was denied or was cancelled can be retried")]
    NotRetryable,
    /// A run can't go on without what was submitted to it.
    #[error("what was submitted to the run was forgotten: it can't be retried")]
    InputForgotten,
    /// A stored secret does not open, or could not be sealed again.
    #[error("{table}.{column} of {id}: {problem}")]
    SealedValue {
        /// The table that holds it.
        table: &'static str,
        /// The column that holds it.
        column: &'static str,
        /// The id of its row within the workspace.
        id: String,
        /// Why it does not open, or can't be sealed.
        problem: String,
    },
}

/// Puts a broken constraint into words; everything else stays a database error.
pub(crate) trait Explain<T> {
    /// `reason` if the error has this code.
    fn explain(self, code: &SqlState, reason: Reason) -> Result<T, OperatorError>;
}

impl<T> Explain<T> for Result<T, DatabaseError> {
    fn explain(self, code: &SqlState, reason: Reason) -> Result<T, OperatorError> {
        self.map_err(|error| match &error.code {
            Some(given) if given == code => reason.into(),
            _ => error.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What people read who give orders: each reason, in its words. The match names every reason,
    /// so that a new one is written down here.
    #[test]
    fn every_reason_says_this() {
        use Reason::*;

        let reasons = [
            NotFound("workflow"),
            LeftDead("its queue takes nothing now"),
            IdTooShort,
            NotNamed {
                noun: Noun::User,
                text: "ada".into(),
            },
            Ambiguous {
                text: "cafe".into(),
                meant: vec!["1 (a)".into(), "2 (b)".into()],
            },
            RunNotOver,
            NoRole("role \"letterbox_operator\" does not exist".into()),
            OldSchema(letterbox_database::health::OldSchema {
                version: 1,
                known: 8,
            }),
            InvalidName,
            ReservedName,
            NotSearchable,
            ValueTooLong,
            InvalidEmail,
            DuplicateEmail,
            AllowanceTooLarge,
            NotAMember,
            OwnerMustRun,
            OwnerCannotRun,
            NotDeployed,
            ClosesInThePast,
            InvalidLogin,
            InvalidScheme("stripe has its own rules".into()),
            NoDefinition,
            InvalidDefinition(vec![
                "form: must be an object".into(),
                "actions: must be a list".into(),
            ]),
            ImpossibleMove {
                from: WorkflowState::Deleted,
                to: WorkflowState::Paused,
            },
            InvalidAccountName,
            InvalidBaseUrl,
            BaseUrlWithExtras,
            InvalidHeader,
            ReservedHeader,
            InvalidCredential,
            DuplicateAccount,
            InvalidPolicy("rules: must be a list".into()),
            PolicyConflict,
            MayNotAnswer,
            ApprovalExpired,
            AlreadyAnswered(ApprovalState::Denied),
            ForAnother,
            RunOver,
            NotRetryable,
            InputForgotten,
            SealedValue {
                table: "webhooks",
                column: "secret_sealed",
                id: "1".into(),
                problem: "no key".into(),
            },
        ];
        for reason in reasons {
            let expected = match &reason {
                NotFound(_) => "there is no such workflow",
                IdTooShort => {
                    "nothing has this id, and a beginning of one has four characters or more"
                }
                LeftDead(_) => "the dead letter is left where it is: its queue takes nothing now",
                NotNamed { .. } => "there is no user \"ada\"",
                Ambiguous { .. } => "\"cafe\" can be\n  1 (a)\n  2 (b)",
                NoRole(_) => {
                    "role \"letterbox_operator\" does not exist: run 'letterbox migrate' first"
                }
                OldSchema(_) => {
                    "the schema has version 1, this program needs 8: run 'letterbox migrate'"
                }
                InvalidName => "a name must have 1 to 200 characters and must not be blank",
                ReservedName => "a workspace can't be called 'all'",
                NotSearchable => {
                    "runs of this workspace are not found by what was submitted: \
                     see workspace search"
                }
                ValueTooLong => "only values of at most 200 characters are found",
                InvalidEmail => "an e-mail address must have 3 to 200 characters and contain an @",
                DuplicateEmail => "another user has this e-mail address",
                AllowanceTooLarge => "an allowance must be at most 2,147,483,647 runs",
                NotAMember => "the user is not a member of this workspace",
                OwnerMustRun => "the owner must be a member of the workspace who may run workflows",
                OwnerCannotRun => "the workflow's owner may not run workflows here",
                NotDeployed => "the workflow is not deployed",
                InvalidScheme(_) => "stripe has its own rules",
                InvalidLogin => "the name of a login has 1 to 63 bytes",
                ClosesInThePast => "a form link can't close in the past",
                NoDefinition => "the workflow has no definition: give one",
                RunNotOver => "the run is not over",
                InvalidDefinition(_) => {
                    "the definition can't be deployed:\n  \
                     form: must be an object\n  actions: must be a list"
                }
                ImpossibleMove { .. } => "the workflow is deleted and can't become paused this way",
                InvalidAccountName => {
                    "an account's name must have at most 100 characters, \
                     none of them control characters"
                }
                InvalidBaseUrl => "the base URL must begin with http:// or https:// and a host",
                BaseUrlWithExtras => {
                    "the base URL must not contain a user, a password, a query or a fragment"
                }
                InvalidHeader => "that is not a valid header name",
                ReservedHeader => "that header is reserved and can't carry a credential",
                InvalidCredential => {
                    "the credential must not be empty or contain control characters"
                }
                DuplicateAccount => "the user has an account of this name: disconnect it first",
                InvalidPolicy(_) => "the policy is invalid: rules: must be a list",
                PolicyConflict => "another policy was set at the same time",
                MayNotAnswer => "only an active owner or editor of the workspace may answer",
                ApprovalExpired => "the approval has expired",
                AlreadyAnswered(_) => "the approval is denied already",
                ForAnother => "the run acts as this user: by the policy another one must answer",
                RunOver => "the run is over already",
                NotRetryable => {
                    "only a run that failed, was denied or was cancelled can be retried"
                }
                InputForgotten => {
                    "what was submitted to the run was forgotten: it can't be retried"
                }
                SealedValue { .. } => "webhooks.secret_sealed of 1: no key",
            };
            assert_eq!(reason.to_string(), expected);
        }
    }
}
