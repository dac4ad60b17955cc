//! `letterbox send …`: posts a file to an endpoint, for trying it.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use jiff::Timestamp;
use letterbox_common::{
    sealing::Secret,
    webhook::{InvalidSecret, Rules, Scheme, SecretEncoding, Signed, SigningKey},
};
use letterbox_operator::{OperatorError, escape, rules_of};
use serde_json::{json, value::RawValue};
use url::Url;

use crate::{Failure, Output, file, settings::WEBHOOK_SECRET};

const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Subcommand)]
pub(crate) enum SendCommand {
    /// Submit a form, as anybody with its link can
    Form {
        /// The form link
        #[arg(long)]
        url: Url,
        /// Identifies this submission: the same key again starts nothing [default: a new one]
        #[arg(long, value_name = "KEY")]
        idempotency_key: Option<String>,
        /// The payload, a JSON object with a value for each field; - reads standard input
        file: PathBuf,
    },
    /// Sign a file and post it to a webhook
    Webhook {
        /// The webhook's URL
        #[arg(long)]
        url: Url,
        #[command(flatten)]
        signing: Signing,
        /// Show the signed content, the key and the headers; send nothing
        #[arg(long)]
        explain: bool,
        /// The body, byte for byte; - reads standard input
        file: PathBuf,
    },
}

/// How a body is signed.
#[derive(Args)]
pub(crate) struct Signing {
    /// A file that holds the webhook's secret [default: LETTERBOX_WEBHOOK_SECRET]
    #[arg(long)]
    secret_file: Option<PathBuf>,
    /// The scheme that signs it
    #[arg(
        long,
        default_value = "letterbox",
        value_name = "letterbox|github|stripe|slack|shopify|standard-webhooks|svix|custom"
    )]
    scheme: Scheme,
    /// A file with the rules of a custom scheme, as JSON
    #[arg(long, value_name = "FILE", required_if_eq("scheme", "custom"))]
    rules: Option<PathBuf>,
}

impl Signing {
    /// Whether a secret was named for it.
    pub(crate) fn has_file(&self) -> bool {
        self.secret_file.is_some()
    }

    /// Reads the secret and the rules.
    pub(crate) fn signer(&self) -> Result<Signer, Failure> {
        let rules = self.rules.as_deref().map(file::read_text).transpose()?;
        let rules = rules_of(self.scheme, rules.as_deref()).map_err(OperatorError::from)?;
        let secret = match &self.secret_file {
            Some(file) => file::read(file)?.trim_ascii().to_vec(),
            None => WEBHOOK_SECRET.require()?.expose().as_bytes().to_vec(),
        };
        let key = rules.key(&Secret::new(secret)).map_err(PostError::Secret)?;
        Ok(Signer { rules, key })
    }
}

/// Signs bodies.
pub(crate) struct Signer {
    pub(crate) rules: Rules,
    key: SigningKey,
}

impl Signer {
    /// Signs a body now, under an id where the scheme has one.
    pub(crate) fn sign(&self, body: &[u8], id: &str) -> Signed {
        let now = u64::try_from(Timestamp::now().as_second()).unwrap_or_default();
        self.rules.sign(&self.key, body, now, id)
    }
}

/// Why nothing was sent, or the response to it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PostError {
    #[error("the payload is not JSON: {0}")]
    NotJson(serde_json::Error),
    #[error("not a form link: give …/forms?token=…")]
    NotAFormLink,
    #[error(transparent)]
    Secret(InvalidSecret),
    #[error("{0}")]
    Http(String),
    #[error("answered {status}: {}", escape::line(.body))]
    Refused { status: u16, body: String },
}

impl From<reqwest::Error> for PostError {
    fn from(error: reqwest::Error) -> Self {
        Self::Http(describe(&error))
    }
}

impl PostError {
    /// Whether the same may be taken later: the service was not reached, or is busy.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Http(_) => true,
            Self::Refused { status, .. } => matches!(status, 408 | 429 | 503),
            Self::NotJson(_) | Self::NotAFormLink | Self::Secret(_) => false,
        }
    }
}

