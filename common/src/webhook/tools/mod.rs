//! The tools that are known: how each signs, what it asks, what is worth keeping of its headers,
//! and how it is set up. `tools.toml` is all there is to say of them; nothing else names one.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    str::FromStr,
    sync::LazyLock,
};

use serde::{Deserialize, Serialize};

use super::scheme::{Headers, Rules, WebhookRequest};
use crate::{as_text::serde_as_text, secret::Secret};

/// How many tools are named that send one header.
const MAX_SHOWN: usize = 4;

/// A tool that sends to a webhook: one of the table, or `custom`, of which the webhook itself has
/// the rules.
#[derive(Clone, Copy)]
pub struct Tool(&'static Described);

/// What is known of a tool.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Described {
    /// Its name, in lower case.
    #[serde(skip)]
    pub name: String,
    /// How its vendor writes that.
    pub title: String,
    /// How it signs; `None` for `custom` only.
    rules: Option<Rules>,
    /// The tool that signs in the same way.
    #[serde(default)]
    like: Option<String>,
    /// Who makes the secret.
    #[serde(default)]
    pub secret_from: SecretMaker,
    /// Headers that are kept of its deliveries.
    #[serde(default)]
    pub kept: Vec<String>,
    /// Where the type of an event stands.
    pub kind: Option<KindPlace>,
    /// What makes two of its deliveries one, if that is not an equal body.
    pub same_by: Option<String>,
    /// What it does when an answer is no success, and for how long.
    pub retries: Option<String>,
    /// What of it won't work.
    pub cannot: Option<String>,
    /// The steps to set it up; `{url}` and `{secret}` stand for those of the webhook.
    #[serde(default)]
    pub setup: Vec<String>,
}

impl Described {
    /// The steps to set it up, for a webhook with this address and secret.
    pub fn steps(&self, url: &str, secret: Option<&str>) -> Vec<String> {
        let secret = secret.unwrap_or("its secret");
        let filled = |step: &String| step.replace("{url}", url).replace("{secret}", secret);
        self.setup.iter().map(filled).collect()
    }
}

/// Who makes the secret of a webhook.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SecretMaker {
    /// Letterbox: the owner pastes it into the tool.
    #[default]
    Ours,
    /// The tool, as soon as it knows the address, or before.
    Tool,
}

/// Where the type of an event stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KindPlace {
    /// In this header, which is kept.
    Header(String),
    /// At this JSON pointer (RFC 6901) of the body.
    Pointer(String),
}

/// There is no tool of this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no tool {0:?} is known; `letterbox webhook tools` lists them, and custom takes rules")]
pub struct UnknownTool(String);

static TOOLS: LazyLock<Vec<Described>> = LazyLock::new(|| {
    #[expect(
        clippy::expect_used,
        reason = "the table is part of the program, and tested"
    )]
    read(include_str!("tools.toml")).expect("the table of tools is valid")
});

/// Reads the table; in the order of names.
fn read(table: &str) -> Result<Vec<Described>, String> {
    let table: BTreeMap<String, Described> =
        toml::from_str(table).map_err(|error| error.to_string())?;
    let rules_of = |tool: &Described| match &tool.like {
        Some(like) if tool.rules.is_none() => table.get(like)?.rules.clone(),
        _ => tool.rules.clone(),
    };
    let rules: Vec<_> = table.values().map(rules_of).collect();
    let described = table.into_iter().zip(rules);
    let described = described.map(|((name, tool), rules)| {
        if let Some(rules) = &rules {
            rules.check().map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(Described {
            name,
            rules,
            ..tool
        })
    });
    described.collect()
}

impl Tool {
    /// All of them, in the order of their names.
    pub fn all() -> impl Iterator<Item = Self> {
        TOOLS.iter().map(Self)
    }

    /// Letterbox's own way to sign: 64 hexadecimal digits over the body.
    pub fn letterbox() -> Self {
        Self::known("letterbox")
    }

    /// As standardwebhooks.com specifies.
    pub fn standard_webhooks() -> Self {
        Self::known("standard-webhooks")
    }

    #[expect(clippy::expect_used, reason = "a test looks each of them up")]
    fn known(name: &str) -> Self {
        name.parse().expect("the tool is in the table")
    }

    /// How it signs; `None` for `custom`, whose rules each webhook has.
    pub fn rules(self) -> Option<Rules> {
        self.0.rules.clone()
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        &self.0.name
    }

    /// What is known of it.
    pub fn described(self) -> &'static Described {
        self.0
    }
}

/// The names of tools that sign as this request is signed, with this secret, as they are told to
/// the owner of a webhook; `None` if none is known.
pub fn tools_that_fit(secret: &Secret, request: &WebhookRequest<'_>, now: u64) -> Option<String> {
    let fit = TOOLS.iter().filter(|tool| {
        let rules = tool.rules.as_ref();
        rules.is_some_and(|rules| rules.fits(secret, request, now))
    });
    listed(&fit.map(|tool| &*tool.name).collect::<Vec<_>>())
}

/// The first of these names; `None` if there is none.
fn listed(names: &[&str]) -> Option<String> {
    let shown = names.iter().take(MAX_SHOWN).copied().collect::<Vec<_>>();
    let more = if names.len() > MAX_SHOWN { ", …" } else { "" };
    (!shown.is_empty()).then(|| format!("{}{more}", shown.join(", ")))
}

/// Which tools sign in headers that a request has, told to the owner of a webhook that expects
/// another header; `None` if none is known.
pub fn tools_of(headers: &Headers) -> Option<String> {
    static BY_HEADER: LazyLock<HashMap<&str, String>> = LazyLock::new(|| {
        let mut by_header = HashMap::<&str, Vec<&str>>::new();
        for tool in &*TOOLS {
            let names = tool.rules.iter().flat_map(|rules| rules.header.names());
            for name in names {
                by_header.entry(name).or_default().push(&tool.name);
            }
        }
        let told = by_header.into_iter().map(|(header, names)| {
            let names = listed(&names).unwrap_or_default();
            (header, format!("it has {header}, as sent by {names}"))
        });
        told.collect()
    });
    let mut found = headers
        .keys()
        .filter_map(|name| BY_HEADER.get(name.as_str()));
    found.next().cloned()
}

impl PartialEq for Tool {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Tool {}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tool({})", self.0.name)
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.name)
    }
}

impl FromStr for Tool {
    type Err = UnknownTool;

    fn from_str(name: &str) -> Result<Self, UnknownTool> {
        let found = TOOLS.binary_search_by(|tool| tool.name.as_str().cmp(name));
        let found = found.ok().and_then(|at| TOOLS.get(at));
        found.map(Self).ok_or_else(|| UnknownTool(name.to_owned()))
    }
}

serde_as_text!(Tool);
