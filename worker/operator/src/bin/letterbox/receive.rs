//! `letterbox receive`: a small receiver for trying actions. Answers 200 to everything, below
//! `/chat/completions` as a scripted model, and prints what it gets, one JSON object a line, until
//! it is interrupted.

use std::{convert::Infallible, net::SocketAddr};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;

use crate::{model, output};

const MAX_BODY_BYTES: usize = 1 << 20;

/// Returns only with an error: the address could not be bound.
pub(crate) async fn receive(listen: SocketAddr) -> std::io::Error {
    let listener = match TcpListener::bind(listen).await {
        Ok(listener) => listener,
        Err(error) => return error,
    };
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        tokio::spawn(async move {
            // The peer may send something that is not HTTP.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service_fn(respond))
                .await;
        });
    }
}

async fn respond(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
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
    output::line(&json!({
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
