//! The settings of a webhook: what they say, whether they fit together, and the statements that
//! read and write them. Nothing else lists them.

use std::{convert::Infallible, fmt, str::FromStr};

use clap::Args;
use letterbox_common::{
    ids::{WebhookId, WorkspaceId},
    process::networks::Networks,
    sealing::Secret,
    webhook::{KeptNames, Rules, SameBy, Tool, generate_secret, secret_for},
};
use letterbox_database::{FromRow, statements};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_postgres::error::SqlState;

use crate::{
    Operator, Reason, Result, error::Explain, given, optional_json, strict::strict_json,
    workspace_settings::Nullable,
};

/// The columns of [`WebhookSettings`].
macro_rules! settings_columns {
    () => {
        "name, tool, rules, allow_from, kept_headers, same_by"
    };
}
pub(crate) use settings_columns;

statements! {
    /// Creates a webhook.
    desk fn create_webhook(
        workspace: WorkspaceId, webhook: WebhookId, secret_sealed: &[u8], is_secret_later: bool,
        name: &str, tool: &str, rules: Option<&str>, allow_from: Option<&str>,
        kept_headers: &[String], same_by: &str,
    ) = concat!("
INSERT INTO webhooks (workspace_id, webhook_id, secret_sealed, settable_until, ",
    settings_columns!(), ")
VALUES ($1, $2, $3, CASE WHEN $4 THEN 'infinity'::timestamptz END, $5, $6, $7, $8, $9, $10)");

    /// Creates the successor of a webhook, with the same settings, which ends after so many
    /// seconds.
    desk pub(crate) fn replace_webhook(
        workspace: WorkspaceId, former: WebhookId, successor: WebhookId, secret_sealed: &[u8],
        overlap_seconds: f64,
    ) -> u64 = concat!("
WITH former AS (
    UPDATE webhooks SET ends_at = clock_timestamp() + $5 * interval '1 second',
        memory_id = coalesce(memory_id, webhook_id)
    WHERE workspace_id = $1 AND webhook_id = $2 AND deleted_at IS NULL AND ends_at IS NULL
    RETURNING workspace_id, webhook_id, memory_id, ", settings_columns!(), "
)
INSERT INTO webhooks (workspace_id, webhook_id, secret_sealed, replaces, memory_id, ",
    settings_columns!(), ")
SELECT workspace_id, $3, $4, webhook_id, memory_id, ", settings_columns!(), " FROM former");

    /// Changes those settings of a webhook that may change.
    fn change_webhook(
        workspace: WorkspaceId, webhook: WebhookId, allow_from: Option<&str>,
        kept_headers: &[String],
    ) = "
UPDATE webhooks SET allow_from = $3, kept_headers = $4
WHERE workspace_id = $1 AND webhook_id = $2 AND deleted_at IS NULL";

    /// The settings of the webhooks of a workspace that are neither deleted nor replaced.
    pub(crate) fn live_webhooks(workspace: WorkspaceId) -> Vec<WebhookSettings> = concat!("
SELECT ", settings_columns!(), "
FROM webhooks WHERE workspace_id = $1 AND deleted_at IS NULL AND ends_at IS NULL
ORDER BY name, webhook_id");
}

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
    /// Which one that is, as 'webhook tools' lists them; custom takes --rules [default: letterbox]
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[row(with = known)]
    pub tool: Option<Tool>,
    /// The rules of a custom tool.
    #[arg(skip)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[row(with = optional_json)]
    pub rules: Option<Value>,
    /// Networks that the tool sends from; requests from elsewhere get a 401 [default: any]
    #[arg(long, value_name = "CIDR[,CIDR...]", value_parser = networks)]
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    #[row(with = Some)]
    pub allow_from: Option<Nullable<String>>,
    /// Headers that are kept with each signal, besides those of the tool; at most 8
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_headers: Option<Vec<String>>,
    /// What makes two deliveries one: an equal body, the id that the tool has given and signed, or
    /// what stands at a JSON pointer of the body, such as /data/id [default: body, if the tool's
    /// retries have equal bodies]
    #[arg(long, value_name = "body|id|POINTER")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[row(with = known)]
    pub same_by: Option<SameBy>,
    /// Where a new webhook's secret is; without it, one is made.
    #[arg(skip)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[row(default)]
    pub secret: Option<SecretFrom>,
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

/// One that is not known here, because a newer version has stored it, is shown as none.
fn known<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// The reason that a setting can't be used.
fn unusable(why: impl fmt::Display) -> Reason {
    Reason::InvalidWebhook(why.to_string())
}

/// The rules of a custom tool, of a JSON text.
pub fn rules_in(text: &str) -> Result<Value, Reason> {
    strict_json(text).map_err(|error| unusable(format_args!("rules: {error}")))
}

impl WebhookSettings {
    /// Those of a webhook of this name, and otherwise by default.
    pub fn of(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Checks all of them. Gives the rules, and the secret: that which the tool has given, or a new
    /// one.
    pub(crate) fn check(&self, given: Option<Secret>) -> Result<(Rules, Secret)> {
        let tool = self.tool();
        let text = self.rules_text();
        let rules = rules_of(tool, text.as_deref())?;
        let networks = self.networks();
        if let Some(networks) = networks {
            let parsed = networks.parse::<Networks>();
            parsed.map_err(|error| unusable(format_args!("networks: {error}")))?;
            if networks.trim().is_empty() {
                return Err(unusable("networks: name at least one").into());
            }
        }
        for (what, text) in [("networks", networks), ("rules", text.as_deref())] {
            // The database would refuse it too, in its own words.
            let length = text.map_or(0, |text| text.chars().count());
            if length > MAX_TEXT {
                let told = format_args!("{what}: at most {MAX_TEXT} characters, not {length}");
                return Err(unusable(told).into());
            }
        }
        KeptNames::new(tool, &rules, self.kept_headers()).map_err(unusable)?;
        if self.same_by() == SameBy::Id && rules.id_header.is_none() {
            return Err(unusable(format_args!("{tool} signs no id")).into());
        }
        let secret = match self.secret {
            // Nobody knows it.
            Some(SecretFrom::Later) => generate_secret()?,
            _ => usable_secret(&rules, given)?,
        };
        Ok((rules, secret))
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

    /// The tool that sends.
    pub fn tool(&self) -> Tool {
        self.tool.unwrap_or_else(Tool::letterbox)
    }

    fn same_by(&self) -> SameBy {
        let of_tool = || self.tool().described().same_by.as_deref()?.parse().ok();
        self.same_by.clone().or_else(of_tool).unwrap_or_default()
    }

    /// The networks that may send; `None` is all.
    fn networks(&self) -> Option<&str> {
        self.allow_from.as_ref()?.as_deref()
    }

    fn kept_headers(&self) -> &[String] {
        self.kept_headers.as_deref().unwrap_or_default()
    }

    fn rules_text(&self) -> Option<String> {
        self.rules.as_ref().map(Value::to_string)
    }

    /// Stores the settings of a new webhook, which have been checked.
    pub(crate) async fn store(
        &self,
        operator: &Operator,
        workspace: WorkspaceId,
        webhook: WebhookId,
        secret_sealed: &[u8],
    ) -> Result<()> {
        let rules = self.rules_text();
        let same_by = self.same_by().to_string();
        let created = create_webhook(
            &operator.database,
            workspace,
            webhook,
            secret_sealed,
            self.secret == Some(SecretFrom::Later),
            &self.name,
            self.tool().as_str(),
            rules.as_deref(),
            self.networks(),
            self.kept_headers(),
            &same_by,
        );
        let missing = Reason::NotFound("workspace");
        let created = created.await;
        created.explain(&SqlState::FOREIGN_KEY_VIOLATION, missing)
    }

    /// Changes those settings of a webhook that are given and may change.
    pub(crate) async fn change(
        &self,
        operator: &Operator,
        workspace: WorkspaceId,
        webhook: WebhookId,
        former: &Self,
    ) -> Result<()> {
        let all = self.over(former);
        let (networks, kept) = (all.networks(), all.kept_headers());
        change_webhook(operator, workspace, webhook, networks, kept).await
    }
}

/// The rules of a tool; `rules` is JSON text, for a custom one.
///
/// # Errors
/// When a custom tool is given no rules or wrong ones, or another tool is given some.
pub fn rules_of(tool: Tool, rules: Option<&str>) -> Result<Rules, Reason> {
    match (tool.rules(), rules) {
        (None, Some(text)) => Rules::parse(text).map_err(unusable),
        (Some(rules), None) => Ok(rules),
        (None, None) => Err(unusable("a custom tool needs rules")),
        (Some(_), Some(_)) => {
            let told = format_args!("{tool} has its own rules: use custom with yours");
            Err(unusable(told))
        }
    }
}

/// The secret that a sender has already, or its public key, if these rules can use it; else a new
/// one.
pub(crate) fn usable_secret(rules: &Rules, given: Option<Secret>) -> Result<Secret> {
    let secret = match given {
        Some(secret) if secret.expose().len() < MIN_SECRET => {
            let told = format_args!("a secret must have at least {MIN_SECRET} characters");
            return Err(unusable(told).into());
        }
        Some(secret) => secret,
        None => match secret_for(rules)? {
            Some(secret) => secret,
            None => {
                let told = "this tool signs with a key of its own: give its public key, or set it \
                            later";
                return Err(unusable(told).into());
            }
        },
    };
    // A secret of another form than the rules expect could verify nothing.
    rules.keys(&secret).map_err(unusable)?;
    Ok(secret)
}
