//! What the project depends on, as `cargo metadata` tells it: sources, licences, one TLS provider.
//! `.cargo/deny.toml` says the same to those who have `cargo-deny`, and asks for advisories.

use std::{collections::BTreeSet, process::Command};

use serde_json::Value;

use crate::source_tree::root;

/// Licences under which a dependency may come, each by itself or as one of a choice.
const LICENCES: [&str; 11] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
];

/// The one exception: it drives the browser of the tests and is in no program.
const TEST_TOOL: (&str, &str) = ("webdriver", "MPL-2.0");

/// What cargo prints.
fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(root())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    String::from_utf8(output.stdout).unwrap()
}

/// Of this platform: what others need was perhaps never downloaded.
fn metadata() -> Value {
    let version = cargo(&["-vV"]);
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let platform = format!("--filter-platform={}", host.unwrap());
    let told = cargo(&[
        "metadata",
        "--format-version=1",
        "--locked",
        "--offline",
        &platform,
    ]);
    serde_json::from_str(&told).unwrap()
}

/// Whether an SPDX expression is met by allowed licences: one of each choice.
fn is_allowed(expression: &str) -> bool {
    let spelled = expression.replace('/', " OR ");
    let alternatives = spelled
        .split(" OR ")
        .map(|part| part.trim_matches(['(', ')', ' ']));
    let met = |part: &str| {
        part.split(" AND ")
            .all(|one| LICENCES.contains(&one.trim_matches(['(', ')', ' '])))
    };
    let mut alternatives = alternatives.collect::<Vec<_>>().into_iter();
    if expression.contains(") AND") || expression.contains("AND (") {
        // Of `(A OR B) AND C` every part must be allowed.
        return alternatives.all(met);
    }
    alternatives.any(met)
}

#[test]
fn every_dependency_has_an_allowed_licence_and_one_source() {
    let metadata = metadata();
    let mut sources = BTreeSet::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let Some(source) = package["source"].as_str() else {
            assert!(name.starts_with("letterbox-"), "{name} comes from a path");
            continue;
        };
        sources.insert(source.to_owned());
        let licence = package["license"].as_str().unwrap_or_default();
        let is_test_tool = (name, licence) == TEST_TOOL;
        assert!(is_allowed(licence) || is_test_tool, "{name}: {licence:?}");
    }
    assert_eq!(sources.len(), 1, "{sources:?}");
    assert!(
        sources.iter().all(|source| source.starts_with("registry+")),
        "{sources:?}"
    );
}

#[test]
fn one_tls_provider_is_linked() {
    let metadata = metadata();
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap();
    let ids: Vec<&str> = nodes
        .iter()
        .map(|node| node["id"].as_str().unwrap())
        .collect();
    let has = |name: &str| ids.iter().any(|id| id.contains(&format!("#{name}@")));
    assert!(has("rustls") && has("ring"));
    for other in [
        "aws-lc-rs",
        "aws-lc-sys",
        "openssl",
        "openssl-sys",
        "native-tls",
        "boring",
    ] {
        assert!(!has(other), "{other} is linked beside ring");
    }
}

#[test]
fn licence_expressions_are_understood() {
    for good in [
        "MIT",
        "MIT OR GPL-3.0",
        "MIT/Apache-2.0",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
    ] {
        assert!(is_allowed(good), "{good}");
    }
    for bad in [
        "",
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "(MIT OR Apache-2.0) AND GPL-3.0",
    ] {
        assert!(!is_allowed(bad), "{bad}");
    }
}
