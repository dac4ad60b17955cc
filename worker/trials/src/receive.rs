//! A small receiver for trying actions. Answers 200 to everything, below `/chat/completions` as a
//! scripted model, and tells what it gets, until it is interrupted.

use std::{convert::Infallible, net::SocketAddr};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Request, Response, StatusCode, body::Incoming, http::request::Parts, server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{TrialError, model};

/// Bytes of a body that are looked at.
const MAX_BODY: usize = 16 << 20;
/// The answer to what needs none.
pub(crate) const OK: Bytes = Bytes::from_static(br#"{"ok":true}"#);

/// Tells each request. Returns only with an error: the address could not be bound.
pub async fn receive(listen: SocketAddr, tell: fn(&Value) -> bool) -> TrialError {
    let answer = move |head: &Parts, body: Option<Bytes>| {
        let body = body.unwrap_or_default();
        let target = head.uri.path_and_query().map(ToString::to_string);
        let key = head.headers.get("idempotency-key");
        tell(&json!({
            "method": head.method.as_str(), "target": target,
            "idempotency_key": key.and_then(|key| key.to_str().ok()),
            "body": String::from_utf8_lossy(&body),
        }));
        match head.uri.path().ends_with("/chat/completions") {
            true => Some(model::answer(&body).into()),
            false => Some(OK),
        }
    };
    match TcpListener::bind(listen).await {
        Ok(listener) => match serve(listener, answer).await {},
        Err(error) => TrialError::Receive(listen, error),
    }
}

/// Answers requests, each with its body, which is missing where it can't be read; with 400 where
/// there is no answer.
pub(crate) async fn serve(
    listener: TcpListener,
    answer: impl Fn(&Parts, Option<Bytes>) -> Option<Bytes> + Clone + Send + Sync + 'static,
) -> Infallible {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let answer = answer.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| respond(request, &answer));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // The peer may send something that is not HTTP.
            let _ = connection.await;
        });
    }
}

async fn respond(
    request: Request<Incoming>,
    answer: &impl Fn(&Parts, Option<Bytes>) -> Option<Bytes>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY).collect().await;
    let answer = answer(&head, body.ok().map(|body| body.to_bytes()));
    let mut response = Response::new(Full::new(answer.clone().unwrap_or_default()));
    if answer.is_none() {
        *response.status_mut() = StatusCode::BAD_REQUEST;
    }
    Ok(response)
}
