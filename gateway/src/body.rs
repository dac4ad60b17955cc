//! Reading a body: at most 65,536 bytes, in bounded time.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::{
    body::{Body, Incoming},
    header::{self, HeaderMap},
};

use crate::error::Refusal;

/// Largest body that is taken, in bytes.
pub const LIMIT: usize = 65_536;
/// How long a body may take to arrive.
const DEADLINE: Duration = Duration::from_secs(10);
/// How much of a refused body is still read, and thrown away, so that its sender gets to read the refusal.
const DRAIN_LIMIT: usize = 1 << 20;
const DRAIN_DEADLINE: Duration = Duration::from_secs(2);

/// Reads the whole body, or refuses it: by its announced length without reading a byte, else while it arrives.
pub async fn read(headers: &HeaderMap, mut body: Incoming) -> Result<Bytes, Refusal> {
    if body.size_hint().lower() > LIMIT as u64 {
        // Reading from a sender that waits for "100 Continue" would tell it to send.
        if !headers.contains_key(header::EXPECT) {
            drain(body);
        }
        return Err(Refusal::payload_too_large());
    }
    let collecting = Limited::new(&mut body, LIMIT).collect();
    let refusal = match tokio::time::timeout(DEADLINE, collecting).await {
        Ok(Ok(collected)) => return Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Refusal::payload_too_large(),
        Ok(Err(_)) => return Err(Refusal::invalid_input("The body could not be read")),
        Err(_) => return Err(Refusal::request_timeout()),
    };
    drain(body);
    Err(refusal)
}

/// Closing a connection with unread bytes resets it, and the reset can overtake the answer.
fn drain(body: Incoming) {
    tokio::spawn(async move {
        let mut rest = Limited::new(body, DRAIN_LIMIT);
        let reading = async { while let Some(Ok(_)) = rest.frame().await {} };
        let _ = tokio::time::timeout(DRAIN_DEADLINE, reading).await;
    });
}
