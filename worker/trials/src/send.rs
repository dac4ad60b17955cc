//! Posts a form or a signed event to an endpoint, for trying it.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use jiff::Timestamp;
use letterbox_common::{
    ids::{DeliveryId, RunId},
    process::secret_setting::SecretSetting,
    sealing::Secret,
    webhook::{Keys, Rules, SecretEncoding, Signed, Tool},
};
use serde_json::{Value, json, value::RawValue};
use url::Url;

use crate::{TrialError, http::client};

const TIMEOUT: Duration = Duration::from_secs(30);

/// The secret that a delivery is signed with.
pub const WEBHOOK_SECRET: SecretSetting = SecretSetting {
    name: "LETTERBOX_WEBHOOK_SECRET",
    about: "The secret of the webhook that 'send webhook' posts to",
};

/// What is sent.
#[derive(Debug, Subcommand)]
pub enum SendCommand {
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
        /// How it is signed.
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
#[derive(Debug, Args)]
pub struct Signing {
    /// A file that holds the webhook's secret [default: LETTERBOX_WEBHOOK_SECRET]
    #[arg(long)]
    pub secret_file: Option<PathBuf>,
    /// The tool as which it is signed, as 'webhook tools' lists them
    #[arg(long, default_value = "letterbox")]
    pub tool: Tool,
    /// A file with the rules of a custom tool, as JSON
    #[arg(long, value_name = "FILE", required_if_eq("tool", "custom"))]
    pub rules: Option<PathBuf>,
}

/// Signs bodies.
pub struct Signer {
    rules: Rules,
    keys: Keys,
}

impl Signer {
    /// Signs by these rules, with a webhook's secret.
    pub fn new(rules: Rules, secret: Vec<u8>) -> Result<Self, TrialError> {
        let keys = rules.keys(&Secret::new(secret));
        let keys = keys.map_err(TrialError::Secret)?;
        Ok(Self { rules, keys })
    }

    /// Signs a body for this URL now, under an id where the tool has one.
    pub(crate) fn sign(&self, url: &Url, body: &[u8], id: &str) -> Result<Signed, TrialError> {
        let now = u64::try_from(Timestamp::now().as_second()).unwrap_or_default();
        let signed = self.rules.sign(&self.keys, url.as_str(), body, now, id);
        signed.ok_or(TrialError::NoPrivateKey)
    }
}

/// Signs a body under a new id.
fn signed_anew(signer: &Signer, url: &Url, body: &[u8]) -> Result<Signed, TrialError> {
    signer.sign(url, body, &format!("msg_{}", DeliveryId::generate()))
}

/// Signs a body and posts it to a webhook.
pub async fn send_webhook(url: Url, signer: &Signer, body: Vec<u8>) -> Result<Value, TrialError> {
    let signed = signed_anew(signer, &url, &body)?;
    let headers = signed.headers.iter();
    let headers: Vec<_> = headers.map(|(name, value)| (&**name, &**value)).collect();
    post(url, &headers, body).await
}

/// The content that a signature is of, and where the signature is.
pub fn explain(url: &Url, tool: Tool, signer: &Signer, body: &[u8]) -> Result<Value, TrialError> {
    let signed = signed_anew(signer, url, body)?;
    let mut told = json!({
        "tool": tool,
        "key": match signer.rules.secret {
            SecretEncoding::Text => "the bytes of the secret's text",
            SecretEncoding::Hex => "the bytes that the secret's hexadecimal digits stand for",
            SecretEncoding::Base64 => "the bytes that the base64 after whsec_ stands for",
        },
        "algorithm": signer.rules.algorithm,
        "hashed": String::from_utf8_lossy(&signed.content),
        "hashed_bytes": signed.content.len(),
        "body_bytes": body.len(),
    });
    for (name, value) in &signed.headers {
        told[format!("header {name}")] = value.clone().into();
    }
    Ok(told)
}

/// Submits a payload by a form link, under this key or a new one.
pub async fn send_form(
    link: &Url,
    key: Option<String>,
    payload: String,
) -> Result<Value, TrialError> {
    let token = link
        .query_pairs()
        .find(|(name, _)| name == "token")
        .map(|(_, token)| token.into_owned());
    let base = link.path().strip_suffix("/forms");
    let (Some(token), Some(base)) = (token, base) else {
        return Err(TrialError::NotAFormLink);
    };
    let mut url = link.clone();
    url.set_path(&format!("{base}/public/workflow-forms/forms/submit"));
    url.set_query(None);

    let payload = RawValue::from_string(payload).map_err(TrialError::NotJson)?;
    let key = key.unwrap_or_else(|| RunId::generate().to_string());
    let body = format!(
        r#"{{"token":{},"idempotencyKey":{},"payload":{}}}"#,
        json!(token),
        json!(key),
        payload.get()
    );
    let mut answer = post(url, &[], body.into()).await?;
    answer["idempotency_key"] = key.into();
    Ok(answer)
}

/// Posts JSON; what is not an acceptance is an error.
async fn post(url: Url, headers: &[(&str, &str)], body: Vec<u8>) -> Result<Value, TrialError> {
    let mut request = client(TIMEOUT)?
        .post(url)
        .header("content-type", "application/json")
        .body(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await?;
    let status = response.status().as_u16();
    let answer = response.text().await?;
    if !(200..300).contains(&status) {
        return Err(TrialError::Refused {
            status,
            body: answer,
        });
    }
    let answer = serde_json::from_str::<Value>(&answer).unwrap_or(answer.into());
    Ok(json!({ "status": status, "answer": answer }))
}
