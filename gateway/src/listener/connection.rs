//! One connection, and every limit on its input.
//!
//! hyper holds 16 KiB for a connection as long as it serves it. So it gets a connection only when
//! the peer has begun to send, and hands it back when it is quiet between two requests: thousands
//! of idle connections cost little, and a silent one does not hold up a shutdown.
//!
//! hyper has limits for heads, but none for connections, bodies, idle peers or peers that do not
//! read. Its limits are set here, the others are added here and in `body`. Its timeout for heads is
//! silently off without a timer.

use std::{
    convert::Infallible,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use hyper::{
    Request,
    body::Incoming,
    header::CONNECTION,
    rt::{Sleep, Timer},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rustix::net::{RecvFlags, recv};
use tokio::{net::TcpStream, sync::Notify};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

use super::{
    activity::{Activity, ObservedStream},
    unreadable::{self, ErrorEnvelopeStream},
};
use crate::{
    response::{self, Response},
    router,
    state::Gateway,
};

/// How long a peer may be silent between two requests, while places are free: longer than any usual
/// proxy. One that closes first would cross a request that its proxy has just sent, which many
/// proxies do not send again.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3_660);
/// How long a head may take from its first byte.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a peer may take to read any part of an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a quiet connection stays open after the stop: a request that is on its way is answered,
/// and its peer told to use the connection no more.
const PARTING: Duration = Duration::from_secs(1);
/// How often a connection is checked for being quiet, being stopped, or waiting too long for a
/// head.
const LOOK: Duration = Duration::from_millis(200);
const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;
/// The read buffer of a connection; bodies arrive through it in pieces.
const BUFFER_BYTES: usize = 64 * 1024;

/// The beginning of an HTTP/2 connection, which hyper would leave without an answer.
const HTTP2: [u8; 14] = *b"PRI * HTTP/2.0";

/// A stream while hyper does not hold it.
type Stream = Pin<Box<TimeoutStream<TcpStream>>>;

/// Serves a connection until either side ends it, or its place is `wanted` while it is idle. After
/// `stop`, requests in progress are finished.
pub(super) async fn serve(
    stream: TcpStream,
    peer: IpAddr,
    gateway: Arc<Gateway>,
    stop: CancellationToken,
    wanted: Arc<Notify>,
) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIMEOUT));
    let mut stream = Box::pin(stream);
    let mut unread = Bytes::new();
    loop {
        if unread.is_empty() {
            match first_bytes(stream.get_ref(), &stop, &wanted).await {
                None => return,
                Some(HTTP2) => return unreadable::refuse(stream).await,
                Some(_) => {}
            }
        }
        match serve_until_quiet(stream, unread, peer, &gateway, &stop).await {
            Some(quiet) => (stream, unread) = quiet,
            None => return,
        }
    }
}

/// Waits for the first bytes of the peer and returns them; `None` if none arrive in time.
async fn first_bytes(
    stream: &TcpStream,
    stop: &CancellationToken,
    wanted: &Notify,
) -> Option<[u8; HTTP2.len()]> {
    let mut first = [0; HTTP2.len()];
    let over = async {
        let stopped = async {
            stop.cancelled().await;
            tokio::time::sleep(PARTING).await;
        };
        let _ = tokio::time::timeout(IDLE_TIMEOUT, stopped).await;
    };
    let is_wanted = tokio::select! {
        biased;
        peeked = stream.peek(&mut first) => return (peeked.ok()? > 0).then_some(first),
        () = over => false,
        () = wanted.notified() => true,
    };
    // What has come meanwhile is answered: the system knows of it before the runtime does.
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    if recv(stream, &mut first, flags).ok()?.0 == 0 {
        return None;
    }
    if is_wanted {
        wanted.notify_one();
    }
    Some(first)
}

