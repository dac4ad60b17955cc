//! Where requests of runs may go.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use letterbox_tests::{
    Authority, Peer, Reply, Scene, World, assert_hides, assert_tells, command_file, post,
};
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

#[tokio::test]
async fn requests_leave_for_the_open_internet_only() {
    let inner = Peer::start(|_, _| Reply::Status(200)).await;
    let (world, gateway) = World::with_gateway().await;
    let _worker = world.worker_with(&[("LETTERBOX_EGRESS_ALLOW", "")]).await;
    let plain = world.form(&gateway).await;
    let port = inner.url.rsplit(':').next().unwrap().to_owned();
    let hosts = [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "2130706433",
        "0x7f.1",
        "127.1",
        "169.254.169.254",
        "10.0.0.1",
    ];
    let mut failed = 0;
    let mut assert_fails = async |url: &str, why: &str| {
        failed += 1;
        let name = format!("account {failed}");
        world.connect_for(&plain, &name, url).await;
        let mut action = post("send");
        action["account"] = name.into();
        let form = world.redeployed(&gateway, &plain, json!([action])).await;
        world.submit_until(&form, "k", "failed", failed).await;
        world.assert_failed(&form, why).await;
    };
    for host in hosts {
        assert_fails(&format!("http://{host}:{port}"), "private or reserved").await;
    }
    assert_eq!(inner.received(), []);

    // Not in clear, and not to other ports.
    assert_fails("http://192.0.43.8", "by https on port 443").await;
    assert_fails("https://192.0.43.8:25", "by https on port 443").await;
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = Peer::start(|_, _| Reply::Status(200)).await;
    let location = target.url.clone();
    let peer = Peer::start(move |_, _| {
        Reply::With(307, vec![("location", location.clone())], String::new())
    })
    .await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let (world, form) = (&scene.world, &scene.form);
    scene.submit_until("k", "failed", 1).await;
    world.assert_failed(form, "307").await;
    assert_eq!((peer.received().len(), target.received().len()), (1, 0));
}

/// A server behind TLS that answers 200 to whatever it gets; how many requests it has got.
async fn https(acceptor: TlsAcceptor) -> Https {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("https://localhost:{port}");
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = requests.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            if stream
                .read(&mut [0; 4_096])
                .await
                .is_ok_and(|read| read > 0)
            {
                counted.fetch_add(1, Relaxed);
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                let _ = stream.write_all(answer).await;
                let _ = stream.shutdown().await;
            }
        }
    });
    Https { url, requests }
}

struct Https {
    url: String,
    requests: Arc<AtomicUsize>,
}

fn named(name: &str) -> CertificateParams {
    CertificateParams::new(vec![name.to_owned()]).unwrap()
}

/// A proxy that takes whoever knows its password to this port, whatever name is asked for, and
/// remembers what it was asked.
async fn proxy(inner: u16) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let told = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                head.push(char::from(stream.read_u8().await.unwrap()));
            }
            let is_known = head.contains("Basic dXNlcjpwQHNz");
            told.lock().unwrap().push(head);
            if !is_known {
                let answer = b"HTTP/1.1 407 Who?\r\ncontent-length: 0\r\n\r\n";
                stream.write_all(answer).await.unwrap();
                continue;
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            let mut server = TcpStream::connect(("127.0.0.1", inner)).await.unwrap();
            tokio::spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
            });
        }
    });
    (port, asked)
}

/// Names go to the proxy of the settings, which wants a password; addresses are checked here. The
/// server's certificate is of an authority of the settings.
#[tokio::test(flavor = "multi_thread")]
async fn requests_leave_through_a_proxy() {
    let private = Authority::default();
    let server = https(private.acceptor("crm.example")).await;
    let (port, asked) = proxy(server.url.parse::<url::Url>().unwrap().port().unwrap()).await;
    let file = |name: &str, text: &str| {
        let name = format!("{name}-{}", uuid::Uuid::new_v4());
        let path = letterbox_tests::folder().join(letterbox_tests::command_file(&name, text));
        path.to_str().unwrap().to_owned()
    };
    let authorities = private.file().to_str().unwrap().to_owned();
    let password = file("proxy", &format!("http://user:p%40ss@127.0.0.1:{port}\n"));
    let (world, gateway) = World::with_gateway().await;
    let settings = [
        ("LETTERBOX_EGRESS_CA_FILE", &*authorities),
        ("LETTERBOX_EGRESS_PROXY_FILE", &password),
        ("LETTERBOX_EGRESS_ALLOW", ""),
    ];
    let _worker = world.worker_with(&settings).await;
    let form_at = async |url: &str| {
        let form = world.acting_form(&gateway, url, json!([post("send")]));
        let form = form.await;
        form.assert_accepts("k").await;
        form
    };
    form_at("https://crm.example").await;
    world.await_state("succeeded", 1).await;
    assert_eq!(server.requests.load(Relaxed), 1);
    for (number, (url, why)) in (1..).zip([
        ("https://10.0.0.1", "private or reserved"),
        ("https://localhost", "private or reserved"),
        ("http://crm.example", "by https on port 443"),
        ("https://crm.example:25", "by https on port 443"),
    ]) {
        let form = form_at(url).await;
        world.await_state("failed", number).await;
        world.assert_failed(&form, why).await;
    }
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 1, "{asked:?}");
    let connect = "CONNECT crm.example:443 ";
    assert!(asked[0].starts_with(connect), "{asked:?}");
    let doctor = world.read("doctor");
    let told = format!("actions leave through http://127.0.0.1:{port}, ");
    assert_tells(&doctor, &[&told]);
    assert_hides(&doctor, &["p%40ss", "p@ss"]);

    let with_path = "http://user:canary@127.0.0.1:1/path";
    for (setting, value) in [
        ("LETTERBOX_EGRESS_PROXY", "socks5://user:canary@127.0.0.1:1"),
        ("LETTERBOX_EGRESS_PROXY", with_path),
        ("LETTERBOX_EGRESS_CA_FILE", &*password),
    ] {
        let mut refused = world.start("letterbox-worker", &[(setting, value)]);
        assert!(!refused.ended().await.success(), "{value}");
        assert_tells(&refused.log(), &[setting]);
        assert_hides(&refused.log(), &["canary", "p%40ss"]);
    }
}

