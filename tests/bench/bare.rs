//! A bare hyper server in a process of its own: what HTTP costs by itself, and the peer of runs,
//! with a model that asks for two calls before it is done.

use std::{convert::Infallible, process::Stdio};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response, StatusCode, body::Incoming, server::conn::http1, service::service_fn,
};
use hyper_util::rt::TokioIo;
use letterbox_tests::{CHAT, model_answer};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpListener,
    process::{Child, Command},
};

/// Reads every body and answers with `status`, without end. Says its address first.
pub async fn serve(status: u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!("{}", listener.local_addr().expect("an address"));
    let status = StatusCode::from_u16(status).expect("a status");
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).expect("a socket");
        tokio::spawn(async move {
            let service = service_fn(async |request: Request<Incoming>| {
                let is_question = request.uri().path() == CHAT;
                let asked = request.into_body().collect().await;
                let body = match asked {
                    Ok(asked) if is_question => model(&asked.to_bytes()),
                    _ => Bytes::from_static(br#"{"received":true}"#),
                };
                let mut response = Response::new(Full::new(body));
                *response.status_mut() = status;
                Ok::<_, Infallible>(response)
            });
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// What the model says: calls, until it was told two answers.
fn model(question: &[u8]) -> Bytes {
    let told = String::from_utf8_lossy(question)
        .matches(r#""role":"tool""#)
        .count();
    let answer = match told {
        0 | 1 => model_answer("", &[("note", json!({"text": told.to_string()}))]),
        _ => model_answer("done", &[]),
    };
    answer.into()
}

/// Such a process. Killed when dropped.
pub struct Bare {
    /// `host:port`
    pub address: String,
    child: Child,
}

impl Bare {
    pub async fn start(status: u16) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .args(["--serve", &status.to_string()])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a process");
        let output = child.stdout.take().expect("it is piped");
        let line = BufReader::new(output).lines().next_line().await;
        let address = line.expect("readable").expect("its address");
        Self { address, child }
    }

    pub fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    pub async fn end(mut self) {
        let _ = self.child.kill().await;
    }
}
