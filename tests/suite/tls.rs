//! TLS to both servers: with the right authority it works, with a wrong one it does not.

use std::path::Path;

use letterbox_database::{Role, connect_once};
use letterbox_operator::migrate;
use letterbox_tests::{PrivateBroker, PrivateDatabase, World, value};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// Writes an authority's certificate, and a server's certificate and key made under it.
fn certificates(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let mut authority = CertificateParams::new(vec![]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let server = CertificateParams::new(vec!["127.0.0.1".into()])
        .unwrap()
        .signed_by(&key, &authority)
        .unwrap();
    std::fs::write(folder.join("ca.pem"), authority.pem()).unwrap();
    std::fs::write(folder.join("server.pem"), server.pem()).unwrap();
    for user in ["postgres", "rabbitmq"] {
        std::fs::write(folder.join(format!("{user}.key")), key.serialize_pem()).unwrap();
    }
    // The servers' users must read what is theirs, where they are not the user of the tests.
    let mut own = std::process::Command::new("sh");
    own.args([
        "-c",
        "chmod 755 .; chmod 644 *.pem; chmod 600 *.key
         [ $(id -u) != 0 ] || { chown postgres postgres.key; chown rabbitmq rabbitmq.key; }",
    ])
    .current_dir(folder);
    run(&mut own);
}

fn run(command: &mut std::process::Command) {
    assert!(command.status().unwrap().success());
}

#[tokio::test]
async fn a_delivery_travels_over_tls_on_both_legs() {
    // Where the server's user can read it, wherever the project is.
    let folder =
        std::env::temp_dir().join(format!("letterbox-tls-{}", uuid::Uuid::new_v4().simple()));
    certificates(&folder);
    certificates(&folder.join("other"));
    let path = |file: &str| folder.join(file).display().to_string();

    let options = format!(
        "-c ssl=on -c ssl_cert_file={} -c ssl_key_file={}",
        path("server.pem"),
        path("postgres.key")
    );
    let database = PrivateDatabase::start(&options);
    let require = format!("{}?sslmode=require", database.url());
    let roots = format!("{}?sslmode=verify-full", database.url());
    let verified = format!("{roots}&sslrootcert={}", path("ca.pem"));
    let wrong = format!("{roots}&sslrootcert={}", path("other/ca.pem"));
    migrate(&require.parse().unwrap()).await.unwrap();
    let connect = async |url: &str| {
        let target = url.parse().unwrap();
        connect_once(&target, Role::Login, "test").await
    };
    // An unknown authority is refused.
    for url in [&wrong, &roots] {
        assert!(connect(url).await.is_err());
    }
    let client = connect(&require).await.unwrap();
    let encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    assert!(value::<bool>(&client, encrypted).await);

    let port = 20_000 + std::process::id() % 10_000;
    let settings = format!(
        "listeners.ssl.1 = 127.0.0.1:{port}\nssl_options.certfile = {}\n\
         ssl_options.keyfile = {}\nssl_options.cacertfile = {}",
        path("server.pem"),
        path("rabbitmq.key"),
        path("ca.pem"),
    );
    let broker = PrivateBroker::start(&settings);
    let plain = url::Url::parse(&broker.url()).unwrap();
    let password = plain.password().unwrap();
    let tls = format!("amqps://letterbox:{password}@127.0.0.1:{port}/%2f");
    let with_roots = |file: &str| format!("{tls}?cacertfile={}", path(file));

    let world = World::on(verified, with_roots("ca.pem")).await;
    let (gateway, _worker) = (world.gateway().await, world.worker().await);
    let webhook = world.webhook(&gateway).await;
    assert!(webhook.send("1").await.is_first());
    world.await_signals(1).await;

    let wrong = with_roots("other/ca.pem");
    let distrusting = world.start("letterbox-gateway", &[("AMQP_URL", &wrong)]);
    distrusting.await_log("broker connection ended").await;
    assert!(!distrusting.is_whole().await);
    std::fs::remove_dir_all(folder).unwrap();
}
