//! Where requests of runs may go.

use letterbox_tests::{Peer, Reply, World, definition_with, post};
use serde_json::json;

#[tokio::test]
async fn requests_leave_for_the_open_internet_only() {
    let world = World::new().await;
    let inner = Peer::start(|_, _| Reply::Status(200)).await;
    let gateway = world.gateway().await;
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
        world
            .connect(
                plain.workspace,
                plain.owner,
                &name,
                &format!("http://{host}:{port}"),
            )
            .await;
        let mut action = post("send");
        action["account"] = name.into();
        let form = world
            .form_of(
                &gateway,
                plain.workspace,
                plain.owner,
                &definition_with(json!([action])),
            )
            .await;
        form.assert_accepts("k").await;
        world.await_state("failed", n as i64 + 1).await;
        let failure = world.run_of(&form).await.row.failure.unwrap();
        assert!(failure.contains("private or reserved"), "{host}: {failure}");
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
        let failure = world.run_of(&form).await.row.failure.unwrap();
        assert!(failure.contains("by https on port 443"), "{url}: {failure}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let world = World::new().await;
    let target = Peer::start(|_, _| Reply::Status(200)).await;
    let location = target.url.clone();
    let peer = Peer::start(move |_, _| {
        Reply::With(307, vec![("location", location.clone())], String::new())
    })
    .await;
    let (gateway, _worker) = (world.gateway().await, world.worker().await);
    let form = world
        .acting_form(&gateway, &peer.url, json!([post("send")]))
        .await;
    form.assert_accepts("k").await;
    world.await_state("failed", 1).await;
    assert!(
        world
            .run_of(&form)
            .await
            .row
            .failure
            .unwrap()
            .contains("307")
    );
    assert_eq!((peer.received().len(), target.received().len()), (1, 0));
}
