//! What the gateway makes of bytes before it asks a server: doors for the fuzz targets in
//! `tests/fuzz`, which need neither a database nor a broker.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::BodyExt;
use hyper::{
    Request, StatusCode,
    body::Incoming,
    header::{CONTENT_TYPE, HeaderMap, HeaderValue},
    http::request::Parts,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use letterbox_common::{
    form::FormToken,
    ids::{ReleaseId, WorkflowId, WorkspaceId},
};
use letterbox_form_page::Documents;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite};
use url::Url;

use crate::{
    admission::{Definition, LiveForm, LiveRelease},
    body, form_page,
    intake::form,
    json,
    listener::{ErrorEnvelopeStream, http},
    request_id,
    response::{self, Response},
    strict_head,
};

/// The text of a body, if it is JSON.
pub fn json(body: &[u8]) -> Option<&str> {
    json::check(body).ok()
}

/// The token, the idempotency key and the payload of a submission.
pub fn submission(body: &[u8]) -> Option<(FormToken, String, &RawValue)> {
    let json = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let posted = form::parse(&HeaderMap::from_iter([json]), body).ok()?;
    Some((posted.token, posted.key, posted.payload))
}

/// The document of a form's page, made of the JSON that a deploy stores.
pub fn document(form: &str, page: Option<&str>) -> Option<String> {
    let live = LiveForm {
        release: LiveRelease {
            workspace: WorkspaceId::generate(),
            workflow: WorkflowId::generate(),
            release: ReleaseId::generate(),
        },
        definition: Definition::new(form.to_owned(), page, None).into(),
    };
    let documents = Documents::new(&Url::parse("https://letterbox.example").ok()?);
    let response = form_page::with_form(&documents, &live, None).ok()?;
    let body = response.into_body().collect().now_or_never()?.ok()?;
    String::from_utf8(body.to_bytes().to_vec()).ok()
}

/// Serves a connection within the limits of the listener. What passes the checks of heads and
/// bodies is given to `take` and answered 200, whatever its path.
pub async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    take: impl Fn(Parts, Bytes) + Copy,
) {
    let service = service_fn(|request: Request<Incoming>| async move {
        let (head, incoming) = request.into_parts();
        let read = match strict_head::check(&head) {
            Ok(()) => body::read(&head.headers, incoming).await,
            Err(refusal) => Err(body::refuse(&head.headers, incoming, refusal)),
        };
        let mut response = match read {
            Ok(body) => {
                take(head, body);
                response::json(StatusCode::OK, "{}")
            }
            Err(refusal) => Response::from(refusal),
        };
        response::add_common_headers(response.headers_mut(), request_id::random());
        Ok::<_, Infallible>(response)
    });
    let stream = TokioIo::new(ErrorEnvelopeStream::new(stream));
    // It ends with an error if what arrives is not HTTP.
    let _ = http().serve_connection(stream, service).await;
}
