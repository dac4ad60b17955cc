//! Settings that hold secrets: where they come from, and what is said when others could see them.

use std::process::Command;

use letterbox_tests::{World, assert_hides, assert_tells, binary, command_file};

#[tokio::test]
async fn secrets_come_from_files_as_well() {
    let world = World::new().await;
    let folder = letterbox_tests::folder();
    let file = |name: &str, text: &str| {
        let name = format!("{name}-{}", uuid::Uuid::new_v4());
        let path = folder.join(command_file(&name, text));
        path.to_str().unwrap().to_owned()
    };
    // As an editor leaves them.
    let database = file("database", &format!("{}\n", world.database_url));
    let keys = file("keys", &format!("{}\r\n", world.webhook_keys));
    let settings = [
        ("DATABASE_URL", ""),
        ("DATABASE_URL_FILE", &*database),
        ("LETTERBOX_WEBHOOK_KEYS", ""),
        ("LETTERBOX_WEBHOOK_KEYS_FILE", &keys),
    ];
    let gateway = world.gateway_with(&settings).await;
    let webhook = world.webhook(&gateway).await;
    assert!(webhook.send("1").await.is_first());

    let list = |url: &str, file: &str| {
        let settings = [("DATABASE_URL", url), ("DATABASE_URL_FILE", file)];
        world.letterbox_with(&settings, "workspace list")
    };
    let listed = list("", &database);
    assert!(listed.status.success(), "{listed:?}");
    for (url, file, says) in [
        ("", format!("{database}-nowhere"), "No such file"),
        ("", String::new(), "is missing: set it"),
        (&world.database_url, database, "is set, too"),
    ] {
        let refused = list(url, &file);
        let told = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{told}");
        assert_tells(&told, &[says]);
        assert_hides(&told, &["postgres://"]);
    }
}

/// Argument lists are readable for every user of a machine.
#[test]
fn no_flag_takes_a_secret() {
    for program in [
        "letterbox",
        "letterbox-gateway",
        "letterbox-worker",
        "letterbox-desk",
    ] {
        for flag in ["--database-url", "--amqp-url", "--sealing-keys", "--secret"] {
            let output = Command::new(binary(program))
                .args([flag, "canary"])
                .output()
                .unwrap();
            let told = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{program} {flag}: {told}");
            assert_tells(&told, &["unexpected argument"]);
        }
    }
}

#[tokio::test]
async fn what_others_could_see_is_warned_of() {
    let world = World::new().await;
    // Addresses that nobody has: nothing is sent to anybody.
    let far = [
        ("DATABASE_URL", "postgres://u:canary@192.0.2.1:5432/d"),
        ("AMQP_URL", "amqp://u:canary@192.0.2.1/v"),
    ];
    let verified = [
        (
            "DATABASE_URL",
            "postgres://u:canary@192.0.2.1:5432/d?sslmode=verify-full",
        ),
        ("AMQP_URL", "amqps://u:canary@192.0.2.1/v"),
    ];
    for (settings, warns) in [(far.as_slice(), true), (&verified, false), (&[], false)] {
        let gateway = world.start("letterbox-gateway", settings);
        gateway.await_log("listening").await;
        let log = gateway.log();
        assert_eq!(log.contains("server is not verified"), warns, "{log}");
        assert_eq!(log.contains("in clear text to another"), warns, "{log}");
        assert!(!log.contains("canary"), "{log}");
    }
}
