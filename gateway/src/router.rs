//! From a path and a method to a handler, with what all of them share: the origin check, preflights, common headers, metrics.
//!
//! Paths are compared as they are: nothing is decoded, no slash is added or forgiven.

use hyper::{Method, Request, body::Incoming, header::HeaderMap};

use crate::{
    answer::{self, Answer},
    cors,
    error::Refusal,
    handlers::incoming_webhook,
    server::Gateway,
};

/// A known path.
enum Route<'a> {
    IncomingWebhook { token: &'a str },
}

impl<'a> Route<'a> {
    fn find(path: &'a str) -> Option<Self> {
        let token = path.strip_prefix("/webhooks/incoming/")?;
        (!token.contains('/')).then_some(Self::IncomingWebhook { token })
    }

    /// Name in metrics and logs: paths hold ids.
    fn name(&self) -> &'static str {
        match self {
            Self::IncomingWebhook { .. } => "incoming_webhook",
        }
    }

    fn method(&self) -> Method {
        match self {
            Self::IncomingWebhook { .. } => Method::POST,
        }
    }

    fn allow(&self) -> &'static str {
        match self {
            Self::IncomingWebhook { .. } => "POST, OPTIONS",
        }
    }
}

/// Answers one request, always.
pub async fn answer(gateway: &Gateway, request: Request<Incoming>) -> Answer {
    let began = std::time::Instant::now();
    let path = request.uri().path().to_owned();
    let route = Route::find(&path);
    let name = route.as_ref().map_or("unknown", Route::name);

    let mut answer = match gateway.origins.check(request.headers()) {
        Err(refusal) => refusal.into(),
        Ok(origin) => {
            let mut answer = dispatch(gateway, route, request).await.unwrap_or_else(Answer::from);
            if let Some(origin) = origin {
                cors::allow(answer.headers_mut(), origin);
            }
            answer
        }
    };
    answer::add_common_headers(answer.headers_mut());

    let status = answer.status().as_u16();
    let labels = [("route", name.to_owned()), ("status", status.to_string())];
    metrics::histogram!("letterbox_request_duration_seconds", &labels).record(began.elapsed().as_secs_f64());
    tracing::debug!(route = name, status, "answered");
    answer
}

async fn dispatch(gateway: &Gateway, route: Option<Route<'_>>, request: Request<Incoming>) -> Result<Answer, Refusal> {
    let route = route.ok_or_else(Refusal::not_found)?;
    if is_preflight(&request) {
        return Ok(cors::preflight(route.allow()));
    }
    if *request.method() != route.method() {
        return Err(Refusal::method_not_allowed(route.allow()));
    }
    match route {
        Route::IncomingWebhook { token } => incoming_webhook::handle(gateway, token, request).await,
    }
}

fn is_preflight(request: &Request<Incoming>) -> bool {
    let headers: &HeaderMap = request.headers();
    cors::is_preflight(request.method(), headers)
}
