//! Strangers, from one address or from many, keep nobody who is signed in out of the desk: what
//! they hold, they hold for seconds, and make room for others.

use std::time::{Duration, Instant};

use futures_util::future::select_all;
use letterbox_database::Role;
use letterbox_tests::{Desk, Visitor, World};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// As many as the desk has places for.
const FLOOD: usize = 256;
/// A person waits no longer than this, whoever else is there.
const AT_ONCE: Duration = Duration::from_secs(3);

/// A post without a session whose body does not come.
async fn slow_post(desk: &Desk, client: &str, path: &str, length: usize) -> TcpStream {
    let host = desk.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\norigin: {}\r\nx-forwarded-for: {client}\r\n\
         content-type: application/x-www-form-urlencoded\r\ncontent-length: {length}\r\n\r\nt",
        desk.url
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// The status that a connection is answered with; `None` if it is closed without an answer.
async fn status(stream: &mut TcpStream) -> Option<u16> {
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.ok()?;
    std::str::from_utf8(&head[9..]).unwrap().parse().ok()
}

async fn at_once<T>(what: &str, answer: impl Future<Output = T>) -> T {
    let answer = tokio::time::timeout(AT_ONCE, answer).await;
    answer.unwrap_or_else(|_| panic!("{what} is kept waiting"))
}

/// Both answers: of a room, and of the door.
async fn assert_served(desk: &Desk, person: &Visitor) {
    let page = at_once("a person", person.get("/")).await;
    assert_eq!(page.status(), 200);
    let token = person.form_token().await;
    let form = [("form_token", token.as_str()), ("sure", "yes")];
    let posted = at_once("a person's order", person.send("/forms/1/delete", &form)).await;
    assert_eq!(posted.status(), 404);
    let stranger = Visitor::new(&desk.url);
    let door = at_once("another stranger", stranger.get("/sign-in")).await;
    assert_eq!(door.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_strangers_shuts_nobody_out() {
    let world = World::new().await;
    let desk = Desk::start(&world).await;
    world.order("user create --email ada@example.com --name Ada");
    let ada = desk.visitor(&world, "ada@example.com").await;

    // One client has its share, and is told so.
    let mut flood = Vec::new();
    for _ in 0..FLOOD {
        flood.push(slow_post(&desk, "192.0.2.1", "/sign-in", 100).await);
    }
    assert_served(&desk, &ada).await;
    let mut refused = 0;
    for stream in &mut flood {
        // The others wait for their body.
        let answer = tokio::time::timeout(Duration::from_millis(20), status(stream)).await;
        refused += usize::from(answer == Ok(Some(429)));
    }
    assert!(refused > FLOOD / 2, "{refused}");
    drop(flood);

    // Many clients have all places, and make room.
    let mut flood = Vec::new();
    for number in 0..FLOOD {
        let client = format!("2001:db8:{number:x}::1");
        flood.push(slow_post(&desk, &client, "/sign-in", 100).await);
    }
    assert_served(&desk, &ada).await;
    let ends = flood.iter_mut().map(|stream| Box::pin(status(stream)));
    let (first, ..) = at_once("who made room", select_all(ends)).await;
    assert_eq!(first, None, "it was closed, and not answered");
}

/// Who shows a session that may be none has no more than who shows none.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_are_none_are_looked_up_in_a_share() {
    let world = World::new().await;
    let desk = Desk::start(&world).await;
    // While it is locked, looking up takes its time.
    let lock = world.session(Role::Login).await;
    let order = "BEGIN; LOCK TABLE sessions";
    lock.batch_execute(order).await.unwrap();
    let host = desk.url.strip_prefix("http://").unwrap();
    let head = format!(
        "GET / HTTP/1.1\r\nhost: {host}\r\nx-forwarded-for: 192.0.2.1\r\n\
         cookie: letterbox={}\r\n\r\n",
        "0a".repeat(32)
    );
    let mut flood = Vec::new();
    for _ in 0..64 {
        let mut stream = TcpStream::connect(host).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        flood.push(stream);
    }
    // The others wait.
    let statuses = flood.iter_mut().map(|stream| {
        let status = status(stream);
        tokio::time::timeout(AT_ONCE / 2, status)
    });
    let statuses = futures_util::future::join_all(statuses).await;
    drop(lock);
    let refused = statuses.iter().filter(|status| **status == Ok(Some(429)));
    assert_eq!(refused.count(), 32, "{statuses:?}");
}

/// Before anybody is known, little is read, and not for long.
#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_has_little_to_say() {
    let world = World::new().await;
    let desk = Desk::start(&world).await;
    let began = Instant::now();
    let mut slow = slow_post(&desk, "192.0.2.1", "/sign-in", 100).await;
    let stranger = Visitor::new(&desk.url);
    let long = "x".repeat(4_100);
    let refused = stranger.send("/sign-in", &[("token", &long)]).await;
    assert_eq!(refused.status(), 400);
    let parts = "--XX\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\nx\r\n--XX--\r\n";
    let media_type = "multipart/form-data; boundary=XX";
    let refused = stranger
        .post("/sign-in", media_type, parts.to_owned())
        .await;
    assert_eq!(refused.status(), 400);
    // What only a person may post is not waited for.
    for path in ["/forms", "/policy", "/nothing"] {
        let mut post = slow_post(&desk, "192.0.2.1", path, 60_000).await;
        assert_eq!(at_once(path, status(&mut post)).await, Some(303));
    }
    assert_eq!(status(&mut slow).await, Some(400));
    let took = began.elapsed();
    assert!(took > AT_ONCE && took < Duration::from_secs(15), "{took:?}");
}
