//! Posts a form or a signed event to an endpoint, for trying it.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use jiff::Timestamp;
use letterbox_common::{
    ids::{DeliveryId, RunId},
    process::secret_setting::SecretSetting,
    sealing::Secret,
    webhook::{Rules, Scheme, SecretEncoding, Signed, SigningKey},
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
    /// The scheme that signs it
    #[arg(
        long,
        default_value = "letterbox",
        value_name = "letterbox|github|stripe|slack|shopify|standard-webhooks|svix|custom"
    )]
    pub scheme: Scheme,
    /// A file with the rules of a custom scheme, as JSON
    #[arg(long, value_name = "FILE", required_if_eq("scheme", "custom"))]
    pub rules: Option<PathBuf>,
}

/// Signs bodies.
pub struct Signer {
    rules: Rules,
    key: SigningKey,
}

impl Signer {
    /// Signs by these rules, with a webhook's secret.
    pub fn new(rules: Rules, secret: Vec<u8>) -> Result<Self, TrialError> {
        let key = rules
            .key(&Secret::new(secret))
            .map_err(TrialError::Secret)?;
        Ok(Self { rules, key })
    }

    /// Signs a body now, under an id where the scheme has one.
    pub(crate) fn sign(&self, body: &[u8], id: &str) -> Signed {
        let now = u64::try_from(Timestamp::now().as_second()).unwrap_or_default();
        self.rules.sign(&self.key, body, now, id)
    }
}

/// Signs a body under a new id.
fn signed_anew(signer: &Signer, body: &[u8]) -> Signed {
    signer.sign(body, &format!("msg_{}", DeliveryId::generate()))
}

/// Signs a body and posts it to a webhook.
pub async fn send_webhook(url: Url, signer: &Signer, body: Vec<u8>) -> Result<Value, TrialError> {
    let signed = signed_anew(signer, &body);
    let headers = signed.headers.iter();
    let headers: Vec<_> = headers.map(|(name, value)| (&**name, &**value)).collect();
    post(url, &headers, body).await
}

/// The content that a signature is of, and where the signature is.
#[must_use]
pub fn explain(scheme: Scheme, signer: &Signer, body: &[u8]) -> Value {
    let signed = signed_anew(signer, body);
    let shown = String::from_utf8_lossy(body);
    let hashed = format!("{}{shown}{}", signed.before, signed.after);
    let mut told = json!({
        "scheme": scheme,
        "key": match signer.rules.secret {
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
    told
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