/// A credential goes to a server that proves who it is, and to no other.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_certificate_gets_nothing() {
    let (trusted, unknown) = (Authority::default(), Authority::default());
    let roots = trusted.file();
    let mut expired = named("localhost");
    expired.not_before = rcgen::date_time_ymd(2001, 1, 1);
    expired.not_after = rcgen::date_time_ymd(2001, 1, 2);

    let (world, gateway) = World::with_gateway().await;
    let settings = [
        ("SSL_CERT_FILE", roots.to_str().unwrap()),
        ("LETTERBOX_EGRESS_ALLOW", "127.0.0.1,::1"),
        ("LETTERBOX_RETRY_MILLISECONDS", "2"),
    ];
    let _worker = world.worker_with(&settings).await;
    for (number, acceptor) in (1..).zip([
        trusted.acceptor_of(expired),
        trusted.acceptor("other.example"),
        unknown.acceptor("localhost"),
    ]) {
        let server = https(acceptor).await;
        let actions = json!([post("send")]);
        let form = world.acting_form(&gateway, &server.url, actions).await;
        world.submit_until(&form, "k", "failed", number).await;
        let failure = world.run_of(&form).await.row.failure.unwrap();
        assert!(failure.contains("certificate"), "{failure}");
        assert_eq!(server.requests.load(Relaxed), 0, "{failure}");
    }
    let server = https(trusted.acceptor("localhost")).await;
    let actions = json!([post("send")]);
    let form = world.acting_form(&gateway, &server.url, actions).await;
    world.submit_until(&form, "k", "succeeded", 1).await;
    assert_eq!(server.requests.load(Relaxed), 1);
}

/// An account's server is shown the account's certificate; another credential needs one, too.
#[tokio::test(flavor = "multi_thread")]
async fn an_account_shows_its_certificate() {
    let (private, clients) = (Authority::default(), Authority::default());
    let acceptor = private.acceptor_for(Some(&clients), named("localhost"));
    let server = https(acceptor).await;
    let file =
        |name: &str, text: &str| command_file(&format!("{name}-{}", uuid::Uuid::new_v4()), text);
    let pair = || {
        let key = KeyPair::generate().unwrap();
        let certificate = clients.sign(named("letterbox"), &key);
        let key = file("key.pem", &key.serialize_pem());
        (file("certificate.pem", &certificate.pem()), key)
    };
    let [(certificate, key), (other, other_key)] = [pair(), pair()];
    let (world, gateway) = World::with_gateway().await;
    let authorities = private.file();
    let settings = [
        ("LETTERBOX_EGRESS_CA_FILE", authorities.to_str().unwrap()),
        ("LETTERBOX_EGRESS_ALLOW", "127.0.0.1,::1"),
        ("LETTERBOX_RETRY_MILLISECONDS", "2"),
    ];
    let _worker = world.worker_with(&settings).await;
    let plain = world.form(&gateway).await;
    let shown = |certificate: &str, key: &str| {
        format!("--no-credential --client-certificate-file {certificate} --client-key-file {key}")
    };
    let connect = |name: &str, secret: &str| {
        world.letterbox(format!(
            "account connect --workspace {} --user {} --name {name} --base-url {} {secret}",
            plain.workspace, plain.owner, server.url
        ))
    };
    let refused = |output: std::process::Output, why: &str| {
        assert!(!output.status.success());
        assert_tells(&String::from_utf8(output.stderr).unwrap(), &[why]);
    };
    for wrong in [shown(&certificate, &other_key), shown(&key, &key)] {
        refused(connect("crm", &wrong), "belong together");
    }
    for (name, secret) in [
        ("bare", "--no-credential"),
        ("shown", &shown(&certificate, &key)),
    ] {
        assert!(connect(name, secret).status.success(), "{name}");
    }
    let run = async |account: &str, state: &str, nth: i64| {
        let mut action = post("send");
        action["account"] = account.into();
        let form = world.redeployed(&gateway, &plain, json!([action])).await;
        world.submit_until(&form, "k", state, nth).await;
    };
    run("bare", "failed", 1).await;
    assert_eq!(server.requests.load(Relaxed), 0);
    run("shown", "succeeded", 1).await;
    let accounts = world.order(format!("account list --workspace {}", plain.workspace));
    let shows = |one: &serde_json::Value| one["has_certificate"] == (one["name"] == "shown");
    assert!(accounts.as_array().unwrap().iter().all(shows), "{accounts}");
    let rotate = |secret: &str| world.letterbox(format!("account rotate shown {secret}"));
    refused(rotate("--no-credential"), "give that again");
    assert!(rotate(&shown(&other, &other_key)).status.success());
    run("shown", "succeeded", 2).await;
    assert_eq!(server.requests.load(Relaxed), 2);
}
