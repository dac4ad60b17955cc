//! `letterbox receive`: a small receiver for trying actions. Answers 200 to everything, below
//! `/chat/completions` as a scripted model, and prints what it gets, one JSON object a line, until
//! it is interrupted.

use std::{convert::Infallible, net::SocketAddr};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{TrialError, model};

const MAX_BODY_BYTES: usize = 1 << 20;

/// Tells each request. Returns only with an error: the address could not be bound.
pub async fn receive(listen: SocketAddr, tell: fn(&Value) -> bool) -> TrialError {
    let listener = match TcpListener::bind(listen).await {
        Ok(listener) => listener,
        Err(error) => return TrialError::Receive(listen, error),
    };
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        tokio::spawn(async move {
            // The peer may send something that is not HTTP.
            let _ = http1::Builder::new()
                .serve_connection(
                    TokioIo::new(stream),
                    service_fn(|request| respond(request, tell)),
                )
                .await;
        });
    }
}

async fn respond(
    request: Request<Incoming>,
    tell: fn(&Value) -> bool,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY_BYTES)
        .collect()
        .await
        .map(|body| body.to_bytes())
        .unwrap_or_default();
    let target = head.uri.path_and_query().map(ToString::to_string);
    let key = head
        .headers
        .get("idempotency-key")
        .and_then(|key| key.to_str().ok());
    tell(&json!({
        "method": head.method.as_str(), "target": target, "idempotency_key": key,
            "body": String::from_utf8_lossy(&body),
    }));
    let answer = if head.uri.path().ends_with("/chat/completions") {
        model::answer(&body).into()
    } else {
        Bytes::from_static(br#"{"ok":true}"#)
    };
    Ok(Response::new(Full::new(answer)))
}
