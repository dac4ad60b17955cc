//! What has come out: at an address where the intake posts it, in a queue, or in a file.

use std::{
    convert::Infallible,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use letterbox_broker::{BrokerTarget, has_queue, read_queue};
use letterbox_operator::OperatorError;
use tokio::net::TcpListener;

use super::ledger::Numbers;
use crate::{Failure, file};

/// Bytes of what is posted that are looked at.
const MAX_BODY: usize = 16 << 20;
/// How the connection that reads a queue is called.
const NAME: &str = "letterbox prove";

/// The numbers that have come out, in their order.
#[derive(Clone)]
pub(super) struct CameOut {
    numbers: Numbers,
    arrivals: Arc<Mutex<Vec<u64>>>,
}

impl CameOut {
    pub(super) fn of(numbers: &Numbers) -> Self {
        Self {
            numbers: numbers.clone(),
            arrivals: Arc::default(),
        }
    }

    pub(super) fn arrivals(&self) -> Vec<u64> {
        self.lock().clone()
    }

    /// Notes what a text names; where it may have been read before, only what is new.
    fn note(&self, text: &str, may_be_known: bool) {
        let mut arrivals = self.lock();
        for number in self.numbers.found_in(text) {
            if !may_be_known || !arrivals.contains(&number) {
                arrivals.push(number);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u64>> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
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
    ///
    /// # Errors
    /// When the address can't be listened on, or no broker is named.
    pub(super) async fn open(
        listen: Option<SocketAddr>,
        queue: Option<String>,
        file: Option<PathBuf>,
        came_out: &CameOut,
    ) -> Result<Self, Failure> {
        if let Some(address) = listen {
            let bound = TcpListener::bind(address).await;
            let listener = bound.map_err(|error| Failure::Receive(address, error))?;
            tokio::spawn(listen_on(listener, came_out.clone()));
        }
        if let Some(queue) = queue {
            let (target, came_out) = (BrokerTarget::from_environment()?, came_out.clone());
            let found = has_queue(&target, NAME, &queue).await;
            if !found.map_err(OperatorError::from)? {
                return Err(Failure::NoQueue(queue));
            }
            tokio::spawn(async move {
                let note = |body: &[u8], may_be_known| {
                    came_out.note(&String::from_utf8_lossy(body), may_be_known);
                };
                read_queue(&target, NAME, &queue, note).await;
            });
        }
        Ok(file.map_or(Self::Comes, Self::File))
    }

    /// Reads again what does not come by itself.
    ///
    /// # Errors
    /// When the file can't be read.
    pub(super) fn look_again(&self, came_out: &CameOut) -> Result<(), Failure> {
        if let Self::File(path) = self {
            let bytes = file::read(path)?;
            let text = String::from_utf8_lossy(&bytes);
            came_out.lock().clear();
            text.lines().for_each(|line| came_out.note(line, false));
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
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    came_out.note(&String::from_utf8_lossy(&body), false);
    Ok(Response::new(Full::new(Bytes::from_static(
        br#"{"ok":true}"#,
    ))))
}
