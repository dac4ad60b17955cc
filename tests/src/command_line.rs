//! The operator command line, as people and programs use it.

use std::process::{Command, Output};

use serde_json::Value;

use crate::{World, binary, servers::folder};

/// A file for a command; its name, which commands find.
pub fn command_file(name: &str, text: &str) -> String {
    std::fs::write(folder().join(name), text).unwrap();
    name.to_owned()
}

/// The cells of a table: each line is a row, with `|` between its cells.
pub fn table<const N: usize>(text: &str) -> Vec<[&str; N]> {
    let rows = text.trim().lines().map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        cells.try_into().expect("as many cells in each row")
    });
    rows.collect()
}

/// Asserts that what was told has these members, beside others; and so within them.
#[track_caller]
pub fn assert_holds(told: &Value, expected: Value) {
    for (name, value) in expected.as_object().unwrap() {
        if value.is_object() {
            assert_holds(&told[name], value.clone());
        } else {
            assert_eq!(told[name], *value, "{name}: {told}");
        }
    }
}

/// Asserts that a text has all of these words.
#[track_caller]
pub fn assert_tells(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word} is not in {text}");
    }
}

/// Asserts that a text has none of these words.
#[track_caller]
pub fn assert_hides(text: &str, words: &[&str]) {
    for word in words {
        assert!(!text.contains(word), "{word} is in {text}");
    }
}

/// The one of a list that has this in a member.
#[track_caller]
pub fn one_of<'v>(list: &'v Value, member: &str, value: &str) -> &'v Value {
    let mut all = list.as_array().unwrap().iter();
    let one = all.find(|one| one[member] == value);
    one.unwrap_or_else(|| panic!("no {member} is {value}: {list:#}"))
}

impl World {
    /// Runs `letterbox` with a command whose words are separated by one space each.
    pub fn letterbox(&self, command: impl AsRef<str>) -> Output {
        self.letterbox_with(&[], command)
    }

    /// The same, with settings beside or instead of the usual ones.
    pub fn letterbox_with(&self, settings: &[(&str, &str)], command: impl AsRef<str>) -> Output {
        self.letterbox_of("letterbox", settings, command)
    }

    /// The same, of another version.
    pub fn letterbox_of(
        &self,
        program: &str,
        settings: &[(&str, &str)],
        command: impl AsRef<str>,
    ) -> Output {
        Command::new(binary(program))
            .args(command.as_ref().split(' '))
            .current_dir(folder())
            .env_clear()
            .envs([
                ("DATABASE_URL", self.database_url.as_str()),
                ("LETTERBOX_WEBHOOK_KEYS", &self.webhook_keys),
                ("LETTERBOX_ACCOUNT_KEYS", &self.account_keys),
            ])
            .envs(settings.iter().copied())
            .output()
            .unwrap()
    }

    /// What a command gives to programs.
    pub fn order(&self, command: impl AsRef<str>) -> Value {
        self.order_with(&[], command)
    }

    /// The same, with settings beside or instead of the usual ones.
    pub fn order_with(&self, settings: &[(&str, &str)], command: impl AsRef<str>) -> Value {
        let command = command.as_ref();
        let output = self.letterbox_with(settings, format!("{command} --json"));
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {told}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Exit code of a command that looks whether all is well, and what it gives to programs.
    pub fn judge(&self, settings: &[(&str, &str)], command: &str) -> (i32, Value) {
        let output = self.letterbox_with(settings, format!("{command} --json"));
        let told = String::from_utf8_lossy(&output.stderr);
        let found = serde_json::from_slice(&output.stdout);
        let found = found.unwrap_or_else(|error| panic!("{command}: {error}: {told}"));
        (output.status.code().unwrap(), found)
    }

    /// What people read of a command.
    pub fn read(&self, command: impl AsRef<str>) -> String {
        String::from_utf8(self.letterbox(command).stdout).unwrap()
    }

    /// Asserts that a command is not carried out, and what is said of that.
    pub fn assert_refused(&self, command: impl AsRef<str>, words: &str) {
        let (code, told) = self.refusal(command);
        assert!(code == 1 && told.contains(words), "{code}: {told}");
    }

    /// Exit code and message of a command that is not carried out.
    pub fn refusal(&self, command: impl AsRef<str>) -> (i32, String) {
        let output = self.letterbox(command);
        assert!(output.stdout.is_empty(), "errors go to standard error");
        let message = String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), message)
    }
}
