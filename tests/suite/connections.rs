//! Connections that are quiet, slow or silent: what they may do, and whom they hold up.

use std::{net::SocketAddr, time::Duration};

use letterbox_tests::{Process, World, eventually};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};

const REQUEST: &str = "GET /forms/form.js HTTP/1.1\r\nhost: x\r\n\r\n";
/// Longer than it takes until a quiet connection is set aside. Nothing tells from outside that it
/// is.
const QUIET: Duration = Duration::from_millis(1_300);

/// Less than an idle connection may stay.
const CLOSED_BY: Duration = Duration::from_secs(20);

async fn connect(gateway: &Process) -> TcpStream {
    TcpStream::connect(gateway.public_address()).await.unwrap()
}

/// Status and body of the next answer.
async fn answer(stream: &mut TcpStream) -> (u16, String) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head.split("content-length: ").nth(1).unwrap();
    let mut body = vec![0; length.split("\r\n").next().unwrap().parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, String::from_utf8(body).unwrap())
}

#[tokio::test]
async fn a_sender_may_pause_between_requests_and_within_them() {
    let world = World::new().await;
    let gateway = world.gateway().await;
    let mut stream = connect(&gateway).await;
    for pause in [Duration::ZERO, QUIET, QUIET, Duration::ZERO] {
        tokio::time::sleep(pause).await;
        stream.write_all(REQUEST.as_bytes()).await.unwrap();
        assert_eq!(answer(&mut stream).await.0, 200);
    }
    // The second request comes with the first, and in two parts.
    let (begun, rest) = REQUEST.split_at(20);
    stream
        .write_all(format!("{REQUEST}{begun}").as_bytes())
        .await
        .unwrap();
    assert_eq!(answer(&mut stream).await.0, 200);
    tokio::time::sleep(QUIET).await;
    stream.write_all(rest.as_bytes()).await.unwrap();
    assert_eq!(answer(&mut stream).await.0, 200);
}

/// The rest of a body that was refused is never taken for a request, however late it comes.
#[tokio::test]
async fn a_late_body_is_not_a_request() {
    let world = World::new().await;
    let gateway = world.gateway().await;
    let mut stream = connect(&gateway).await;
    let refused = format!(
        "POST /nothing HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
        REQUEST.len() + 10
    );
    stream.write_all(refused.as_bytes()).await.unwrap();
    stream.write_all(&[b' '; 10]).await.unwrap();
    assert_eq!(answer(&mut stream).await.0, 404);
    tokio::time::sleep(QUIET).await;
    stream.write_all(REQUEST.as_bytes()).await.unwrap();
    let mut rest = Vec::new();
    let reading = tokio::time::timeout(QUIET, stream.read_to_end(&mut rest));
    drop(reading.await);
    assert_eq!(String::from_utf8_lossy(&rest), "", "nobody has asked");
}

/// Connections that have said nothing, and those that rest between two requests, are closed at
/// once when a gateway stops.
#[tokio::test]
async fn a_stop_waits_for_nobody_who_says_nothing() {
    let world = World::new().await;
    let mut gateway = world.gateway().await;
    let mut silent = Vec::new();
    for _ in 0..10 {
        silent.push(connect(&gateway).await);
        let mut resting = connect(&gateway).await;
        resting.write_all(REQUEST.as_bytes()).await.unwrap();
        assert_eq!(answer(&mut resting).await.0, 200);
        silent.push(resting);
    }
    gateway.terminate();
    assert!(gateway.ended().await.success());
    assert!(gateway.log().contains("\"in_order\":true"));
    for mut stream in silent {
        assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0);
    }
}

/// One peer has its share of the places, and others are served all the same.
#[tokio::test]
async fn one_peer_does_not_take_all_places() {
    let world = World::new().await;
    let settings = [
        ("LETTERBOX_MAX_CONNECTIONS", "16"),
        ("LETTERBOX_TRUSTED_PROXIES", "10.0.0.0/8"),
    ];
    let gateway = world.gateway_with(&settings).await;
    let address: SocketAddr = gateway.public_address().parse().unwrap();
    let from = async |peer: &str| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{peer}:0").parse().unwrap()).unwrap();
        socket.connect(address).await.unwrap()
    };
    let (mut first, second) = (from("127.0.0.2").await, from("127.0.0.2").await);
    for _ in 0..20 {
        let mut third = from("127.0.0.2").await;
        let mut byte = [0];
        let reading = tokio::time::timeout(CLOSED_BY, third.read(&mut byte));
        let read = reading.await.expect("closed at once");
        assert_eq!(read.unwrap_or(0), 0);
    }
    for peer in ["127.0.0.3", "127.0.0.4", "127.0.0.5"] {
        let mut other = from(peer).await;
        other.write_all(REQUEST.as_bytes()).await.unwrap();
        assert_eq!(answer(&mut other).await.0, 200, "{peer}");
    }
    first.write_all(REQUEST.as_bytes()).await.unwrap();
    assert_eq!(answer(&mut first).await.0, 200);
    let refused = gateway.metric("letterbox_connections_refused_total").await;
    assert_eq!(refused, 20.0);
    drop(second);
    eventually("there is room again", async || {
        let mut again = from("127.0.0.2").await;
        let _ = again.write_all(REQUEST.as_bytes()).await;
        again.read(&mut [0]).await.unwrap_or(0) == 1
    })
    .await;
}
