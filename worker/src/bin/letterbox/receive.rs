//! `letterbox receive`: a tiny receiver for trying actions. Answers 200 to everything and prints
//! what it gets, one JSON object a line, until it is interrupted.

use std::{convert::Infallible, net::SocketAddr};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;

use crate::output;

const BODY_LIMIT: usize = 1 << 20;

/// Never returns but with an error: the address is not to be had.
pub async fn receive(listen: SocketAddr) -> std::io::Error {
    let listener = match TcpListener::bind(listen).await {
        Ok(listener) => listener,
        Err(error) => return error,
    };
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        tokio::spawn(async move {
            // A peer that sends no HTTP is its own business.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service_fn(answer))
                .await;
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, BODY_LIMIT)
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
        "method": head.method.as_str(), "target": target, "idempotency_key": key, "body": String::from_utf8_lossy(&body),
    }));
    Ok(Response::new(Full::new(Bytes::from_static(
        br#"{"ok":true}"#,
    ))))
}
