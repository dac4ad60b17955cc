//! What the load generator sends: every kind of request, written into a buffer that is used again,
//! and the answer that each kind shall get.

use std::{
    io::Write,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use letterbox_common::{
    sealing::Secret,
    webhook::{SIGNATURE_HEADER, SigningKey, WebhookAddress},
};
use letterbox_tests::Webhook;
use uuid::Uuid;

use crate::client::Answer;

/// Requests of one kind.
pub trait Requests: Send + Sync {
    /// Writes the next request; `body` is a buffer for its body.
    fn write(&self, request: &mut Vec<u8>, body: &mut Vec<u8>);
    /// Whether an answer is the one that was meant to be measured.
    fn want(&self, answer: Answer) -> bool;
}

const FIRST: &[u8] = br#"{"received":true}"#;
const REPEATED: &[u8] = br#"{"received":true,"deduplicated":true}"#;

/// A number that nothing else in this run has.
pub fn next() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Distinguishes this run from all others.
pub static RUN: LazyLock<String> = LazyLock::new(|| Uuid::new_v4().simple().to_string());

/// Writes an event as tools send them, filled up to `size` bytes; the same for the same number.
fn write_event(body: &mut Vec<u8>, series: &str, number: u64, size: usize) {
    let run = RUN.as_str();
    body.clear();
    let written = write!(
        body,
        concat!(
            r#"{{"type":"proposal.created","entity":"Example GmbH","sourceTool":"bench","#,
            r#""amount":{{"value":1250.5,"currency":"EUR"}},"eventId":"{run}-{series}{number}""#,
        ),
        run = run,
        series = series,
        number = number,
    );
    written.expect("memory takes it");
    const NOTE: &[u8] = br#","note":""#;
    if let Some(filling) = size.checked_sub(body.len() + NOTE.len() + 2) {
        body.extend_from_slice(NOTE);
        body.resize(body.len() + filling, b'x');
        body.push(b'"');
    }
    body.push(b'}');
}

/// An event unlike every other.
pub fn event() -> Bytes {
    let mut body = Vec::new();
    write_event(&mut body, "", next(), 0);
    body.into()
}

/// The head of a POST of JSON, up to what differs from one request to the next.
fn post(path: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n")
}

fn webhook_path(address: WebhookAddress) -> String {
    format!("/webhooks/incoming/{address}")
}

fn finish(request: &mut Vec<u8>, body: &[u8]) {
    let _ = write!(request, "content-length: {}\r\n\r\n", body.len());
    request.extend_from_slice(body);
}

/// Signed events, each unlike every other.
pub struct Signed {
    head: String,
    key: SigningKey,
    size: usize,
}

impl Signed {
    /// Bodies have `size` bytes, or as many as an event needs.
    pub fn new(webhook: &Webhook, size: usize) -> Self {
        Self {
            head: post(&webhook_path(webhook.address)),
            key: SigningKey::new(&Secret::new(webhook.secret.clone().into_bytes())),
            size,
        }
    }

    fn sign(&self, request: &mut Vec<u8>, body: &[u8]) {
        request.extend_from_slice(self.head.as_bytes());
        let _ = write!(request, "{SIGNATURE_HEADER}: {}\r\n", self.key.sign(body));
        finish(request, body);
    }
}

impl Requests for Signed {
    fn write(&self, request: &mut Vec<u8>, body: &mut Vec<u8>) {
        write_event(body, "", next(), self.size);
        self.sign(request, body);
    }
    fn want(&self, answer: Answer) -> bool {
        answer.status == 202 && answer.body == FIRST
    }
}

/// Signed events of which there are only so many: after the first round all are repeats.
pub struct Repeated {
    signed: Signed,
    distinct: u64,
    next: AtomicU64,
    answer: &'static [u8],
}

impl Repeated {
    /// The first time.
    pub fn first(webhook: &Webhook, distinct: u64) -> Self {
        Self {
            signed: Signed::new(webhook, 0),
            distinct,
            next: AtomicU64::new(0),
            answer: FIRST,
        }
    }

    /// Every other time.
    pub fn again(webhook: &Webhook, distinct: u64) -> Self {
        Self {
            answer: REPEATED,
            ..Self::first(webhook, distinct)
        }
    }
}

/// The body that is repeated under this number.
pub fn repeated_event(number: u64) -> Vec<u8> {
    let mut body = Vec::new();
    write_event(&mut body, "repeated-", number, 0);
    body
}

impl Requests for Repeated {
    fn write(&self, request: &mut Vec<u8>, body: &mut Vec<u8>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed) % self.distinct;
        write_event(body, "repeated-", number, 0);
        self.signed.sign(request, body);
    }
    fn want(&self, answer: Answer) -> bool {
        answer.status == 202 && answer.body == self.answer
    }
}

/// Events with a signature that is not theirs.
pub struct Forged {
    head: Option<String>,
    signature: String,
}

impl Forged {
    fn with_head(head: Option<String>) -> Self {
        Self {
            head,
            signature: "0123456789abcdef".repeat(4),
        }
    }

    /// For a webhook that exists.
    pub fn for_webhook(webhook: &Webhook) -> Self {
        Self::with_head(Some(post(&webhook_path(webhook.address))))
    }

    /// For webhooks that do not exist, each another one.
    pub fn for_nobody() -> Self {
        Self::with_head(None)
    }
}

impl Requests for Forged {
    fn write(&self, request: &mut Vec<u8>, body: &mut Vec<u8>) {
        match &self.head {
            Some(head) => request.extend_from_slice(head.as_bytes()),
            None => {
                let path = webhook_path(WebhookAddress::generate());
                request.extend_from_slice(post(&path).as_bytes());
            }
        }
        let _ = write!(request, "{SIGNATURE_HEADER}: {}\r\n", self.signature);
        write_event(body, "", next(), 0);
        finish(request, body);
    }
    fn want(&self, answer: Answer) -> bool {
        answer.status == 401
    }
}
