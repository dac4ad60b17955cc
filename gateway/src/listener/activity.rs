//! The activity on a connection, by which quiet connections are found.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The activity on one connection, reported by its stream and its requests.
#[derive(Debug, Default)]
pub(super) struct Activity {
    requests: AtomicUsize,
    /// Whether the last request was read to its end and answered.
    answered: AtomicBool,
    /// Whether bytes were read or written since the last check.
    moved: AtomicBool,
    /// Whether a write is blocked because the peer does not read.
    blocked: AtomicBool,
}

impl Activity {
    /// Marks a request as in progress until the returned guard is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> InProgress {
        self.requests.fetch_add(1, Relaxed);
        self.answered.store(false, Relaxed);
        InProgress(self.clone())
    }

    /// Whether the connection is between two requests and nothing has moved since the last call.
    pub(super) fn is_quiet(&self) -> bool {
        let moved = self.moved.swap(false, Relaxed);
        !moved
            && self.answered.load(Relaxed)
            && self.requests.load(Relaxed) == 0
            && !self.blocked.load(Relaxed)
    }
}

/// A request in progress.
pub(super) struct InProgress(Arc<Activity>);

impl InProgress {
    /// Marks the request as read to its end and answered.
    pub(super) fn answered(&self) {
        self.0.answered.store(true, Relaxed);
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.moved.store(true, Relaxed);
        self.0.requests.fetch_sub(1, Relaxed);
    }
}

/// A stream that reports its reads and writes.
pub(super) struct ObservedStream<S> {
    /// Bytes that were read before and are to be read again.
    pub(super) unread: Bytes,
    pub(super) stream: S,
    pub(super) activity: Arc<Activity>,
}

impl<S: AsyncRead + Unpin> AsyncRead for ObservedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unread.has_remaining() {
            let length = self.unread.len().min(buffer.remaining());
            buffer.put_slice(&self.unread.split_to(length));
            return Poll::Ready(Ok(()));
        }
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if polled.is_ready() {
            self.activity.moved.store(true, Relaxed);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ObservedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.activity.moved.store(true, Relaxed);
        self.activity.blocked.store(polled.is_pending(), Relaxed);
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
