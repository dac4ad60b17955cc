//! Why a command failed: in words for people; by a kind and an exit code for programs.

use std::{path::PathBuf, process::ExitCode};

use letterbox_broker::BrokerError;
use letterbox_common::{process::settings::SettingError, text_enum};
use letterbox_database::Fault;
use letterbox_operator::{OperatorError, Reason, escape};
use letterbox_trials::TrialError;
use serde_json::{Value, json};

use crate::{dashboard::DashboardError, file::FileError};

/// The outcome of what a command does.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error(transparent)]
    Operator(#[from] OperatorError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{file}: {why}", file = .0.display(), why = .1)]
    Documents(PathBuf, String),
    // What an answer says is a part of a line.
    #[error("{}", escape::line(&.0.to_string()))]
    Trial(#[from] TrialError),
    #[error(transparent)]
    Dashboard(#[from] DashboardError),
    #[error("there is this subscription already, without that login: unsubscribe it first")]
    OtherLogin,
    #[error(
        "which workspace? Name it by --workspace or LETTERBOX_WORKSPACE, or choose one by \
         'letterbox use'"
    )]
    NoWorkspace,
    #[error(
        "which workspace? Name it by --workspace or LETTERBOX_WORKSPACE: for an order that gives \
         rights, what 'letterbox use' has chosen does not count"
    )]
    NoWorkspaceToGrant,
    #[error("the workspace that 'letterbox use' has chosen is not in this database: choose again")]
    ChosenElsewhere,
    #[error("neither XDG_CONFIG_HOME nor HOME says where to keep the choice")]
    NoHome,
    #[error("name a run, or give --workspace")]
    NoSubject,
    #[error("--closes-at and --max-answers require --new-link")]
    NoNewLink,
    #[error("give --by USER: a person must answer for this order")]
    NoOrderer,
    #[error("not a Letterbox admin address: give that of a gateway or a worker")]
    NoAddress,
    #[error("not ready: {0}")]
    NotReady(String),
    #[error("nothing was done")]
    Declined,
    /// Holds what would have been asked at a terminal.
    #[error("nothing was done: {0}\nWithout a terminal, give --yes to do it")]
    NotConfirmed(String),
    #[error("standard output: {0}")]
    Output(std::io::Error),
    #[error("CSV: {0}")]
    Csv(#[from] csv::Error),
    #[error("the schema is at version {version}, but nothing is declared: the broker: {error}")]
    Undeclared { version: i32, error: BrokerError },
}

text_enum! {
    /// Failures by what can be done about them.
    pub(crate) enum FailureKind {
        /// The order is impossible as things are
        Refused = "refused",
        /// The command itself makes no sense, or a setting is missing
        Misused = "misused",
        /// A server is away or busy: the same command may succeed later
        TryAgain = "try_again",
    }
}

impl FailureKind {
    /// The kind of a server's failure.
    fn of_server(is_transient: bool) -> Self {
        if is_transient {
            Self::TryAgain
        } else {
            Self::Refused
        }
    }

    pub(crate) fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Refused => 1,
            Self::Misused => 2,
            // EX_TEMPFAIL of sysexits.h.
            Self::TryAgain => 75,
        })
    }

    /// A failure of this kind as JSON for programs.
    pub(crate) fn told(self, message: &str) -> Value {
        json!({"error": {"kind": self.as_str(), "message": message}})
    }
}

impl Failure {
    /// The failure as JSON for programs: the mistakes of a definition one by one.
    pub(crate) fn told(&self) -> Value {
        let mut told = self.kind().told(&self.to_string());
        if let Self::Operator(OperatorError::Refused(Reason::InvalidDefinition(problems))) = self {
            told["error"]["problems"] = json!(problems);
        }
        told
    }

    pub(crate) fn kind(&self) -> FailureKind {
        match self {
            Self::Setting(_)
            | Self::NoOrderer
            | Self::NoSubject
            | Self::NoWorkspace
            | Self::NoWorkspaceToGrant
            | Self::NoHome
            | Self::ChosenElsewhere
            | Self::NoNewLink
            | Self::NotConfirmed(_)
            | Self::Operator(OperatorError::Setting(_))
            | Self::Dashboard(DashboardError::Setting(_))
            | Self::Trial(TrialError::Setting(_)) => FailureKind::Misused,
            Self::Undeclared { error, .. } | Self::Operator(OperatorError::Broker(error)) => {
                FailureKind::of_server(!error.is_refusal())
            }
            Self::Operator(OperatorError::Database(error)) => {
                FailureKind::of_server(error.fault == Fault::Transient && !error.is_refusal())
            }
            Self::Trial(error) => FailureKind::of_server(error.is_transient()),
            Self::NotReady(_) | Self::Dashboard(DashboardError::Http(_)) => FailureKind::TryAgain,
            _ => FailureKind::Refused,
        }
    }
}
