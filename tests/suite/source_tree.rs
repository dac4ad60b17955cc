//! The tree keeps its shape: imports point one way, SQL, HTTP and AMQP stay in their rooms, every
//! file says why it is there.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// Every Rust file below a folder with its path, relative to the project, and its text without
/// inline tests.
fn files(folder: &str) -> Vec<(String, String)> {
    let (mut found, mut folders) = (Vec::new(), vec![root().join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path
                    .strip_prefix(root())
                    .unwrap()
                    .to_string_lossy()
                    .into_owned();
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((name, text.split("#[cfg(test)]").next().unwrap().to_owned()));
            }
        }
    }
    assert!(found.len() > 3, "{folder}");
    found
}

fn assert_only(folders: &[&str], words: &[&str], allowed: &[&str]) {
    for (name, text) in folders.iter().flat_map(|folder| files(folder)) {
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        let hit = code
            .into_iter()
            .find(|line| words.iter().any(|word| line.contains(word)));
        if let Some(line) = hit {
            assert!(
                allowed.iter().any(|place| name.contains(place)),
                "{name}: {line}"
            );
        }
    }
}

const SERVICES: [&str; 3] = ["common/src", "gateway/src", "worker/src"];

#[test]
fn sql_is_in_stores() {
    let words = [
        "SELECT ",
        "INSERT INTO",
        "UPDATE ",
        "DELETE FROM",
        "pg_advisory",
    ];
    assert_only(&SERVICES, &words, &["store", "common/src/database/"]);
}

#[test]
fn amqp_is_in_its_rooms() {
    let rooms = [
        "common/src/broker/",
        "worker/src/consumer/",
        "worker/src/dead_letters.rs",
        "worker/src/apply.rs",
        "worker/src/executor/outbox/mod.rs",
        "process/logging.rs",
    ];
    assert_only(&SERVICES, &["lapin"], &rooms);
}

#[test]
fn http_is_at_the_edge() {
    let edge = [
        "listener/",
        "router.rs",
        "handlers/",
        "error.rs",
        "answer.rs",
        "cors.rs",
        "body.rs",
        "trace.rs",
        "intake/webhook.rs",
        "intake/form.rs",
        "client_address.rs",
        "form_page.rs",
        "intake/content_type.rs",
        "process/admin.rs",
        "bin/letterbox/receive.rs",
    ];
    assert_only(&SERVICES, &["hyper::", "http_body"], &edge);
}

#[test]
fn services_do_not_know_each_other() {
    assert_only(
        &["common/src"],
        &["letterbox_gateway::", "letterbox_worker::"],
        &[],
    );
    assert_only(&["gateway/src"], &["letterbox_worker::"], &[]);
    assert_only(&["worker/src"], &["letterbox_gateway::"], &[]);
}

#[test]
fn every_file_says_why_it_is_there() {
    for (name, text) in ["common", "gateway", "worker", "tests"]
        .into_iter()
        .flat_map(files)
    {
        assert!(text.starts_with("//!"), "{name}");
    }
}
