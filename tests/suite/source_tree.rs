//! The tree keeps its shape: crates depend one way, SQL, HTTP and AMQP stay in their rooms, every
//! file says why it is there.

use std::path::{Path, PathBuf};

/// The folder of the project.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// The text of a file of the project.
pub fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Every Rust file below a folder with its path, relative to the project, and its text without
/// inline tests.
pub fn files(folder: &str) -> Vec<(String, String)> {
    let (mut found, mut folders) = (Vec::new(), vec![root().join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|one| one == "rs" || one == "sql")
            {
                let name = path.strip_prefix(root()).unwrap().to_string_lossy();
                let name = name.into_owned();
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((name, text.split("#[cfg(test)]").next().unwrap().to_owned()));
            }
        }
    }
    assert!(found.len() > 3, "{folder}");
    found
}

/// The lines of code of a file: no comments.
pub fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
}

/// Asserts that these words are only in files whose path contains one of the `allowed` places.
fn assert_only(folders: &[&str], words: &[&str], allowed: &[&str]) {
    for (name, text) in folders.iter().flat_map(|folder| files(folder)) {
        let hit = code(&text).find(|line| words.iter().any(|word| line.contains(word)));
        if let Some(line) = hit {
            let is_allowed = allowed.iter().any(|place| name.contains(place));
            assert!(is_allowed, "{name}: {line}");
        }
    }
}

/// Every crate of the services. Folders contain their nested crates.
pub const SERVICES: [&str; 3] = ["common", "gateway", "worker"];

#[test]
fn sql_is_in_stores() {
    let words = [
        "SELECT ",
        "INSERT INTO",
        "UPDATE ",
        "DELETE FROM",
        "pg_advisory",
    ];
    // A noun of the operator is one file, with its statements, and so is what workers do for all.
    let stores = [
        "store",
        "common/database/src/",
        "worker/operator/src/",
        "worker/src/upkeep/",
    ];
    assert_only(&SERVICES, &words, &stores);
    assert_only(&["worker/operator/src/bin"], &words, &[]);
}

/// Connections are acquired in one place, so that every call has a name, a time limit and a
/// latency.
#[test]
fn only_the_database_crate_acquires_connections() {
    let words = [
        "deadpool",
        "Pool",
        "connect_once",
        ".prepare_cached(",
        "tokio_postgres::connect",
    ];
    let allowed = [
        "common/database/",
        "worker/operator/src/lib.rs",
        "logging.rs",
    ];
    assert_only(&SERVICES, &words, &allowed);
}

#[test]
fn rows_are_read_by_name() {
    for (name, text) in SERVICES.into_iter().flat_map(files) {
        // A row of one column needs no name for it.
        if name == "common/database/src/row.rs" {
            continue;
        }
        for line in code(&text) {
            let by_number = line.split("try_get").skip(1).any(|rest| {
                let argument = rest.split_once('(').map_or("", |(_, argument)| argument);
                argument
                    .trim_start()
                    .starts_with(|c: char| c.is_ascii_digit())
            });
            assert!(!by_number, "{name}: {line}");
        }
    }
}

#[test]
fn amqp_is_in_its_rooms() {
    let rooms = [
        "common/broker/",
        "worker/src/consumer/",
        "worker/src/subscriptions/",
        "worker/consumers/",
        "worker/src/dead_letters.rs",
        "worker/src/apply.rs",
        "process/logging.rs",
    ];
    assert_only(&SERVICES, &["lapin"], &rooms);
}

