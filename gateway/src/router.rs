//! From a path and a method to a handler, with what all of them share: the origin check,
//! preflights, common headers, metrics.
//!
//! Paths are compared as they are: nothing is decoded, no slash is added or forgiven.

use std::net::IpAddr;

use hyper::{Method, Request, body::Incoming};

use crate::{
    answer::{self, Answer},
    body, cors,
    error::Refusal,
    form_page::FormPage,
    handlers::{form_read, form_submit, incoming_webhook},
    server::Gateway,
};

/// A known path.
#[derive(Clone, Copy)]
enum Route<'a> {
    IncomingWebhook { token: &'a str },
    FormRead,
    FormSubmit,
    FormPage,
    FormStyle,
    FormScript,
}

impl<'a> Route<'a> {
    fn find(path: &'a str) -> Option<Self> {
        match path {
            "/public/workflow-forms/forms" => Some(Self::FormRead),
            "/public/workflow-forms/forms/submit" => Some(Self::FormSubmit),
            "/forms" => Some(Self::FormPage),
            "/forms/form.css" => Some(Self::FormStyle),
            "/forms/form.js" => Some(Self::FormScript),
            _ => {
                let token = path.strip_prefix("/webhooks/incoming/")?;
                (!token.contains('/')).then_some(Self::IncomingWebhook { token })
            }
        }
    }

    /// Name in metrics and logs: paths hold ids.
    fn name(self) -> &'static str {
        match self {
            Self::IncomingWebhook { .. } => "incoming_webhook",
            Self::FormRead => "form_read",
            Self::FormSubmit => "form_submit",
            Self::FormPage | Self::FormStyle | Self::FormScript => "form_page",
        }
    }

    fn takes(self, method: &Method) -> bool {
        match self {
            Self::IncomingWebhook { .. } | Self::FormSubmit => method == Method::POST,
            // hyper keeps the body of an answer to HEAD to itself.
            Self::FormRead | Self::FormPage | Self::FormStyle | Self::FormScript => {
                method == Method::GET || method == Method::HEAD
            }
        }
    }

    fn allow(self) -> &'static str {
        if self.takes(&Method::POST) {
            "POST, OPTIONS"
        } else {
            "GET, HEAD, OPTIONS"
        }
    }
}

/// Answers one request, always. `peer` is the other end of its connection.
pub async fn answer(gateway: &Gateway, peer: IpAddr, request: Request<Incoming>) -> Answer {
    let began = std::time::Instant::now();
    let path = request.uri().path().to_owned();
    let route = Route::find(&path);
    let name = route.map_or("unknown", Route::name);

    let mut answer = match gateway.origins.check(request.headers()) {
        Err(refusal) => refuse(request, refusal).into(),
        Ok(origin) => {
            let mut answer = dispatch(gateway, peer, route, request)
                .await
                .unwrap_or_else(Answer::from);
            if let Some(origin) = origin {
                cors::allow(answer.headers_mut(), origin);
            }
            answer
        }
    };
    answer::add_common_headers(answer.headers_mut());

    let status = answer.status().as_u16();
    let labels = [("route", name.to_owned()), ("status", status.to_string())];
    metrics::histogram!("letterbox_request_duration_seconds", &labels)
        .record(began.elapsed().as_secs_f64());
    tracing::debug!(route = name, status, "answered");
    answer
}

async fn dispatch(
    gateway: &Gateway,
    peer: IpAddr,
    route: Option<Route<'_>>,
    request: Request<Incoming>,
) -> Result<Answer, Refusal> {
    let Some(route) = route else {
        return Err(refuse(request, Refusal::not_found()));
    };
    if cors::is_preflight(request.method(), request.headers()) {
        return Ok(cors::preflight(route.allow()));
    }
    if !route.takes(request.method()) {
        return Err(refuse(request, Refusal::method_not_allowed(route.allow())));
    }
    match route {
        Route::IncomingWebhook { token } => incoming_webhook::handle(gateway, token, request).await,
        Route::FormRead => form_read::handle(gateway, peer, request).await,
        Route::FormSubmit => form_submit::handle(gateway, peer, request).await,
        Route::FormPage => Ok(gateway.page.html()),
        Route::FormStyle => Ok(FormPage::style()),
        Route::FormScript => Ok(FormPage::script()),
    }
}

/// Refuses a request whose body nobody has read.
fn refuse(request: Request<Incoming>, refusal: Refusal) -> Refusal {
    let (head, incoming) = request.into_parts();
    body::discard(&head.headers, incoming);
    refusal
}
