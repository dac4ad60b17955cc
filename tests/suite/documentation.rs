//! The READMEs name everything that users and operators can name, and nothing that is not there.

use std::{collections::BTreeSet, process::Command};

use letterbox_broker::topology::{DEAD_LETTERS_QUEUE, work_queues};
use letterbox_common::form::FieldType;
use letterbox_tests::binary;

use crate::source_tree::{read, root};

const READMES: [&str; 9] = [
    "README.md",
    "common/README.md",
    "deploy/README.md",
    "gateway/README.md",
    "gateway/src/acceptance/README.md",
    "gateway/senders/README.md",
    "migrations/README.md",
    "tests/README.md",
    "worker/README.md",
];

const FOLDERS: [&str; 6] = [
    "common",
    "deploy",
    "gateway",
    "migrations",
    "tests",
    "worker",
];

fn help(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(binary(program))
        .args(arguments)
        .arg("--help")
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The commands that a help text lists, without `help` itself.
fn commands(help: &str) -> Vec<String> {
    let (_, listed) = help.split_once("Commands:\n").unwrap_or_default();
    listed
        .lines()
        .take_while(|line| line.starts_with("  "))
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|word| *word != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_is_documented() {
    let documentation = read("deploy/README.md");
    let (_, block) = documentation.split_once("```text\nletterbox ").unwrap();
    let block = block.split("```").next().unwrap();
    let orders: Vec<_> = block.split("\nletterbox ").collect();
    let nouns = commands(&help("letterbox", &[]));
    assert!(nouns.len() > 10, "{nouns:?}");
    for noun in &nouns {
        let of_noun = |order: &&str| order.split_whitespace().next() == Some(noun);
        let described: String = orders.iter().copied().filter(of_noun).collect();
        assert!(!described.is_empty(), "deploy/README.md lacks {noun}");
        for verb in commands(&help("letterbox", &[noun])) {
            let is_there = described
                .split(|c: char| !c.is_ascii_alphabetic() && c != '-')
                .any(|word| word == verb);
            assert!(is_there, "deploy/README.md lacks 'letterbox {noun} {verb}'");
        }
    }
}

/// What the command line takes is told somewhere, and what is told of a command is taken.
#[test]
fn every_option_is_documented() {
    let documentation = read("deploy/README.md");
    let (_, block) = documentation.split_once("```text\nletterbox ").unwrap();
    let block = block.split("```").next().unwrap();
    let told = options(&documentation);
    for noun in commands(&help("letterbox", &[])) {
        let mut taken = options(&help("letterbox", &[&noun]));
        for verb in commands(&help("letterbox", &[&noun])) {
            taken.extend(options(&help("letterbox", &[&noun, &verb])));
        }
        // Some are settings, and told as such.
        let is_setting = |option: &String| {
            let name = option[2..].replace('-', "_").to_ascii_uppercase();
            documentation.contains(&format!("`LETTERBOX_{name}`"))
        };
        let untold = taken.difference(&told);
        let untold: Vec<_> = untold.filter(|option| !is_setting(option)).collect();
        // What `deploy/up` gives to the demo is between the two.
        let is_told = untold.is_empty() || noun == "demo";
        assert!(is_told, "deploy/README.md on {noun}: {untold:?}");
        let orders = block.split("\nletterbox ");
        for order in orders.filter(|order| order.split_whitespace().next() == Some(&noun)) {
            let told = options(order);
            let unknown: Vec<_> = told.difference(&taken).collect();
            assert!(unknown.is_empty(), "letterbox {noun}: {unknown:?}");
        }
    }
}

/// Every `--option` in a text.
fn options(text: &str) -> BTreeSet<String> {
    let is_part = |one: char| one.is_ascii_lowercase() || one == '-';
    let words = text.split(|one: char| !is_part(one));
    let options = words.filter(|word| word.starts_with("--") && word.len() > 2);
    options.map(str::to_owned).collect()
}

#[test]
fn every_setting_is_documented() {
    let documentation = read("deploy/README.md");
    for program in [
        "letterbox",
        "letterbox-gateway",
        "letterbox-worker",
        "letterbox-desk",
    ] {
        let help = help(program, &[]);
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let settings = help.split("[env: ").skip(1);
        let settings = settings.filter_map(|rest| rest.split(['=', ']']).next());
        let settings: Vec<_> = settings.collect();
        assert!(settings.len() > 3, "{program}: {help}");
        for setting in settings {
            let cell = format!("`{setting}`");
            assert!(documentation.contains(&cell), "{program}: {setting}");
        }
    }
}

#[test]
fn every_queue_and_field_type_is_documented() {
    let operation = read("deploy/README.md");
    for queue in work_queues(1).into_iter().map(|queue| queue.name) {
        assert!(operation.contains(&format!("| `{queue}` |")), "{queue}");
    }
    assert!(operation.contains(&format!("| `{DEAD_LETTERS_QUEUE}` |")));
    let forms = read("gateway/README.md");
    for word in FieldType::WORDS {
        assert!(forms.contains(&format!("| `{word}` |")), "{word}");
    }
}

/// The anchor that a heading gets on the usual hosts.
fn anchor(heading: &str) -> String {
    let heading = heading.to_lowercase().replace(' ', "-");
    let is_kept = |c: &char| c.is_alphanumeric() || ['-', '_'].contains(c);
    heading.chars().filter(is_kept).collect()
}

#[test]
fn links_lead_somewhere() {
    for file in READMES {
        let text = read(file);
        let folder = root().join(file).parent().unwrap().to_owned();
        let links = text.split("](").skip(1);
        let links = links.filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://")) {
            let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => root().join(file),
                path => folder.join(path),
            };
            assert!(target.exists(), "{file}: {link}");
            if !fragment.is_empty() {
                let text = std::fs::read_to_string(target).unwrap();
                let mut headings = text
                    .lines()
                    .filter(|line| line.starts_with('#'))
                    .map(|line| anchor(line.trim_start_matches('#').trim()));
                // A second heading of the same words is numbered.
                let first = fragment.trim_end_matches(|c: char| c.is_ascii_digit());
                let first = first.trim_end_matches('-');
                let leads = headings.any(|heading| heading == fragment || heading == first);
                assert!(leads, "{file}: {link}");
            }
        }
    }
}

