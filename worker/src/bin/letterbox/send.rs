//! `letterbox send …`: signs and posts a file, for trying an endpoint.

use std::{path::PathBuf, time::Duration};

use clap::Subcommand;
use letterbox_common::{
    process::settings::SecretText,
    sealing::Secret,
    webhook::{SIGNATURE_HEADER, SigningKey},
};
use serde_json::json;
use url::Url;

use crate::{Failure, Output};

const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Subcommand)]
pub enum Verb {
    /// Sign a file and post it to a webhook
    Webhook {
        /// The webhook's URL
        #[arg(long)]
        url: Url,
        /// The webhook's secret (better in the environment than on the command line)
        #[arg(long, env = "LETTERBOX_WEBHOOK_SECRET", hide_env_values = true, required_unless_present = "secret_file")]
        secret: Option<SecretText>,
        /// A file that holds the secret
        #[arg(long, conflicts_with = "secret")]
        secret_file: Option<PathBuf>,
        /// The body, byte for byte; - reads standard input
        file: PathBuf,
    },
}

/// Why nothing was sent, or what the answer was.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("{0}: {1}")]
    File(String, std::io::Error),
    #[error("{0}")]
    Http(String),
    #[error("answered {status}: {body}")]
    Refused { status: u16, body: String },
}

pub async fn carry_out(verb: Verb) -> Result<Output, Failure> {
    let Verb::Webhook { url, secret, secret_file, file } = verb;
    let secret = match (secret, secret_file) {
        (_, Some(file)) => read(&file)?.trim_ascii().to_vec(),
        (secret, None) => secret.map(|secret| secret.expose().as_bytes().to_vec()).unwrap_or_default(),
    };
    let body = read(&file)?;
    let signature = SigningKey::new(&Secret::new(secret)).sign(&body).to_string();
    let (status, answer) = post(url, signature, body).await.map_err(|error| SendError::Http(describe(&error)))?;
    if !(200..300).contains(&status) {
        return Err(SendError::Refused { status, body: answer }.into());
    }
    let answer = serde_json::from_str::<serde_json::Value>(&answer).unwrap_or(answer.into());
    Ok(Output::one(&json!({ "status": status, "answer": answer })))
}

fn read(file: &PathBuf) -> Result<Vec<u8>, SendError> {
    let bytes = if file.as_os_str() == "-" {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut std::io::stdin(), &mut bytes).map(|_| bytes)
    } else {
        std::fs::read(file)
    };
    bytes.map_err(|error| SendError::File(file.display().to_string(), error))
}

async fn post(url: Url, signature: String, body: Vec<u8>) -> Result<(u16, String), reqwest::Error> {
    // Installed once in this short-lived process; a second time would be an error, which is as good.
    let _ = rustls::crypto::CryptoProvider::install_default(rustls::crypto::ring::default_provider());
    let client = reqwest::Client::builder().timeout(TIMEOUT).redirect(reqwest::redirect::Policy::none()).build()?;
    let request = client.post(url).header("content-type", "application/json").header(SIGNATURE_HEADER, signature);
    let response = request.body(body).send().await?;
    Ok((response.status().as_u16(), response.text().await?))
}

/// The whole chain of causes: 'error sending request' alone helps nobody.
fn describe(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
