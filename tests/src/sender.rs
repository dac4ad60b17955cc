//! A sender: signs, posts, reads the answer; and raw bytes for what no client would send.

use letterbox_common::{
    sealing::Secret,
    webhook::{SIGNATURE_HEADER, SigningKey, WebhookAddress},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
};

use crate::marks::{assert_unmarked, mark};

/// An HTTP client. It speaks to 127.0.0.1 only, but is built for TLS and wants to know with what.
pub fn http_client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

/// The signature of a body.
pub fn sign(secret: &str, body: &[u8]) -> String {
    let signature = SigningKey::new(&Secret::new(secret.as_bytes().to_vec())).sign(body);
    mark(&signature.to_string());
    signature.to_string()
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub body: String,
    /// Without the date and the id of the request, in which all answers differ.
    pub headers: Vec<(String, String)>,
    pub request_id: RequestId,
}

/// The id of a request; all are alike where answers are compared.
#[derive(Debug, Clone)]
pub struct RequestId(pub String);

impl PartialEq for RequestId {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for RequestId {}

impl Answer {
    /// What comes back to a request.
    pub async fn to(request: reqwest::RequestBuilder) -> Self {
        Self::of(request.send().await.unwrap()).await
    }

    pub async fn of(response: reqwest::Response) -> Self {
        let headers = response
            .headers()
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
        let headers: Vec<(String, String)> = headers.collect();
        let id = headers.iter().find(|(name, _)| name == "x-request-id");
        let request_id = id.expect("every answer has an id").1.clone();
        let headers = headers.into_iter();
        let headers = headers.filter(|(name, _)| name != "date" && name != "x-request-id");
        let answer = Self {
            status: response.status().as_u16(),
            headers: headers.collect(),
            request_id: RequestId(request_id),
            body: response.text().await.unwrap(),
        };
        assert_unmarked("an answer", &format!("{answer:?}"));
        answer
    }

    pub fn is_first(&self) -> bool {
        self.status == 202 && self.body == r#"{"received":true}"#
    }

    pub fn is_duplicate(&self) -> bool {
        self.status == 202 && self.body == r#"{"received":true,"deduplicated":true}"#
    }

    pub fn code(&self) -> String {
        let body: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
        assert!(
            body["error"]["message"].is_string(),
            "no envelope: {self:?}"
        );
        body["error"]["code"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Asserts that a submission is accepted.
    #[track_caller]
    pub fn assert_accepted(&self) {
        let accepted = r#"{"status":"accepted"}"#;
        assert_eq!((self.status, &*self.body), (200, accepted), "{self:?}");
    }

    /// Asserts that it refuses, with this status and code.
    #[track_caller]
    pub fn assert_refused(&self, status: u16, code: &str) {
        assert!(self.is_refused(status, code), "{self:?}");
    }

    /// Whether it refuses, with this status and code.
    pub fn is_refused(&self, status: u16, code: &str) -> bool {
        self.status == status && self.code() == code
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(given, _)| given == name)
            .map(|(_, value)| value.as_str())
    }
}

/// A webhook as its sender knows it.
#[derive(Clone)]
pub struct Webhook {
    pub address: WebhookAddress,
    pub secret: String,
    pub url: String,
    pub http: reqwest::Client,
}

impl Webhook {
    pub fn new(gateway: &str, address: WebhookAddress, secret: String) -> Self {
        mark(&secret);
        Self {
            url: format!("{gateway}/webhooks/incoming/{address}"),
            address,
            secret,
            http: http_client(),
        }
    }

    /// The same webhook behind another gateway.
    pub fn at(&self, gateway: &crate::Process) -> Self {
        self.behind(&gateway.public_url())
    }

    /// The same webhook at another address.
    pub fn behind(&self, gateway: &str) -> Self {
        Self::new(gateway, self.address, self.secret.clone())
    }

    /// A signed request that has not been sent.
    pub fn request(&self, body: impl Into<Vec<u8>>) -> reqwest::RequestBuilder {
        let body = body.into();
        let signature = sign(&self.secret, &body);
        let request = self
            .http
            .post(&self.url)
            .header("content-type", "application/json");
        request.header(SIGNATURE_HEADER, signature).body(body)
    }

    /// Signs and posts.
    pub async fn send(&self, body: impl Into<Vec<u8>>) -> Answer {
        Answer::to(self.request(body)).await
    }

    /// Begins to sign and post.
    pub fn begin(&self, body: impl Into<Vec<u8>>) -> JoinHandle<Answer> {
        let (webhook, body) = (self.clone(), body.into());
        tokio::spawn(async move { webhook.send(body).await })
    }

    /// Sends until it is accepted; returns that answer.
    pub async fn send_until_accepted(&self, body: &str) -> Answer {
        let mut answer = self.send(body).await;
        crate::eventually("accepted", async || {
            if answer.status == 503 {
                answer = self.send(body).await;
            }
            answer.status != 503
        })
        .await;
        answer
    }
}

/// Posts a body of JSON with these headers.
pub async fn post_with(
    url: &str,
    headers: &[(impl AsRef<str>, impl AsRef<str>)],
    body: impl Into<reqwest::Body>,
) -> Answer {
    let request = http_client().post(url);
    let mut request = request.header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(name.as_ref(), value.as_ref());
    }
    Answer::to(request.body(body)).await
}

/// Sends bytes as they are, and reads until the other side closes or falls silent.
pub async fn raw(address: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The other side may close while it is written to.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    let silence = std::time::Duration::from_millis(1500);
    while let Ok(Ok(read @ 1..)) = tokio::time::timeout(silence, stream.read(&mut buffer)).await {
        answer.extend_from_slice(&buffer[..read]);
    }
    String::from_utf8_lossy(&answer).into_owned()
}
