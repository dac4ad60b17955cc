//! Routing by path and method, and the steps that all routes share: the origin check, preflights,
//! common headers, metrics. Paths are compared byte by byte: nothing is decoded, and no slash is
//! added or ignored.

use std::{
    cell::RefCell,
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use hyper::{Method, Request, body::Incoming, http::request::Parts};
use letterbox_common::process::metrics::HistogramUnder;
use letterbox_form_page::AskedFile;

use crate::{
    body, cors,
    error::Refusal,
    handlers::{form_page, form_read, form_submit, incoming_webhook},
    metrics, request_id,
    response::{self, Response},
    state::Gateway,
    strict_head, trace,
};

/// A known path.
#[derive(Clone, Copy)]
enum Route<'a> {
    IncomingWebhook { token: &'a str },
    FormRead,
    FormSubmit,
    FormPage,
    FormPageFile(AskedFile),
}

impl<'a> Route<'a> {
    fn find(path: &'a str) -> Option<Self> {
        let mut fixed = [Self::FormRead, Self::FormSubmit, Self::FormPage].into_iter();
        if let Some(route) = fixed.find(|route| route.path() == path) {
            return Some(route);
        }
        match path.strip_prefix("/webhooks/incoming/") {
            Some(token) => (!token.contains('/')).then_some(Self::IncomingWebhook { token }),
            None => AskedFile::at(path).map(Self::FormPageFile),
        }
    }

    /// The name in metrics and logs, since paths contain ids.
    fn name(self) -> &'static str {
        match self {
            Self::IncomingWebhook { .. } => "incoming_webhook",
            Self::FormRead => "form_read",
            Self::FormSubmit => "form_submit",
            Self::FormPage | Self::FormPageFile(_) => "form_page",
        }
    }

    /// The path as a template, without the sender's parts.
    fn path(self) -> &'static str {
        match self {
            Self::IncomingWebhook { .. } => "/webhooks/incoming/{token}",
            Self::FormRead => "/public/workflow-forms/forms",
            Self::FormSubmit => "/public/workflow-forms/forms/submit",
            Self::FormPage => "/forms",
            Self::FormPageFile(_) => "/forms/{file}",
        }
    }

    fn allows(self, method: &Method) -> bool {
        match self {
            Self::IncomingWebhook { .. } | Self::FormSubmit => method == Method::POST,
            // hyper does not send the body of an answer to HEAD.
            Self::FormRead | Self::FormPage | Self::FormPageFile(_) => {
                method == Method::GET || method == Method::HEAD
            }
        }
    }

    fn allowed_methods(self) -> &'static str {
        if self.allows(&Method::POST) {
            "POST, OPTIONS"
        } else {
            "GET, HEAD, OPTIONS"
        }
    }
}

thread_local! {
    static REQUEST_DURATIONS: RefCell<HashMap<(&'static str, u16), HistogramUnder>> =
        RefCell::default();
}

/// Records the duration of a request. Each thread caches the histograms, because routes and
/// statuses are few.
fn record(route: &'static str, status: u16, took: Duration) {
    REQUEST_DURATIONS.with_borrow_mut(|known| {
        let under = || metrics::REQUEST_DURATION.under([route.to_owned(), status.to_string()]);
        let histogram = known.entry((route, status)).or_insert_with(under);
        histogram.record(took);
    });
}

/// Answers one request; there is always an answer. `peer` is the other end of its connection.
pub(crate) async fn respond(
    gateway: &Gateway,
    peer: IpAddr,
    request: Request<Incoming>,
) -> Response {
    let began = Instant::now();
    let is_trusted = gateway.trusted_request_ids && gateway.proxies.contains(peer);
    // Its parts are moved no more: each move would add to the future of every request.
    let (mut head, body) = request.into_parts();
    let id = request_id::assign(&mut head.headers, is_trusted);
    let path = head.uri.path().to_owned();
    let route = Route::find(&path);
    let name = route.map_or("unknown", Route::name);
    let known = route.map(Route::path);
    let span = known.and_then(|path| trace::begin(&mut head, path));

    let checked = strict_head::check(&head);
    let mut response = match checked.and_then(|()| gateway.origins.check(&head.headers)) {
        Err(refusal) => body::refuse(&head.headers, body, refusal).into(),
        Ok(origin) => {
            let answer = dispatch(gateway, peer, route, &head, body).await;
            let mut response = answer.unwrap_or_else(Response::from);
            if let Some(origin) = origin {
                cors::allow(response.headers_mut(), origin);
            }
            response
        }
    };
    response::add_common_headers(response.headers_mut(), id.clone());

    let status = response.status().as_u16();
    record(name, status, began.elapsed());
    trace::end(span, status);
    let request_id = id.to_str().unwrap_or_default();
    match status {
        400.. => gateway.request_log.refused(began, name, status, request_id),
        _ => tracing::debug!(route = name, status, request_id, "answered"),
    }
    response
}

async fn dispatch(
    gateway: &Gateway,
    peer: IpAddr,
    route: Option<Route<'_>>,
    head: &Parts,
    body: Incoming,
) -> Result<Response, Refusal> {
    let headers = &head.headers;
    let Some(route) = route else {
        return Err(body::refuse(headers, body, Refusal::not_found()));
    };
    if cors::is_preflight(&head.method, headers) {
        let answer = cors::preflight(route.allowed_methods());
        return Ok(body::leave(headers, body, answer));
    }
    if !route.allows(&head.method) {
        if let Route::IncomingWebhook { token } = route
            && let Some(answer) = incoming_webhook::ask(gateway, peer, token, head).await
        {
            return Ok(body::leave(headers, body, answer));
        }
        let refusal = Refusal::method_not_allowed(route.allowed_methods());
        return Err(body::refuse(headers, body, refusal));
    }
    match route {
        Route::IncomingWebhook { token } => {
            incoming_webhook::handle(gateway, peer, token, head, body).await
        }
        Route::FormRead => form_read::handle(gateway, peer, head, body).await,
        Route::FormSubmit => form_submit::handle(gateway, peer, headers, body).await,
        Route::FormPage => Ok(form_page::handle(gateway, peer, head, body).await),
        Route::FormPageFile(file) => {
            let (found, content) = file.answer(headers);
            let response = response::with_headers(found, content);
            Ok(body::leave(headers, body, response))
        }
    }
}
