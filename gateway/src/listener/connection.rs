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
    header::{CONNECTION, HeaderValue},
    rt::{Sleep, Timer},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rustix::net::{RecvFlags, recv};
use tokio::net::TcpStream;
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

use super::{
    activity::{Activity, ObservedStream},
    unreadable::{self, ErrorEnvelopeStream},
};
use crate::{response::Response, router, state::Gateway};

/// How long a peer may be silent between two requests.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
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

/// Serves a connection until either side ends it. After `stop`, requests in progress are finished.
pub(super) async fn serve(
    stream: TcpStream,
    peer: IpAddr,
    gateway: Arc<Gateway>,
    stop: CancellationToken,
) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIMEOUT));
    let (mut stream, mut unread) = (Box::pin(stream), Bytes::new());
    loop {
        if unread.is_empty() {
            match first_bytes(&stream, &stop).await {
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
async fn first_bytes(stream: &Stream, stop: &CancellationToken) -> Option<[u8; HTTP2.len()]> {
    let mut first = [0; HTTP2.len()];
    let over = async {
        let stopped = async {
            stop.cancelled().await;
            tokio::time::sleep(PARTING).await;
        };
        let _ = tokio::time::timeout(IDLE_TIMEOUT, stopped).await;
    };
    let length = tokio::select! {
        biased;
        peeked = stream.get_ref().peek(&mut first) => peeked.ok()?,
        // What has come meanwhile is answered: the system knows of it before the runtime does.
        () = over => {
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            recv(stream.get_ref(), &mut first, flags).ok()?.0
        }
    };
    (length > 0).then_some(first)
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
        let (gateway, activity) = (gateway.clone(), activity.clone());
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
        let close = HeaderValue::from_static("close");
        answer.headers_mut().insert(CONNECTION, close);
    }
    // An answer that closes the connection may leave a body unread.
    if !answer.headers().contains_key(CONNECTION) {
        in_progress.answered();
    }
    answer
}
