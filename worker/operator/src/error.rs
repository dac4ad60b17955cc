//! Why an order was not carried out.

use letterbox_broker::BrokerError;
use letterbox_common::{
    RandomError,
    process::settings::SettingError,
    sealing::SealError,
    states::{ApprovalState, Program, WorkflowState},
};
use letterbox_database::{DatabaseError, RowError, health::OldSchema, migrations::MigrationError};
use letterbox_workflow::{Problem, account::AccountError};
use tokio_postgres::error::SqlState;

/// What an order gives, or why it was not carried out.
pub type Result<T, E = OperatorError> = std::result::Result<T, E>;

/// Why an order was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// The order is impossible as things are.
    #[error(transparent)]
    Refused(#[from] Reason),
    /// A call of the database failed.
    #[error("the database: {0}")]
    Database(DatabaseError),
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

impl From<DatabaseError> for OperatorError {
    fn from(error: DatabaseError) -> Self {
        match &error.code {
            Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => {
                Reason::NotAllowed(error.to_string()).into()
            }
            Some(code) if *code == SqlState::CHECK_VIOLATION => {
                Reason::NotStorable(error.to_string()).into()
            }
            _ => Self::Database(error),
        }
    }
}

impl From<RowError> for OperatorError {
    fn from(error: RowError) -> Self {
        DatabaseError::from(error).into()
    }
}

/// Why an order is impossible, in words for the operator.
#[expect(missing_docs, reason = "most say in their messages what they are")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// The schema has a rule against a value. Holds the database's words.
    #[error("a value can't be stored, perhaps it is too long: {0}")]
    NotStorable(String),
    #[error("no match: give at least 4 characters of the id")]
    IdTooShort,
    /// A dead letter stays one. Holds why.
    #[error("the dead letter was left in its queue: {0}")]
    LeftDead(&'static str),
    #[error("there is no {noun} {text:?}")]
    NotNamed {
        noun: &'static str,
        /// What was written.
        text: String,
    },
    #[error("{text:?} matches more than one, give one of these ids:\n  {}", .meant.join("\n  "))]
    Ambiguous {
        /// What was written.
        text: String,
        /// Some of the matches, with their ids.
        meant: Vec<String>,
    },
    /// The database has no role for operators yet. Holds the database's words.
    #[error("{0}: run 'letterbox migrate' first")]
    NoRole(String),
    #[error(transparent)]
    OldSchema(#[from] OldSchema),
    /// The name of a workspace, user, webhook, account or workflow is invalid.
    #[error("a name must have 1 to 200 characters, no control characters, and must not be blank")]
    InvalidName,
    #[error("'all' stands for all workspaces: choose another name")]
    ReservedName,
    #[error(
        "search by submitted value is off in this workspace: run 'letterbox workspace settings \
         WORKSPACE --is-searchable on'"
    )]
    NotSearchable,
    /// Longer values are not indexed.
    #[error("a value to search for must have at most 200 characters")]
    ValueTooLong,
    #[error("an e-mail address must have 3 to 200 characters and contain an @")]
    InvalidEmail,
    /// E-mail addresses are compared without regard to case.
    #[error("another user has this e-mail address: give another one")]
    DuplicateEmail,
    /// The allowance of a workspace is beyond what the database can store.
    #[error("an allowance must be at most 2,147,483,647 runs")]
    AllowanceTooLarge,
    /// As the columns of a workspace allow.
    #[error("an action is tried 1 to 30 times, the second time after 1 ms to an hour")]
    InvalidRetries,
    /// Such an account's credential is its token, which a worker gets.
    #[error(
        "the account gets its tokens by OAuth 2.0: give it another client secret, or let its owner \
         connect it again"
    )]
    GetsTokens,
    /// It would be lost.
    #[error("the draft was changed meanwhile, here or in another window: open it again")]
    DraftConflict,
    #[error(
        "nothing was tried: a path begins with / and has at most 2,000 characters, and a mail \
         server has none"
    )]
    InvalidTrial,
    /// It would forget the one before.
    #[error("nothing was tried: the account is being tried, or was less than five seconds ago")]
    TriedJustNow,
    #[error("this account has a fixed credential: there is nothing to authorize")]
    OtherGrant,
    #[error(
        "the URLs of OAuth 2.0 must begin with http:// or https:// and a host, without a user, and \
         end without a fragment"
    )]
    InvalidOauthUrl,
    #[error(
        "a client id has 1 to 500 characters, a scope words of at most 1,000 characters with \
         spaces between them, and client credentials need a client secret"
    )]
    InvalidClient,
    /// A user who is not a member can't be removed and can't have an account.
    #[error("the user is not a member of this workspace")]
    NotAMember,
    /// An owner asks in so many people, and no more.
    #[error("a workspace with 1,000 members can't invite more: an operator can add them")]
    ManyMembers,
    #[error("the owner must be a member of the workspace who may run workflows")]
    OwnerMustRun,
    /// A form link needs an owner who is an active member and not a viewer.
    #[error(
        "the workflow's owner may not run workflows here: make them an active owner, editor or \
         runner"
    )]
    OwnerCannotRun,
    /// Only a deployed workflow can have a form link.
    #[error("the workflow is not deployed: deploy or activate it first")]
    NotDeployed,
    #[error("a form link can't close in the past: give a later time")]
    ClosesInThePast,
    /// The deploy was given no definition, and the workflow has none to deploy again.
    #[error("the workflow has no definition: give one with --definition")]
    NoDefinition,
    /// The scheme, secret or networks of a webhook's sender are invalid.
    #[error("{0}")]
    InvalidWebhook(String),
    /// The broker's names and Letterbox's own are not for subscribers.
    #[error(
        "a queue's name has 1 to 200 letters, digits and _ . : -, and begins with neither amq. nor \
         letterbox."
    )]
    InvalidQueue,
    /// A queue has one subscription.
    #[error("the queue or URL has a subscription already, to other signals: unsubscribe it first")]
    QueueTaken,
    #[error("a subscription is to a queue or to a URL; in_flight is from 1 to 32, for a URL only")]
    InvalidTarget,
    /// Each is tried with each body.
    #[error("a subscription has at most 8 conditions")]
    TooManyConditions,
    /// Holds what still gets its signals: a queue would be left with what is in it, and its login.
    #[error("its signals are subscribed: end it first by 'signal unsubscribe': {}", .0.join(", "))]
    Subscribed(Vec<String>),
    /// The queue exists, and may hold what is not this workspace's.
    #[error(
        "there is a queue {0:?} already: delete it, or give --existing if whoever reads it may \
         read what it holds"
    )]
    QueueExists(String),
    /// Holds the kind and the name.
    #[error("there is more than one {0} {1:?}: give each a name of its own")]
    SameName(&'static str, String),
    #[error("something was changed meanwhile: look at the plan again")]
    PlanConflict,
    /// Holds why.
    #[error(
        "the search is off, but not all of what runs were found by is deleted ({0}): run \
         'letterbox workspace settings WORKSPACE --is-searchable off'"
    )]
    SearchNotDeleted(String),
    #[error("of which workspace? Begin with a document of the kind workspace, or give --workspace")]
    NoWorkspaceNamed,
    /// Holds what two documents are about.
    #[error("two documents are about the {0}")]
    TwoDocuments(String),
    /// Holds the name of the workflow.
    #[error("the workflow {0:?}: a document can't delete it, --prune can")]
    DeletedDocument(String),
    /// Holds why.
    #[error("the secret of a webhook: {0}")]
    NoSecret(String),
    /// Holds the name of the webhook and the member.
    #[error(
        "the webhook {0:?}: its {1} can't be another: make one of another name, or replace it by \
         'webhook replace'"
    )]
    FixedMember(String, &'static str),
    /// Holds the broker's words.
    #[error(
        "there is such a queue with other arguments ({0}): give another name, and limit its length \
         by a policy of the broker"
    )]
    OtherQueue(String),
    /// Holds every mistake.
    #[error("the definition can't be deployed:{}", listed(.0))]
    InvalidDefinition(Vec<Problem>),
    /// The input of a run is needed until it is over.
    #[error("the run is not over: wait for its end, or cancel it first")]
    RunNotOver,
    #[error("the workflow is {from} and can't become {to} this way")]
    ImpossibleMove {
        from: WorkflowState,
        to: WorkflowState,
    },
    #[error("an account's name must have at most 100 characters, none of them control characters")]
    InvalidAccountName,
    #[error(transparent)]
    InvalidAccount(#[from] AccountError),
    #[error("the credential must not be empty or contain control characters")]
    InvalidCredential,
    #[error("a token or a password goes into Authorization: give another header its whole value")]
    SchemeInOtherHeader,
    #[error(
        "a mail server wants a name and a password (--basic-file), a token or no credential: it \
         has no header"
    )]
    MailCredential,
    #[error(
        "the client's certificate and its key must be in PEM, belong together, and the key must \
         not be encrypted; an account that gets its tokens by OAuth 2.0 can't have them"
    )]
    InvalidCertificate,
    /// Another credential would take the place of the certificate, too.
    #[error(
        "the account shows a client certificate: give that again, too, on the command line \
         (--client-certificate-file, --client-key-file)"
    )]
    NoCertificate,
    #[error("the user has an account of this name: disconnect it first")]
    DuplicateAccount,
    /// Holds the mistake and its place.
    #[error("the policy is invalid: {0}")]
    InvalidPolicy(String),
    /// Somebody else has set the next version: this one was not stored.
    #[error("another policy was set meanwhile: look at it, then set yours again")]
    PolicyConflict,
    #[error("only an active owner or editor of the workspace may answer")]
    MayNotAnswer,
    #[error("the approval has expired")]
    ApprovalExpired,
    #[error("the approval is {0} already")]
    AlreadyAnswered(ApprovalState),
    #[error("a second person must answer: the run acts as this user")]
    NeedsAnother,
    #[error(
        "only a person who has proven who they are may answer, by the policy: sign in to the desk"
    )]
    NeedsProof,
    /// Neither the role of this person nor their program may do this. Holds the database's words.
    #[error("you may not do this here ({0})")]
    NotAllowed(String),
    #[error(
        "this login is not an operator's: GRANT letterbox_operator to it, or use one that has it; \
         people sign in to the desk"
    )]
    NoOperator,
    #[error(
        "an issuer is the URL by which it calls itself, of at most 300 characters: https://, or \
         http:// on this machine, since whoever is on the way could sign in as anybody"
    )]
    InvalidIssuer,
    /// The reason of an order is kept in the audit log, for ever.
    #[error("a reason has at most {} characters: shorten it", crate::MAX_REASON)]
    LongReason,
    #[error("the run is over already")]
    RunOver,
    #[error("only a run that failed, was denied or was cancelled can be retried")]
    NotRetryable,
    #[error("the run does not wait for an attempt")]
    NotRetrying,
    #[error("the run can't be retried: its input was forgotten")]
    InputForgotten,
    #[error("no {0} is running, to whom it could be sealed: try again when one is")]
    NoRecipient(Program),
    #[error("{table}.{column} of {id}: {problem}")]
    SealedValue {
        table: &'static str,
        column: &'static str,
        /// The id of its row within the workspace.
        id: String,
        problem: String,
    },
}

impl Reason {
    /// Nothing of this kind has this name.
    pub(crate) fn not_named(noun: &'static str, text: &str) -> Self {
        Self::NotNamed {
            noun,
            text: text.to_owned(),
        }
    }
}

fn listed(problems: &[Problem]) -> String {
    let problems = problems.iter();
    problems.map(|problem| format!("\n  {problem}")).collect()
}

/// Turns a broken constraint into a reason; every other error stays a database error.
pub(crate) trait Explain<T> {
    /// `reason` if the error has this code.
    fn explain(self, code: &SqlState, reason: Reason) -> Result<T>;
}

impl<T> Explain<T> for Result<T, DatabaseError> {
    fn explain(self, code: &SqlState, reason: Reason) -> Result<T> {
        self.map_err(|error| match &error.code {
            Some(given) if given == code => reason.into(),
            _ => error.into(),
        })
    }
}
