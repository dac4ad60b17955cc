//! One connection, and every limit on what may come in through it.
//!
//! hyper holds 16 KiB for a connection as long as it serves it. So it gets one only when its peer
//! has begun to speak, and hands it back when it has been quiet between two requests: thousands of
//! idle connections cost little, and what says nothing holds up no shutdown.
//!
//! hyper brings limits for heads and none for connections, bodies, idleness or peers that read
//! nothing; those it has are set here, the others are added here and in `body`. Its time-out for
//! heads is silently off without a timer.

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
use tokio::net::TcpStream;
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

use super::{
    activity::{Activity, ObservedStream},
    unreadable::{self, ErrorEnvelopeStream},
};
use crate::{response::Response, router, state::Gateway};

/// How long a peer may say nothing between two requests.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a head may take, from its first byte on.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a peer may take to read any part of an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often it is looked whether a connection has become quiet, has been stopped, or waits for a
/// head for too long.
const LOOK: Duration = Duration::from_millis(200);
const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;
/// Read buffer of one connection; bodies arrive through it in pieces.
const BUFFER_BYTES: usize = 64 * 1024;

/// How a connection of HTTP/2 begins, which hyper would leave without an answer.
const HTTP2: [u8; 14] = *b"PRI * HTTP/2.0";

/// A stream as it is kept while hyper does not have it.
type Stream = Pin<Box<TimeoutStream<TcpStream>>>;

/// Serves a connection until either side ends it. After `stop`, what was begun is finished.
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

/// Waits until the peer says something, and gives the beginning of it; none if it does not in time.
async fn first_bytes(stream: &Stream, stop: &CancellationToken) -> Option<[u8; HTTP2.len()]> {
    let mut first = [0; HTTP2.len()];
    let peeking = stream.get_ref().peek(&mut first);
    let peeking = stop.run_until_cancelled(tokio::time::timeout(IDLE_TIMEOUT, peeking));
    let length = peeking.await?.ok()?.ok()?;
    (length > 0).then_some(first)
}

/// Serves requests. Gives the stream back when it is quiet, with what was read of a next request;
/// nothing when it has ended.
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
        // Boxed: a request in progress is large, and a connection need not have room for it.
        Box::pin(
            async move { Ok::<_, Infallible>(respond(&gateway, peer, request, &activity).await) },
        )
    });
    let observed = ObservedStream {
        unread,
        stream,
        activity: activity.clone(),
    };
    let mut connection = http1::Builder::new()
        .timer(Looked)
        .header_read_timeout(HEAD_TIMEOUT)
        .max_header_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(ErrorEnvelopeStream::new(observed)), service);
    let mut is_ending = false;
    let outcome = loop {
        tokio::select! {
            outcome = &mut connection => break outcome,
            () = tokio::time::sleep(LOOK) => {
                if stop.is_cancelled() {
                    // Once: the second time hyper would cut off a body that is being discarded.
                    if !std::mem::replace(&mut is_ending, true) {
                        Pin::new(&mut connection).graceful_shutdown();
                    }
                } else if activity.is_quiet() {
                    let parts = connection.into_parts();
                    let stream = parts.io.into_inner().into_inner().stream;
                    // A copy: the whole buffer would live on with its last byte.
                    return Some((stream, Bytes::copy_from_slice(&parts.read_buf)));
                }
            }
        }
    };
    if let Err(error) = outcome {
        // The peer went away, or sent something that is not HTTP.
        tracing::debug!(%error, "connection ended");
    }
    None
}

/// Timers of a connection that is looked after anyway, every [`LOOK`]: none has to be set, and
/// taken back, for the head of every request.
struct Looked;

impl Timer for Looked {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Until(deadline))
    }
}

/// Over when it is polled after its time. Wakes nobody.
struct Until(Instant);

impl Sleep for Until {}

impl Future for Until {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        match Instant::now() >= self.0 {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

async fn respond(
    gateway: &Gateway,
    peer: IpAddr,
    request: Request<Incoming>,
    activity: &Arc<Activity>,
) -> Response {
    let in_progress = activity.begin();
    let answer = router::respond(gateway, peer, request).await;
    // Otherwise there may be more of a body to come.
    if !answer.headers().contains_key(CONNECTION) {
        in_progress.answered();
    }
    answer
}
