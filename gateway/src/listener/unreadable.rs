//! Error envelopes for requests that hyper refuses by itself.
//!
//! A head that hyper can't parse, or that is too large, never reaches the router: hyper answers
//! with a bare status line and closes. It has no hook for that answer, so the outgoing stream
//! recognizes it: every response of the service has a header (`response::MARKER_HEADER`) that
//! hyper's own responses lack.

use std::{
    io,
    pin::Pin,
    sync::LazyLock,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes};
use hyper::{StatusCode, header::HeaderMap};
use memchr::memmem;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::{error::Refusal, request_id, response};

/// Bounds for reading the rest from a peer that was refused.
const MAX_UNREAD: u64 = 1 << 20;
const UNREAD_DEADLINE: Duration = Duration::from_secs(2);
/// The beginning of lengths that fit into 64 bits but are too large for hyper.
static ABSURD_LENGTH: LazyLock<memmem::Finder<'static>> =
    LazyLock::new(|| memmem::Finder::new(b"1844674407370955161"));

/// A stream that replaces hyper's bare refusals with error envelopes.
pub(crate) struct ErrorEnvelopeStream<S> {
    stream: S,
    /// Whether a length was announced for which hyper reports a head that is too large.
    absurd_length: bool,
    /// The rest of an envelope that is written in place of hyper's response.
    envelope: Bytes,
}

impl<S> ErrorEnvelopeStream<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            absurd_length: false,
            envelope: Bytes::new(),
        }
    }

    /// The inner stream. No envelope may be pending.
    pub(super) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncWrite + Unpin> ErrorEnvelopeStream<S> {
    fn poll_envelope(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.envelope.has_remaining() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.envelope))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.envelope.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ErrorEnvelopeStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_envelope(cx))?;
        match bare_refusal(bytes) {
            Some(status) => {
                let is_head = status == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
                self.envelope = if is_head && self.absurd_length {
                    render(&Refusal::payload_too_large())
                } else {
                    render(&Refusal::unreadable(status))
                };
                // The rest, if any, follows with the next write or flush.
                let _ = self.poll_envelope(cx)?;
                Poll::Ready(Ok(bytes.len()))
            }
            None => Pin::new(&mut self.stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_envelope(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_envelope(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ErrorEnvelopeStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.absurd_length |= ABSURD_LENGTH.find(&buffer.filled()[before..]).is_some();
        polled
    }
}

/// The status of a response that hyper wrote by itself: a complete head, with a client error,
/// without the marker.
fn bare_refusal(bytes: &[u8]) -> Option<StatusCode> {
    let status = bytes
        .strip_prefix(b"HTTP/1.1 ")
        .or_else(|| bytes.strip_prefix(b"HTTP/1.0 "))?
        .get(..3)?;
    if status[0] != b'4' || !bytes.ends_with(b"\r\n\r\n") {
        return None;
    }
    let marker = response::MARKER_HEADER;
    match memmem::find(bytes, marker.as_str().as_bytes()) {
        Some(_) => None,
        None => StatusCode::from_bytes(status).ok(),
    }
}

/// Refuses a peer that does not speak HTTP/1.1, and ends the connection.
pub(super) async fn refuse(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let envelope = render(&Refusal::unreadable(StatusCode::BAD_REQUEST));
    // The peer may be gone, which changes nothing here.
    let _ = stream.write_all(&envelope).await;
    let _ = stream.shutdown().await;
    // Closing with unread bytes would reset the connection, and the reset could overtake the
    // answer.
    let mut rest = (&mut stream).take(MAX_UNREAD);
    let mut nowhere = tokio::io::sink();
    let reading = tokio::io::copy(&mut rest, &mut nowhere);
    let _ = tokio::time::timeout(UNREAD_DEADLINE, reading).await;
}

fn render(refusal: &Refusal) -> Bytes {
    let status = refusal.status;
    let body = refusal.body();
    let mut headers = HeaderMap::new();
    response::add_common_headers(&mut headers, request_id::random());
    let mut bytes = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in &headers {
        bytes += &format!("{name}: {}\r\n", value.to_str().unwrap_or_default());
    }
    bytes += "connection: close\r\n\r\n";
    let mut bytes = bytes.into_bytes();
    bytes.extend(body);
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bare_refusals_are_replaced() {
        let bare =
            b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\ndate: x\r\n\r\n";
        let too_large = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        assert_eq!(bare_refusal(bare), Some(too_large));
        let ours = b"HTTP/1.1 404 Not Found\r\nx-content-type-options: nosniff\r\n\r\n";
        let others: [&[u8]; 4] = [
            ours,
            b"HTTP/1.1 202 Accepted\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"HTTP/1.1 4",
        ];
        for bytes in others {
            let shown = String::from_utf8_lossy(bytes);
            assert_eq!(bare_refusal(bytes), None, "{shown}");
        }
    }
}