pub(crate) async fn run(verb: SendCommand) -> Result<Output, Failure> {
    match verb {
        SendCommand::Form {
            url,
            idempotency_key,
            file,
        } => send_form(&url, idempotency_key, &file).await,
        SendCommand::Webhook {
            url,
            signing,
            explain,
            file,
        } => {
            let (scheme, signer) = (signing.scheme, signing.signer()?);
            let body = file::read(&file)?;
            let id = format!("msg_{}", letterbox_common::ids::DeliveryId::generate());
            let signed = signer.sign(&body, &id);
            if explain {
                return Ok(explained(scheme, &signer.rules, &signed, &body));
            }
            let headers = signed.headers.iter();
            let headers: Vec<_> = headers.map(|(name, value)| (&**name, &**value)).collect();
            let answer = post(url, &headers, body).await?;
            Ok(Output::one(&answer))
        }
    }
}

/// The signed content, and the place of the signature.
fn explained(scheme: Scheme, rules: &Rules, signed: &Signed, body: &[u8]) -> Output {
    let shown = String::from_utf8_lossy(body);
    let hashed = format!("{}{shown}{}", signed.before, signed.after);
    let mut told = json!({
        "scheme": scheme,
        "key": match rules.secret {
            SecretEncoding::Text => "the bytes of the secret's text",
            SecretEncoding::Hex => "the bytes that the secret's hexadecimal digits stand for",
            SecretEncoding::Base64 => "the bytes that the base64 after whsec_ stands for",
        },
        "hash": "HMAC-SHA256",
        "hashed": hashed,
        "hashed_bytes": signed.before.len() + body.len() + signed.after.len(),
        "body_bytes": body.len(),
    });
    for (name, value) in &signed.headers {
        told[format!("header {name}")] = value.clone().into();
    }
    Output::one(&told)
}

async fn send_form(
    link: &Url,
    key: Option<String>,
    file: &std::path::Path,
) -> Result<Output, Failure> {
    let token = link
        .query_pairs()
        .find(|(name, _)| name == "token")
        .map(|(_, token)| token.into_owned());
    let base = link.path().strip_suffix("/forms");
    let (Some(token), Some(base)) = (token, base) else {
        return Err(PostError::NotAFormLink.into());
    };
    let mut url = link.clone();
    url.set_path(&format!("{base}/public/workflow-forms/forms/submit"));
    url.set_query(None);

    let payload = RawValue::from_string(file::read_text(file)?).map_err(PostError::NotJson)?;
    let key = key.unwrap_or_else(|| letterbox_common::ids::RunId::generate().to_string());
    let body = format!(
        r#"{{"token":{},"idempotencyKey":{},"payload":{}}}"#,
        json!(token),
        json!(key),
        payload.get()
    );
    let mut answer = post(url, &[], body.into()).await?;
    answer["idempotency_key"] = key.into();
    Ok(Output::one(&answer))
}

/// Posts JSON; what is not an acceptance is an error.
async fn post(
    url: Url,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Result<serde_json::Value, PostError> {
    let (status, answer) = exchange(url, headers, body).await?;
    if !(200..300).contains(&status) {
        return Err(PostError::Refused {
            status,
            body: answer,
        });
    }
    let answer = serde_json::from_str::<serde_json::Value>(&answer).unwrap_or(answer.into());
    Ok(json!({ "status": status, "answer": answer }))
}

/// Posts JSON; gives the status and the body of the answer.
pub(crate) async fn exchange(
    url: Url,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Result<(u16, String), PostError> {
    let mut request = client(TIMEOUT)?
        .post(url)
        .header("content-type", "application/json")
        .body(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await?;
    Ok((response.status().as_u16(), response.text().await?))
}

/// The HTTP client. Redirects are not followed: they are an answer, too.
pub(crate) fn client(timeout: Duration) -> reqwest::Result<reqwest::Client> {
    // Fails where it is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .timeout(timeout)
        .redirect(reqwest::redirect::Policy::none())
        .build()
}

/// The chain of causes: 'error sending request' alone does not help.
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}
