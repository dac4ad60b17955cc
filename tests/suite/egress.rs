//! Where requests of runs may go.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use letterbox_tests::{
    Peer, Reply, Scene, World, assert_hides, assert_tells, command_file, definition_with, post,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{pki_types::PrivatePkcs8KeyDer, server::WebPkiClientVerifier};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

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
    for (n, host) in hosts.iter().enumerate() {
        let name = format!("account {n}");
        let url = format!("http://{host}:{port}");
        world.connect_for(&plain, &name, &url).await;
        let mut action = post("send");
        action["account"] = name.into();
        let form = world.redeployed(&gateway, &plain, json!([action])).await;
        world.submit_until(&form, "k", "failed", n as i64 + 1).await;
        world.assert_failed(&form, "private or reserved").await;
    }
    assert_eq!(inner.received(), []);

    // Not in clear, and not to other ports.
    for (n, url) in ["http://192.0.43.8", "https://192.0.43.8:25"]
        .iter()
        .enumerate()
    {
        let name = format!("public {n}");
        let (workspace, owner) = (plain.workspace, plain.owner);
        world.connect(workspace, owner, &name, url).await;
        let mut action = post("send");
        action["account"] = name.into();
        let definition = definition_with(json!([action]));
        let form = world.form_of(&gateway, workspace, owner, &definition).await;
        form.assert_accepts("k").await;
        let before = (hosts.len() + n) as i64;
        world.await_state("failed", before + 1).await;
        world.assert_failed(&form, "by https on port 443").await;
    }
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
async fn https(certificate: &CertifiedIssuer<'_, KeyPair>, params: CertificateParams) -> Https {
    https_for(None, certificate, params).await
}

/// The same, for clients that show a certificate of this authority, if one is given.
async fn https_for(
    clients: Option<&CertifiedIssuer<'_, KeyPair>>,
    certificate: &CertifiedIssuer<'_, KeyPair>,
    params: CertificateParams,
) -> Https {
    let key = KeyPair::generate().unwrap();
    let own = params.signed_by(&key, certificate).unwrap();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let shown = clients.map(|authority| {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(authority.der().clone()).unwrap();
        let roots = Arc::new(roots);
        let shown = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
        shown.build().unwrap()
    });
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = match shown {
        Some(shown) => config.with_client_cert_verifier(shown),
        None => config.with_no_client_auth(),
    };
    let config = config
        .with_single_cert(vec![own.der().clone()], key.into())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
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

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
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
    let private = authority();
    let server = https(&private, named("crm.example")).await;
    let (port, asked) = proxy(server.url.parse::<url::Url>().unwrap().port().unwrap()).await;
    let file = |name: &str, text: &str| {
        let name = format!("{name}-{}", uuid::Uuid::new_v4());
        let path = letterbox_tests::folder().join(letterbox_tests::command_file(&name, text));
        path.to_str().unwrap().to_owned()
    };
    let authorities = file("authorities.pem", &private.pem());
    let password = file("proxy", &format!("http://user:p%40ss@127.0.0.1:{port}\n"));
    let (world, gateway) = World::with_gateway().await;
    let settings = [
        ("LETTERBOX_EGRESS_CA_FILE", &*authorities),
        ("LETTERBOX_EGRESS_PROXY_FILE", &password),
        ("LETTERBOX_EGRESS_ALLOW", ""),
    ];
    let _worker = world.worker_with(&settings).await;
    let form_at = async |url: &str| {
        let form = world
            .acting_form(&gateway, url, json!([post("send")]))
            .await;
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
    assert!(
        asked[0].starts_with("CONNECT crm.example:443 "),
        "{asked:?}"
    );
    let doctor = world.letterbox("doctor").stdout;
    let doctor = String::from_utf8(doctor).unwrap();
    assert_tells(
        &doctor,
        &[&format!("actions leave through http://127.0.0.1:{port}, ")],
    );
    assert_hides(&doctor, &["p%40ss", "p@ss"]);

    for (setting, value) in [
        ("LETTERBOX_EGRESS_PROXY", "socks5://user:canary@127.0.0.1:1"),
        (
            "LETTERBOX_EGRESS_PROXY",
            "http://user:canary@127.0.0.1:1/path",
        ),
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
    let (trusted, unknown) = (authority(), authority());
    let roots = format!("roots-{}.pem", uuid::Uuid::new_v4());
    let roots = letterbox_tests::command_file(&roots, &trusted.pem());
    let roots = letterbox_tests::folder().join(roots);
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
    for (number, (certificate, params)) in [
        (&trusted, expired),
        (&trusted, named("other.example")),
        (&unknown, named("localhost")),
    ]
    .into_iter()
    .enumerate()
    {
        let server = https(certificate, params).await;
        let actions = json!([post("send")]);
        let form = world.acting_form(&gateway, &server.url, actions).await;
        form.assert_accepts("k").await;
        world.await_state("failed", number as i64 + 1).await;
        let failure = world.run_of(&form).await.row.failure.unwrap();
        assert!(failure.contains("certificate"), "{failure}");
        assert_eq!(server.requests.load(Relaxed), 0, "{failure}");
    }
    let server = https(&trusted, named("localhost")).await;
    let actions = json!([post("send")]);
    let form = world.acting_form(&gateway, &server.url, actions).await;
    world.submit_until(&form, "k", "succeeded", 1).await;
    assert_eq!(server.requests.load(Relaxed), 1);
}

/// An account's server is shown the account's certificate; another credential needs one, too.
#[tokio::test(flavor = "multi_thread")]
async fn an_account_shows_its_certificate() {
    let (private, clients) = (authority(), authority());
    let server = https_for(Some(&clients), &private, named("localhost")).await;
    let file =
        |name: &str, text: &str| command_file(&format!("{name}-{}", uuid::Uuid::new_v4()), text);
    let pair = || {
        let key = KeyPair::generate().unwrap();
        let certificate = named("letterbox").signed_by(&key, &clients).unwrap();
        let key = file("key.pem", &key.serialize_pem());
        (file("certificate.pem", &certificate.pem()), key)
    };
    let [(certificate, key), (other, other_key)] = [pair(), pair()];
    let (world, gateway) = World::with_gateway().await;
    let authorities = letterbox_tests::folder().join(file("authorities", &private.pem()));
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
    refused(
        connect("crm", &shown(&certificate, &other_key)),
        "belong together",
    );
    refused(connect("crm", &shown(&key, &key)), "belong together");
    assert!(connect("bare", "--no-credential").status.success());
    assert!(
        connect("shown", &shown(&certificate, &key))
            .status
            .success()
    );
    let run = async |account: &str| {
        let mut action = post("send");
        action["account"] = account.into();
        let form = world.redeployed(&gateway, &plain, json!([action])).await;
        form.assert_accepts("k").await;
    };
    run("bare").await;
    world.await_state("failed", 1).await;
    assert_eq!(server.requests.load(Relaxed), 0);
    run("shown").await;
    world.await_state("succeeded", 1).await;
    let accounts = world.order(format!("account list --workspace {}", plain.workspace));
    let shows = |one: &serde_json::Value| one["has_certificate"] == (one["name"] == "shown");
    assert!(accounts.as_array().unwrap().iter().all(shows), "{accounts}");
    let rotate = |secret: &str| world.letterbox(format!("account rotate shown {secret}"));
    refused(rotate("--no-credential"), "give that again");
    assert!(rotate(&shown(&other, &other_key)).status.success());
    run("shown").await;
    world.await_state("succeeded", 2).await;
    assert_eq!(server.requests.load(Relaxed), 2);
}
