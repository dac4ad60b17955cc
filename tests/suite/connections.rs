//! Connections that are quiet, slow or silent: what they may do, and whom they hold up.

use std::{net::SocketAddr, time::Duration};

use letterbox_tests::{Process, World, assert_tells, eventually, raw};
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
    let (_world, gateway) = World::with_gateway().await;
    let mut stream = connect(&gateway).await;
    for pause in [Duration::ZERO, QUIET, QUIET, Duration::ZERO] {
        tokio::time::sleep(pause).await;
        stream.write_all(REQUEST.as_bytes()).await.unwrap();
        assert_eq!(answer(&mut stream).await.0, 200);
    }
    // The second request comes with the first, and in two parts.
    let (begun, rest) = REQUEST.split_at(20);
    let both = format!("{REQUEST}{begun}");
    stream.write_all(both.as_bytes()).await.unwrap();
    assert_eq!(answer(&mut stream).await.0, 200);
    tokio::time::sleep(QUIET).await;
    stream.write_all(rest.as_bytes()).await.unwrap();
    assert_eq!(answer(&mut stream).await.0, 200);
}

/// The rest of a body that was refused is never taken for a request, however late it comes.
#[tokio::test]
async fn a_late_body_is_not_a_request() {
    let (_world, gateway) = World::with_gateway().await;
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
    let (_world, mut gateway) = World::with_gateway().await;
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

/// Where a body is left unread the connection ends, and the answer says so; everywhere else the
/// next request is answered.
#[tokio::test]
async fn an_answer_says_when_the_connection_ends() {
    let (_world, gateway, webhook) = World::with_webhook().await;
    let path = format!("POST /webhooks/incoming/{}", webhook.address);
    let (read, submit) = (
        "GET /public/workflow-forms/forms",
        "/public/workflow-forms/forms/submit",
    );
    let submit = format!("POST {submit}");
    let next = "GET /forms/form.js HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    for (head, body, status, ends) in [
        ("POST /nothing", "length: 5", "404", true),
        ("PUT /forms", "length: 5", "405", true),
        ("GET /forms", "length: 5", "200", true),
        ("POST /webhooks/incoming/x", "length: 5", "404", true),
        (path.as_str(), "length: 70000", "413", true),
        (path.as_str(), "length: 18446744073709551615", "413", true),
        (path.as_str(), "length: 18446744073709551614", "413", true),
        (path.as_str(), "length: 18446744073709551616", "400", true),
        (path.as_str(), "length: 0", "401", false),
        (&submit, "length: 0", "400", false),
        (read, "length: 0", "404", false),
        ("GET /nothing", "length: 0", "404", false),
    ] {
        let request = format!("{head} HTTP/1.1\r\nhost: x\r\ncontent-{body}\r\n\r\n");
        let bytes = match ends {
            true => request.clone(),
            false => request.clone() + next,
        };
        let told = raw(&gateway.public_address(), bytes.as_bytes()).await;
        let begins = told.starts_with(&format!("HTTP/1.1 {status} "));
        assert!(begins, "{request}{told}");
        let (first, rest) = told.split_once("\r\n\r\n").unwrap();
        assert_eq!(first.contains("connection: close"), ends, "{request}{told}");
        assert_eq!(rest.contains("HTTP/1.1 200"), !ends, "{request}{told}");
    }
    let waits = "POST /nothing HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n\
        content-length: 5\r\n\r\n";
    let told = raw(&gateway.public_address(), waits.as_bytes()).await;
    assert_tells(&told, &[" 404 ", "connection: close"]);
}

#[tokio::test]
async fn http2_is_answered_in_http1() {
    let (_world, gateway) = World::with_gateway().await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let told = raw(&gateway.public_address(), preface).await;
    assert!(told.starts_with("HTTP/1.1 400 "), "{told}");
    assert!(told.contains("not valid HTTP/1.1"), "{told}");
}

/// Where no place is free, the connection that has been idle for longest makes room.
#[tokio::test]
async fn idle_connections_make_room() {
    let world = World::new().await;
    let settings = [("LETTERBOX_MAX_CONNECTIONS", "8")];
    let gateway = world.gateway_with(&settings).await;
    let ask = async |stream: &mut TcpStream| {
        stream.write_all(REQUEST.as_bytes()).await.unwrap();
        tokio::time::timeout(CLOSED_BY, answer(stream)).await
    };
    let mut idle = Vec::new();
    for connections in [1, 6] {
        for _ in 0..connections {
            let mut stream = connect(&gateway).await;
            assert_eq!(ask(&mut stream).await.unwrap().0, 200);
            idle.push(stream);
        }
        tokio::time::sleep(QUIET).await;
    }
    // One of them takes the last place, and the other one comes after it.
    for _ in 0..2 {
        let mut stream = connect(&gateway).await;
        assert_eq!(ask(&mut stream).await.expect("there is room").0, 200);
        idle.push(stream);
    }
    assert_eq!(idle[0].read(&mut [0]).await.unwrap_or(0), 0);
    let mut youngest = idle.pop().unwrap();
    assert_eq!(ask(&mut youngest).await.unwrap().0, 200);
}
