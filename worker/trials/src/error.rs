//! Why a trial could show nothing.

use std::{io, net::SocketAddr, path::PathBuf};

use letterbox_broker::BrokerError;
use letterbox_common::{process::settings::SettingError, webhook::InvalidKey};

/// Why nothing could be sent or received, or the answer to what was sent.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// A setting is missing or wrong.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The broker can't be asked.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// The file in which things come out can't be read.
    #[error("{file}: {why}", file = .0.display(), why = .1)]
    File(PathBuf, io::Error),
    /// The address can't be listened on.
    #[error("{0}: {1}")]
    Receive(SocketAddr, io::Error),
    /// The queue in which things come out is not there.
    #[error("there is no queue {0}")]
    NoQueue(String),
    /// The payload of a form.
    #[error("the payload is not JSON: {0}")]
    NotJson(serde_json::Error),
    /// The address of a form.
    #[error("not a form link: give …/forms?token=…")]
    NotAFormLink,
    /// The secret does not fit the tool.
    #[error(transparent)]
    Secret(InvalidKey),
    /// Only the tool can sign as it does.
    #[error("this tool signs with a private key, which only it has")]
    NoPrivateKey,
    /// No answer came.
    #[error("{0}")]
    Http(String),
    /// The answer, which may hold anything.
    #[error("answered {status}: {body}")]
    Refused {
        /// Its status.
        status: u16,
        /// Its body.
        body: String,
    },
}

impl TrialError {
    /// Whether the same may succeed later: the service was not reached, or is busy.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Http(_) => true,
            Self::Refused { status, .. } => matches!(status, 408 | 429 | 503),
            Self::Broker(error) => !error.is_refusal(),
            _ => false,
        }
    }
}
