//! Reads bodies: at most 65,536 bytes, in bounded time.

use std::{pin::pin, time::Duration};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Limited};
use hyper::{
    body::{Body, Incoming},
    header::{self, HeaderMap},
};

use crate::{
    error::Refusal,
    response::{self, Response},
};

/// Maximum bytes of a body.
pub(crate) const MAX_BYTES: usize = 65_536;
/// How long a body may take to arrive.
const DEADLINE: Duration = Duration::from_secs(10);
/// Maximum bytes of a refused body that are read and discarded, so that its sender can read the
/// refusal.
const DRAIN_LIMIT: usize = 1 << 20;
const DRAIN_DEADLINE: Duration = Duration::from_secs(2);

/// Reads the whole body, or refuses it: by its announced length without reading a byte, otherwise
/// as soon as it is too large.
pub(crate) async fn read(headers: &HeaderMap, mut body: Incoming) -> Result<Bytes, Refusal> {
    if body.size_hint().lower() > MAX_BYTES as u64 {
        return Err(refuse(headers, body, Refusal::payload_too_large()));
    }
    let refusal = match tokio::time::timeout(DEADLINE, pin!(gather(&mut body))).await {
        Ok(Ok(gathered)) => return Ok(gathered),
        Ok(Err(refusal)) => refusal,
        Err(_) => Refusal::request_timeout(),
    };
    Err(refuse(headers, body, refusal))
}

/// Refuses a request whose body is not read to its end, which ends the connection.
pub(crate) fn refuse(headers: &HeaderMap, body: Incoming, refusal: Refusal) -> Refusal {
    if discard(headers, body) {
        refusal.closing()
    } else {
        refusal
    }
}

/// Answers a request without reading its body.
pub(crate) fn leave(headers: &HeaderMap, body: Incoming, mut answer: Response) -> Response {
    if discard(headers, body) {
        response::announce_close(answer.headers_mut());
    }
    answer
}

/// Copies the chunks into one buffer: each small chunk would hold on to many times its size.
async fn gather(body: &mut Incoming) -> Result<Bytes, Refusal> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(MAX_BYTES);
    let mut gathered = BytesMut::with_capacity(announced.min(MAX_BYTES));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::invalid_input("The body could not be read"))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if gathered.len() + data.len() > MAX_BYTES {
            return Err(Refusal::payload_too_large());
        }
        gathered.extend_from_slice(&data);
    }
    Ok(gathered.freeze())
}

/// Discards the body of a request that is answered without it; `false` if there is none. Closing a
/// connection with unread bytes resets it, and the reset can overtake the answer.
pub(crate) fn discard(headers: &HeaderMap, body: Incoming) -> bool {
    if body.is_end_stream() {
        return false;
    }
    // Reading would tell a sender that waits for 100 Continue to send its body.
    if headers.contains_key(header::EXPECT) {
        return true;
    }
    tokio::spawn(async move {
        let mut rest = Limited::new(body, DRAIN_LIMIT);
        let reading = async { while let Some(Ok(_)) = rest.frame().await {} };
        let _ = tokio::time::timeout(DRAIN_DEADLINE, reading).await;
    });
    true
}
