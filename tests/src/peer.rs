//! A peer that runs call: an HTTP server that answers by a script and remembers what it was asked.

use std::{
    io,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpListener, sync::Semaphore};

use crate::eventually;

/// A request as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    pub method: String,
    /// Path and query, as they were sent.
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Received {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(given, _)| given == name)
            .map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// What the script says.
#[derive(Debug, Clone)]
pub enum Reply {
    Status(u16),
    With(u16, Vec<(&'static str, String)>, String),
    /// No answer at all.
    Silence,
    /// The connection is closed instead of an answer.
    HangUp,
    /// This status, when the gate is opened.
    When(Arc<Semaphore>, u16),
    /// The same, with a body.
    WhenWith(Arc<Semaphore>, u16, String),
}

impl Reply {
    /// What a chat completions endpoint answers.
    pub fn chat(content: &str) -> Self {
        let body = serde_json::json!({"choices": [{"message": {"role": "assistant",
            "content": content}}]});
        Self::With(200, Vec::new(), body.to_string())
    }
}

/// The peer. Answers as long as it lives.
pub struct Peer {
    pub url: String,
    received: Arc<Mutex<Vec<Received>>>,
    serving: tokio::task::JoinHandle<()>,
}

impl Peer {
    /// A peer that answers by `script`, which is told the request and how many came before it.
    pub async fn start(script: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (received, script) = (Arc::<Mutex<Vec<Received>>>::default(), Arc::new(script));
        let kept = received.clone();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (kept, script) = (kept.clone(), script.clone());
                tokio::spawn(async move {
                    let service =
                        service_fn(move |request| answer(request, kept.clone(), script.clone()));
                    let _ = http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self {
            url,
            received,
            serving,
        }
    }

    /// A peer whose answers, all with this status, come when the gate is opened.
    pub async fn gated(status: u16) -> (Self, Arc<Semaphore>) {
        let gate = Arc::new(Semaphore::new(0));
        let held = gate.clone();
        let peer = Self::start(move |_, _| Reply::When(held.clone(), status));
        (peer.await, gate)
    }

    /// A peer whose first answer, with this status, comes when the gate is opened; others are 200.
    pub async fn gated_at_first(status: u16) -> (Self, Arc<Semaphore>) {
        let gate = Arc::new(Semaphore::new(0));
        let held = gate.clone();
        let peer = Self::start(move |_, before| match before {
            0 => Reply::When(held.clone(), status),
            _ => Reply::Status(200),
        });
        (peer.await, gate)
    }

    /// What has arrived so far.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// The paths that were asked for so far.
    pub fn targets(&self) -> Vec<String> {
        self.received().into_iter().map(|one| one.target).collect()
    }

    /// The idempotency keys of what has arrived so far.
    pub fn keys(&self) -> Vec<Option<String>> {
        let received = self.received();
        let keys = received.iter().map(|one| one.header("idempotency-key"));
        keys.map(|key| key.map(str::to_owned)).collect()
    }

    /// Waits until so many requests have arrived.
    pub async fn await_received(&self, expected: usize) -> Vec<Received> {
        eventually(&format!("{expected} requests"), async || {
            self.received().len() >= expected
        })
        .await;
        let received = self.received();
        assert_eq!(received.len(), expected, "{received:#?}");
        received
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(
    request: Request<Incoming>,
    kept: Arc<Mutex<Vec<Received>>>,
    script: Arc<impl Fn(&Received, usize) -> Reply>,
) -> io::Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    // One that was cut off is no request, and gets no answer.
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let received = Received {
        method: head.method.to_string(),
        target: head
            .uri
            .path_and_query()
            .map(ToString::to_string)
            .unwrap_or_default(),
        headers: head
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), text(value.as_bytes())))
            .collect(),
        body: text(&body),
    };
    let before = {
        let mut kept = kept.lock().unwrap();
        kept.push(received.clone());
        kept.len() - 1
    };
    let (status, headers, body) = match script(&received, before) {
        Reply::Status(status) => (status, Vec::new(), String::new()),
        Reply::With(status, headers, body) => (status, headers, body),
        Reply::Silence => std::future::pending().await,
        Reply::HangUp => return Err(io::Error::other("hung up")),
        Reply::When(gate, status) => {
            drop(gate.acquire().await);
            (status, Vec::new(), String::new())
        }
        Reply::WhenWith(gate, status, body) => {
            drop(gate.acquire().await);
            (status, Vec::new(), body)
        }
    };
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    Ok(response.body(Full::new(body.into())).unwrap())
}