#[test]
fn http_is_at_the_edge() {
    let edge = [
        "gateway/src/listener/",
        "gateway/src/router.rs",
        "gateway/src/handlers/",
        "gateway/src/error.rs",
        "gateway/src/response.rs",
        "gateway/src/request_id.rs",
        "gateway/src/cors.rs",
        "gateway/src/strict_head.rs",
        "gateway/src/body.rs",
        "gateway/src/trace.rs",
        "gateway/src/intake/webhook.rs",
        "gateway/src/intake/form.rs",
        "gateway/src/intake/content_type.rs",
        "gateway/src/form_page/",
        "gateway/src/fuzzing.rs",
        "process/admin.rs",
        "process/client_address.rs",
        "worker/desk/src/server.rs",
        "worker/desk/src/oidc.rs",
        "worker/trials/src/receive.rs",
    ];
    assert_only(&SERVICES, &["hyper::", "http_body"], &edge);
    assert_only(&SERVICES, &["axum"], &["worker/desk/src/"]);
    // The error envelope is HTTP, too: services return errors of their own.
    assert_only(&["gateway/src"], &["Refusal"], &edge);
    let clients = [
        "common/traces/src/export.rs",
        "worker/src/egress/",
        "worker/desk/src/oidc.rs",
        "worker/trials/src/http.rs",
        "worker/trials/src/prove/sending.rs",
        "bin/letterbox/dashboard.rs",
        "gateway/senders/",
    ];
    assert_only(&SERVICES, &["reqwest"], &clients);
}

/// Each crate, and the crates of the project that it may use.
#[test]
fn crates_depend_in_one_direction() {
    let allowed: [(&str, &[&str]); 11] = [
        ("common", &[]),
        ("common/broker", &["common", "traces"]),
        ("common/database", &["common", "database-derive"]),
        ("common/database/derive", &[]),
        ("common/form_page", &["common"]),
        ("common/traces", &["common"]),
        (
            "gateway",
            &["common", "broker", "database", "form-page", "traces"],
        ),
        ("worker/workflow", &["common"]),
        (
            "worker/operator",
            &["common", "broker", "database", "trials", "workflow"],
        ),
        ("worker/trials", &["common", "broker"]),
        (
            "worker",
            &["common", "broker", "database", "traces", "workflow"],
        ),
    ];
    for (folder, expected) in allowed {
        let manifest = read(&format!("{folder}/Cargo.toml"));
        let manifest = manifest.split("[dev-dependencies]").next().unwrap();
        let used = manifest
            .lines()
            .filter_map(|line| line.strip_prefix("letterbox-"));
        for name in used.map(|line| line.split('.').next().unwrap()) {
            assert!(expected.contains(&name), "{folder} uses {name}");
        }
    }
}

#[test]
fn the_language_of_workflows_does_no_io() {
    let words = [
        "tokio",
        "std::fs",
        "std::net",
        "std::env",
        "std::process",
        "letterbox_database",
    ];
    assert_only(&["worker/workflow"], &words, &[]);
}

/// What people read is written in one place: no text of four words or more is in two files.
#[test]
fn messages_are_written_once() {
    let mut places = std::collections::BTreeMap::<String, String>::new();
    for (name, text) in ["common", "gateway", "worker"].into_iter().flat_map(files) {
        if name.ends_with("/tests.rs") {
            continue;
        }
        let code: String = code(&text).collect::<Vec<_>>().join("\n");
        for literal in code.split('"').skip(1).step_by(2) {
            let literal = literal.split_whitespace().collect::<Vec<_>>();
            if literal.len() < 4 {
                continue;
            }
            let other = places.insert(literal.join(" "), name.clone());
            let is_alone = other.as_ref().is_none_or(|other| *other == name);
            assert!(is_alone, "{literal:?} is in {name} and in {other:?}");
        }
    }
    assert!(places.len() > 100, "{}", places.len());
}

#[test]
fn every_file_says_why_it_is_there() {
    let folders = ["common", "gateway", "worker", "tests"];
    for (name, text) in folders.into_iter().flat_map(files) {
        assert!(text.starts_with("//!"), "{name}");
    }
    for (name, text) in files("migrations") {
        assert!(text.starts_with("-- "), "{name}");
    }
}

#[test]
fn lines_have_at_most_100_columns() {
    for folder in ["common", "gateway", "worker", "tests", "migrations"] {
        for (name, _) in files(folder) {
            for (number, line) in read(&name).lines().enumerate() {
                assert!(line.chars().count() <= 100, "{name}:{}", number + 1);
            }
        }
    }
}
