//! Refuses heads that hyper accepts but two servers could interpret differently. A proxy in front
//! may be lenient, so this is the last check.

use hyper::{
    Version,
    header::{HOST, HeaderValue, TRANSFER_ENCODING},
    http::request::Parts,
};

use crate::error::Refusal;

/// Refuses a head with an ambiguous host or transfer coding.
///
/// # Errors
/// 400, naming the header.
pub(crate) fn check(head: &Parts) -> Result<(), Refusal> {
    let refuse = |why| Err(Refusal::invalid_input(why));
    let mut hosts = head.headers.get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() || (host.is_none() && head.version == Version::HTTP_11) {
        return refuse("There must be exactly one Host header");
    }
    // Present if the request line has a whole URL.
    let authority = head.uri.authority();
    let authority = authority.map(|authority| authority.as_str().as_bytes());
    let is_other = |host: &[u8]| authority.is_some_and(|own| !own.eq_ignore_ascii_case(host));
    if host.is_some_and(|host| is_other(host.as_bytes())) {
        return refuse("The Host header must name the host of the URL");
    }
    let mut codings = head.headers.get_all(TRANSFER_ENCODING).iter();
    let coding = codings.next();
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    if codings.next().is_some() || !coding.is_none_or(is_chunked) {
        return refuse("Transfer-Encoding must be chunked");
    }
    Ok(())
}
