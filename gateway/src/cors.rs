//! CORS: browsers may call from the origins of the app and of the gateway itself, and no others.
//!
//! The gateway checks the origin before anything takes effect, because a simple cross-origin POST
//! is sent without a preflight and takes effect whatever the headers of the answer say. A request
//! without `Origin` comes from a server and is served.

use hyper::header::{self, HeaderMap, HeaderValue};
use url::Url;

use crate::{
    error::Refusal,
    response::{self, Response, set},
};

/// The allowed origins, as browsers write them.
#[derive(Debug, Clone)]
pub(crate) struct AllowedOrigins(Vec<HeaderValue>);

impl AllowedOrigins {
    pub(crate) fn of(urls: &[&Url]) -> Self {
        let origins = urls.iter().map(|url| url.origin().ascii_serialization());
        let origins = origins.filter_map(|origin| HeaderValue::try_from(origin).ok());
        Self(origins.filter(|origin| origin != "null").collect())
    }

    /// Returns the origin of a request if it is allowed; `None` if the request has none.
    ///
    /// # Errors
    /// For any other origin, `null`, and more than one.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<Option<HeaderValue>, Refusal> {
        let mut given = headers.get_all(header::ORIGIN).iter();
        match (given.next(), given.next()) {
            (None, _) => Ok(None),
            (Some(origin), None) if self.0.contains(origin) => Ok(Some(origin.clone())),
            _ => Err(Refusal::origin_not_allowed()),
        }
    }
}

/// Whether a request is a CORS preflight.
pub(crate) fn is_preflight(method: &hyper::Method, headers: &HeaderMap) -> bool {
    method == hyper::Method::OPTIONS
        && headers.contains_key(header::ORIGIN)
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Answers a preflight of an allowed origin. The signature header is not allowed, because secrets
/// do not belong in browsers.
pub(crate) fn preflight(methods: &'static str) -> Response {
    let mut response = response::no_content();
    let headers = response.headers_mut();
    set(headers, header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    let allowed = "Content-Type";
    set(headers, header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    set(headers, header::ACCESS_CONTROL_MAX_AGE, "600");
    response
}

/// Lets a page of an allowed origin read the answer.
pub(crate) fn allow(headers: &mut HeaderMap, origin: HeaderValue) {
    const EXPOSED: &str = "Retry-After, X-Request-Id, Letterbox-Challenge";
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    set(headers, header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_origins_are_allowed() {
        let app = "https://app.example.com/path".parse().unwrap();
        let own = "https://in.example.com:8443".parse().unwrap();
        let allowed = AllowedOrigins::of(&[&app, &own]);
        let check = |origins: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for origin in origins {
                headers.append(header::ORIGIN, HeaderValue::from_static(origin));
            }
            allowed.check(&headers).map(|origin| origin.is_some())
        };
        assert_eq!(check(&[]), Ok(false));
        assert_eq!(check(&["https://app.example.com"]), Ok(true));
        assert_eq!(check(&["https://in.example.com:8443"]), Ok(true));
        for other in [
            "null",
            "",
            "*",
            "http://app.example.com",
            "https://app.example.com:8443",
            "https://app.example.com/",
            "https://APP.example.com",
            "https://app.example.com.evil.com",
            "https://evilapp.example.com",
            "https://in.example.com",
        ] {
            let refused = Err(Refusal::origin_not_allowed());
            assert_eq!(check(&[other]), refused, "{other}");
        }
        assert!(check(&["https://app.example.com", "https://app.example.com"]).is_err());
    }
}