/// Serves requests. Returns the stream when it is quiet, with the bytes already read of a next
/// request; `None` when it has ended.
async fn serve_until_quiet(
    stream: Stream,
    unread: Bytes,
    peer: IpAddr,
    gateway: &Arc<Gateway>,
    stop: &CancellationToken,
) -> Option<(Stream, Bytes)> {
    let activity = Arc::new(Activity::default());
    let service = service_fn(|request| {
        let gateway = gateway.clone();
        let activity = activity.clone();
        // Boxed, because a request in progress is large, and idle connections need no room for it.
        Box::pin(async move {
            let answering = respond(&gateway, peer, request, &activity, stop);
            Ok::<_, Infallible>(answering.await)
        })
    });
    let observed = ObservedStream {
        unread,
        stream,
        activity: activity.clone(),
    };
    let mut connection =
        http().serve_connection(TokioIo::new(ErrorEnvelopeStream::new(observed)), service);
    let outcome = loop {
        tokio::select! {
            outcome = &mut connection => break outcome,
            // After the stop, too, the answer to the next request ends the connection, or silence:
            // closing it now could cross a request that is on its way.
            () = tokio::time::sleep(LOOK) => if activity.is_quiet() {
                let parts = connection.into_parts();
                let stream = parts.io.into_inner().into_inner().stream;
                // Copied, because a slice would keep the whole buffer alive.
                return Some((stream, Bytes::copy_from_slice(&parts.read_buf)));
            }
        }
    };
    if let Err(error) = outcome {
        // The peer went away, or sent something that is not HTTP.
        tracing::debug!(%error, "connection ended");
    }
    None
}

/// hyper, with every limit that it has for heads.
pub(crate) fn http() -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(CoarseTimer)
        .header_read_timeout(HEAD_TIMEOUT)
        .max_header_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .max_buf_size(BUFFER_BYTES);
    http
}

/// A timer for hyper that sets no real timers: the connection is polled every [`LOOK`] anyway, and
/// a real one would have to be set and cancelled for the head of every request.
struct CoarseTimer;

impl Timer for CoarseTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Until(deadline))
    }
}

/// A sleep that is over when polled after its deadline. Never wakes its task.
struct Until(Instant);

impl Sleep for Until {}

impl Future for Until {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.0 {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

async fn respond(
    gateway: &Gateway,
    peer: IpAddr,
    request: Request<Incoming>,
    activity: &Arc<Activity>,
    stop: &CancellationToken,
) -> Response {
    let in_progress = activity.begin();
    let mut answer = router::respond(gateway, peer, request).await;
    if stop.is_cancelled() {
        response::announce_close(answer.headers_mut());
    }
    // An answer that closes the connection may leave a body unread.
    if !answer.headers().contains_key(CONNECTION) {
        in_progress.answered();
    }
    answer
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncWriteExt, net::TcpListener};

    use super::*;

    /// Both ends of a connection.
    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connecting = TcpStream::connect(listener.local_addr().unwrap());
        let (peer, accepted) = tokio::join!(connecting, listener.accept());
        (peer.unwrap(), accepted.unwrap().0)
    }

    /// Whose proxy keeps connections for an hour, as Envoy does, has no request cut off.
    #[tokio::test(start_paused = true)]
    async fn a_proxy_closes_idle_connections_before_the_gateway_does() {
        let (mut peer, stream) = connected().await;
        let stop = CancellationToken::new();
        let wanted = Notify::new();
        let asking = async {
            tokio::time::sleep(Duration::from_secs(3_600)).await;
            peer.write_all(b"GET / HTTP/1.1").await.unwrap();
        };
        let (first, ()) = tokio::join!(first_bytes(&stream, &stop, &wanted), asking);
        assert_eq!(first.as_ref(), Some(b"GET / HTTP/1.1"));
        let (_peer, stream) = connected().await;
        let first = first_bytes(&stream, &stop, &wanted).await;
        assert_eq!(first, None, "not for ever");
    }

    /// Somebody else has to make room for what a connection that is idle no more can't.
    #[tokio::test]
    async fn a_request_that_has_come_is_answered_whoever_wants_the_place() {
        let (mut peer, stream) = connected().await;
        let stop = CancellationToken::new();
        let wanted = Notify::new();
        wanted.notify_one();
        peer.write_all(b"GET / HTTP/1.1").await.unwrap();
        assert!(first_bytes(&stream, &stop, &wanted).await.is_some());
        wanted.notified().await;
        wanted.notify_one();
        let (_peer, stream) = connected().await;
        assert_eq!(first_bytes(&stream, &stop, &wanted).await, None);
    }
}
