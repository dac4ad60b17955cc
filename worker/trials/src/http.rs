//! The HTTP client of commands.

use std::time::Duration;

use crate::TrialError;

impl From<reqwest::Error> for TrialError {
    fn from(error: reqwest::Error) -> Self {
        Self::Http(describe(&error))
    }
}

/// The HTTP client. Redirects are not followed: they are an answer, too.
pub fn client(timeout: Duration) -> reqwest::Result<reqwest::Client> {
    // Fails where it is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .timeout(timeout)
        .redirect(reqwest::redirect::Policy::none())
        .build()
}

/// The chain of causes: 'error sending request' alone does not help.
pub fn describe(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}
