//! Why an order was not carried out.

use letterbox_common::{
    RandomError,
    process::settings::SettingError,
    sealing::SealError,
    states::{ApprovalState, WorkflowState},
};
use letterbox_database::{DatabaseError, migrations::MigrationError};
use tokio_postgres::error::SqlState;

/// Why an order was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// As things are, the order can't be carried out.
    #[error(transparent)]
    Refused(#[from] Reason),
    #[error("the database: {0}")]
    Database(#[from] DatabaseError),
    #[error("the schema: {0}")]
    Migration(#[from] MigrationError),
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error(transparent)]
    Random(#[from] RandomError),
    #[error(transparent)]
    Seal(#[from] SealError),
}

/// What is in the way of an order, for whoever gave it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("there is no such {0}")]
    NotFound(&'static str),
    #[error("{0}: run 'letterbox migrate' first")]
    NoRole(String),
    #[error(
        "the schema has version {version}, this program needs {known}: run 'letterbox migrate'"
    )]
    OldSchema { version: i32, known: i32 },
    #[error("a name must have 1 to 200 characters and must not be blank")]
    InvalidName,
    #[error("an e-mail address must have 3 to 200 characters and contain an @")]
    InvalidEmail,
    #[error("another user has this e-mail address")]
    DuplicateEmail,
    #[error("an allowance must be at most 2,147,483,647 runs")]
    AllowanceTooLarge,
    #[error("the user is not a member of this workspace")]
    NotAMember,
    #[error("the owner must be a member of the workspace who may run workflows")]
    OwnerMustRun,
    #[error("the workflow's owner may not run workflows here")]
    OwnerCannotRun,
    #[error("the workflow is not deployed")]
    NotDeployed,
    #[error("the workflow has no definition: give one")]
    NoDefinition,
    #[error("the definition can't be deployed:\n  {}", .0.join("\n  "))]
    InvalidDefinition(Vec<String>),
    #[error("the workflow is {from} and can't become {to} this way")]
    ImpossibleMove {
        from: WorkflowState,
        to: WorkflowState,
    },
    #[error("an account's name must have at most 100 characters, none of them control characters")]
    InvalidAccountName,
    #[error("the base URL must begin with http:// or https:// and a host")]
    InvalidBaseUrl,
    #[error("the base URL must not contain a user, a password, a query or a fragment")]
    BaseUrlWithExtras,
    #[error("that is not a valid header name")]
    InvalidHeader,
    #[error("that header is reserved and can't carry a credential")]
    ReservedHeader,
    #[error("the credential must not be empty or contain control characters")]
    InvalidCredential,
    #[error("the user has an account of this name: disconnect it first")]
    DuplicateAccount,
    #[error("the policy is invalid: {0}")]
    InvalidPolicy(String),
    #[error("another policy was set at the same time")]
    PolicyConflict,
    #[error("only an active owner or editor of the workspace may answer")]
    MayNotAnswer,
    #[error("the approval has expired")]
    ApprovalExpired,
    #[error("the approval is {0} already")]
    AlreadyAnswered(ApprovalState),
    #[error("{table}.{column} of {id}: {problem}")]
    SealedValue {
        table: &'static str,
        column: &'static str,
        id: String,
        problem: String,
    },
}

impl OperatorError {
    /// The error of a first connection: before the first migration there is no role to take.
    pub(crate) fn connecting(error: DatabaseError) -> Self {
        let no_role = [
            SqlState::INVALID_PARAMETER_VALUE,
            SqlState::UNDEFINED_OBJECT,
        ];
        match &error.code {
            Some(code) if no_role.contains(code) => Reason::NoRole(error.to_string()).into(),
            _ => error.into(),
        }
    }
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
