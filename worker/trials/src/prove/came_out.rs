//! What has come out: at an address where the intake posts it, in a queue, or in a file.

use std::{collections::HashSet, convert::Infallible, net::SocketAddr, path::PathBuf, sync::Arc};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Request, Response, StatusCode, body::Incoming, server::conn::http1, service::service_fn,
};
use hyper_util::rt::TokioIo;
use letterbox_broker::{BrokerTarget, ReadMessage, has_queue, read_queue};
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::numbers::Numbers;
use crate::TrialError;

/// Bytes of what is posted that are looked at.
const MAX_BODY: usize = 16 << 20;
/// How the connection that reads a queue is called.
const NAME: &str = "letterbox prove";

/// The numbers that have come out, in their order.
#[derive(Clone)]
pub(super) struct CameOut {
    numbers: Numbers,
    /// Whether messages with one id are one.
    same_by_id: bool,
    arrivals: Arc<Mutex<Vec<u64>>>,
    /// The ids of the messages that were read.
    read: Arc<Mutex<HashSet<Vec<u8>>>>,
}

impl CameOut {
    pub(super) fn of(numbers: &Numbers, same_by_id: bool) -> Self {
        Self {
            same_by_id,
            numbers: numbers.clone(),
            arrivals: Arc::default(),
            read: Arc::default(),
        }
    }

    pub(super) fn arrivals(&self) -> Vec<u64> {
        self.arrivals.lock().clone()
    }

    fn note(&self, text: &str) {
        self.arrivals.lock().extend(self.numbers.found_in(text));
    }

    /// Notes a message, unless it is one that comes again because its acknowledgement was lost.
    fn note_message(&self, message: &ReadMessage<'_>) {
        let id = message.id.unwrap_or(message.body).to_vec();
        let is_new = self.read.lock().insert(id);
        if is_new || !(message.is_again || self.same_by_id) {
            self.note(&String::from_utf8_lossy(message.body));
        }
    }
}

/// Where it is looked.
pub(super) enum Source {
    /// It comes by itself.
    Comes,
    /// This is read again and again.
    File(PathBuf),
}

impl Source {
    /// Begins to look.
    pub(super) async fn open(
        listen: Option<SocketAddr>,
        queue: Option<String>,
        file: Option<PathBuf>,
        came_out: &CameOut,
    ) -> Result<Self, TrialError> {
        if let Some(address) = listen {
            let bound = TcpListener::bind(address).await;
            let listener = bound.map_err(|error| TrialError::Receive(address, error))?;
            tokio::spawn(listen_on(listener, came_out.clone()));
        }
        if let Some(queue) = queue {
            let (target, came_out) = (BrokerTarget::from_environment()?, came_out.clone());
            if !has_queue(&target, NAME, &queue).await? {
                return Err(TrialError::NoQueue(queue));
            }
            tokio::spawn(async move {
                read_queue(&target, NAME, &queue, |message| {
                    came_out.note_message(&message)
                })
                .await;
            });
        }
        Ok(file.map_or(Self::Comes, Self::File))
    }

    /// Reads again what does not come by itself.
    pub(super) fn look_again(&self, came_out: &CameOut) -> Result<(), TrialError> {
        if let Self::File(path) = self {
            let read = std::fs::read(path);
            let bytes = read.map_err(|cause| TrialError::File(path.clone(), cause))?;
            let text = String::from_utf8_lossy(&bytes);
            came_out.arrivals.lock().clear();
            // The last line may not be whole yet.
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            whole.lines().for_each(|line| came_out.note(line));
        }
        Ok(())
    }
}

async fn listen_on(listener: TcpListener, came_out: CameOut) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let came_out = came_out.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| take(request, &came_out));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // The peer may send something that is not HTTP.
            let _ = connection.await;
        });
    }
}

async fn take(
    request: Request<Incoming>,
    came_out: &CameOut,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = Limited::new(request.into_body(), MAX_BODY).collect().await;
    let Ok(body) = body.map(http_body_util::Collected::to_bytes) else {
        let mut refused = Response::new(Full::default());
        *refused.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(refused);
    };
    came_out.note(&String::from_utf8_lossy(&body));
    Ok(Response::new(Full::new(Bytes::from_static(
        br#"{"ok":true}"#,
    ))))
}