#[test]
fn every_migration_is_documented() {
    let readme = read("migrations/README.md");
    for file in root().join("migrations").read_dir().unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let row = format!("| `{name}` |");
        assert!(readme.contains(&row) || !name.ends_with(".sql"), "{name}");
    }
}

/// Paths in backticks that begin with a folder of the project exist.
#[test]
fn named_files_exist() {
    for file in READMES {
        let text = read(file);
        for path in text.split('`').skip(1).step_by(2) {
            let folder = path.split_once('/').map(|(folder, _)| folder);
            let is_plain = !path.contains([' ', '*', '…', '<', '{', '\n']);
            if is_plain && folder.is_some_and(|folder| FOLDERS.contains(&folder)) {
                assert!(root().join(path).exists(), "{file}: {path}");
            }
        }
    }
}

/// The walks of common/README.md lead from file to file. A path that does not begin at the root
/// begins at the folder of the one before it, or above that; what else a step names stands in one
/// of its files.
#[test]
fn the_walks_through_the_code_lead_somewhere() {
    let text = read("common/README.md");
    let (_, walks) = text.split_once("## Paths through the code").unwrap();
    let walks = walks.split("\n## ").next().unwrap();
    let begins = |line: &str| {
        let line = line.trim_start();
        line.starts_with("- ") || line.starts_with(|first: char| first.is_ascii_digit())
    };
    let mut steps: Vec<String> = Vec::new();
    for line in walks.lines() {
        match steps.last_mut() {
            Some(step) if !begins(line) && !line.starts_with('#') => *step += line,
            _ => steps.push(line.to_owned()),
        }
    }
    let (mut folder, mut found) = (root(), 0);
    for step in &steps {
        let (paths, names): (Vec<&str>, Vec<&str>) = step
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|name| !name.starts_with("letterbox."))
            .partition(|name| [".rs", ".sql", "/"].iter().any(|end| name.ends_with(end)));
        let mut said = String::new();
        for path in paths {
            let here = folder.clone();
            let file = here.ancestors().map(|above| above.join(path));
            let file = file
                .take_while(|file| file.starts_with(root()))
                .find(|file| file.exists());
            let file = file.unwrap_or_else(|| panic!("{step}: {path}"));
            if file.is_file() {
                said += &std::fs::read_to_string(&file).unwrap();
                folder = file.parent().unwrap().to_owned();
                found += 1;
            }
        }
        for name in names {
            let word = name.rsplit("::").next().unwrap();
            assert!(said.contains(word), "{step}: nothing here says {name}");
        }
    }
    assert!(found > 70, "{found}");
}

#[test]
fn the_readme_for_newcomers_is_short() {
    assert!(read("README.md").split_whitespace().count() <= 1_500);
}

/// Whoever runs Letterbox by a unit, in containers or in a cluster gives it settings that there
/// are.
#[test]
fn every_way_to_run_it_gives_settings_that_there_are() {
    let readme = read("deploy/README.md");
    let files = [
        "deploy/Containerfile",
        "deploy/compose.yaml",
        "deploy/chart/values.yaml",
        "deploy/chart/templates/gateway.yaml",
        "deploy/chart/templates/worker.yaml",
        "deploy/systemd/gateway.env",
        "deploy/systemd/worker.env",
        "deploy/systemd/letterbox-gateway.service",
        "deploy/systemd/letterbox-worker.service",
        "deploy/systemd/desk.env",
        "deploy/systemd/letterbox-desk.service",
    ];
    let mut found = 0;
    for file in files {
        let text = read(file);
        let words = text.split(|one: char| !one.is_ascii_uppercase() && one != '_');
        for word in words.filter(|word| word.starts_with("LETTERBOX_")) {
            let setting = word.trim_end_matches("_FILE");
            assert!(readme.contains(&format!("`{setting}`")), "{file}: {word}");
            found += 1;
        }
    }
    assert!(found > 20, "{found}");
}
