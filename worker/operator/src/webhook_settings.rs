//! The settings of a webhook: what they say, and whether they fit together.

use std::convert::Infallible;

use clap::{Args, ValueEnum};
use letterbox_common::{
    process::networks::Networks,
    sealing::Secret,
    webhook::{KeptNames, Rules, Scheme, secret_for},
};
use letterbox_database::FromRow;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    OperatorError, Reason, optional_json, strict::strict_json, workspace_settings::Nullable,
};

/// Longest list of networks, and longest rules, in characters: as their columns take them.
const MAX_TEXT: usize = 4_096;
/// Shortest secret that a tool may have given, in characters.
const MIN_SECRET: usize = 16;

/// The settings of a webhook: which tool sends to it, how that signs, and from where. A document
/// and the flags of the command line are this: what is `None` is left as it is, or by default.
#[derive(Debug, Clone, Default, PartialEq, Args, FromRow, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookSettings {
    /// The tool that will send to it
    #[arg(long)]
    pub name: String,
    /// The scheme by which that tool signs [default: letterbox]
    #[arg(
        long,
        value_name = "letterbox|github|stripe|slack|shopify|standard-webhooks|svix|custom"
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<Scheme>,
    /// The rules of a custom scheme.
    #[arg(skip)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[row(with = optional_json)]
    pub rules: Option<Value>,
    /// Networks that the tool sends from; requests from elsewhere get a 401 [default: any]
    #[arg(long, value_name = "CIDR[,CIDR...]", value_parser = networks)]
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::given"
    )]
    #[row(with = Some)]
    pub allow_from: Option<Nullable<String>>,
    /// Headers that are kept with each signal, besides those of the scheme; at most 8, for the
    /// schemes letterbox and custom
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_headers: Option<Vec<String>>,
    /// What makes two deliveries one: an equal body, or the id that the tool has given and signed
    /// (svix, standard-webhooks, and custom schemes with an id) [default: body]
    #[arg(long, value_name = "body|id")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[row(with = SameBy::given)]
    pub same_by: Option<SameBy>,
    /// Where a new webhook's secret is; without it, one is made.
    #[arg(skip)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[row(default)]
    pub secret: Option<SecretFrom>,
}

/// What makes two deliveries one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SameBy {
    /// Equal bodies
    Body,
    /// The id that the sender has given and signed
    Id,
}

impl SameBy {
    pub(crate) fn stored(is_by_id: bool) -> Self {
        if is_by_id { Self::Id } else { Self::Body }
    }

    fn given(is_by_id: bool) -> Option<Self> {
        Some(Self::stored(is_by_id))
    }
}

/// Where a secret is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretFrom {
    /// In this file.
    File(String),
    /// In this environment variable.
    Environment(String),
    /// It is set once the tool has issued it; until then nothing is accepted.
    Later,
}

/// Reads the secret of a new webhook; an error says why it can't.
pub type Secrets<'a> = dyn Fn(&SecretFrom) -> Result<Secret, String> + Sync + 'a;

fn networks(text: &str) -> Result<Nullable<String>, Infallible> {
    Ok(Some(text.to_owned()))
}

/// The rules of a custom scheme, of a JSON text.
pub fn rules_in(text: &str) -> Result<Value, Reason> {
    strict_json(text).map_err(|error| Reason::InvalidScheme(format!("rules: {error}")))
}

impl WebhookSettings {
    /// Those of a webhook of this name, and otherwise by default.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Checks all of them. Gives the secret: that which the tool has given, or a new one.
    pub(crate) fn check(&self, given: Option<Secret>) -> Result<Secret, OperatorError> {
        let scheme = self.scheme();
        let text = self.rules_text();
        let rules = rules_of(scheme, text.as_deref())?;
        let networks = self.allow_from.as_ref().and_then(Option::as_ref);
        if let Some(networks) = networks {
            let parsed = networks.parse::<Networks>();
            parsed.map_err(|error| Reason::InvalidScheme(format!("networks: {error}")))?;
            if networks.trim().is_empty() {
                return Err(Reason::InvalidScheme("networks: name at least one".into()).into());
            }
        }
        for (what, text) in [("networks", networks), ("rules", text.as_ref())] {
            let length = text.map_or(0, |text| text.chars().count());
            if length > MAX_TEXT {
                let told = format!("{what}: at most {MAX_TEXT} characters, not {length}");
                return Err(Reason::InvalidScheme(told).into());
            }
        }
        let kept = KeptNames::new(
            scheme,
            &rules,
            self.kept_headers.as_deref().unwrap_or_default(),
        );
        kept.map_err(|error| Reason::InvalidScheme(error.to_string()))?;
        if self.same_by == Some(SameBy::Id) && rules.id_header.is_none() {
            let why = format!("the scheme {scheme} signs no id");
            return Err(Reason::InvalidScheme(why).into());
        }
        usable_secret(&rules, given)
    }

    /// The secret that the tool has given, read from where it is.
    pub(crate) fn given_secret(&self, read: &Secrets<'_>) -> Result<Option<Secret>, Reason> {
        match &self.secret {
            None | Some(SecretFrom::Later) => Ok(None),
            Some(from) => read(from).map(Some).map_err(Reason::NoSecret),
        }
    }

    /// These settings, completed by the former ones.
    pub(crate) fn over(&self, former: &Self) -> Self {
        Self {
            allow_from: self.allow_from.clone().or(former.allow_from.clone()),
            kept_headers: self.kept_headers.clone().or(former.kept_headers.clone()),
            secret: None,
            ..former.clone()
        }
    }

    pub(crate) fn scheme(&self) -> Scheme {
        self.scheme.unwrap_or(Scheme::Letterbox)
    }

    pub(crate) fn rules_text(&self) -> Option<String> {
        self.rules.as_ref().map(Value::to_string)
    }
}

/// The rules of a scheme; `rules` is JSON text, for a custom scheme.
///
/// # Errors
/// When a custom scheme is given no rules or wrong ones, or another scheme is given some.
pub fn rules_of(scheme: Scheme, rules: Option<&str>) -> Result<Rules, Reason> {
    match (scheme.rules(), rules) {
        (None, Some(text)) => {
            Rules::parse(text).map_err(|error| Reason::InvalidScheme(error.to_string()))
        }
        (Some(rules), None) => Ok(rules),
        (None, None) => Err(Reason::InvalidScheme("a custom scheme needs rules".into())),
        (Some(_), Some(_)) => Err(Reason::InvalidScheme(format!("{scheme} has its own rules"))),
    }
}

/// The secret that a sender has already, if these rules can use it; else a new one.
pub(crate) fn usable_secret(rules: &Rules, given: Option<Secret>) -> Result<Secret, OperatorError> {
    let secret = match given {
        Some(secret) if secret.expose().len() < MIN_SECRET => {
            let told = format!("a secret must have at least {MIN_SECRET} characters");
            return Err(Reason::InvalidScheme(told).into());
        }
        Some(secret) => secret,
        None => secret_for(rules)?,
    };
    let key = rules.key(&secret);
    key.map_err(|error| Reason::InvalidScheme(error.to_string()))?;
    Ok(secret)
}
