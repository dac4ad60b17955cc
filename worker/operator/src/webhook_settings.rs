//! The settings of a webhook: what they say, whether they fit together, and the statements that
//! read and write them. Nothing else lists them.

use std::convert::Infallible;

use clap::Args;
use letterbox_common::{
    ids::{WebhookId, WorkspaceId},
    process::networks::Networks,
    sealing::Secret,
    text_enum,
    webhook::{KeptNames, Rules, Scheme, secret_for},
};
use letterbox_database::{FromRow, statements};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_postgres::error::SqlState;

use crate::{
    Operator, OperatorError, Reason, error::Explain, given, optional_json, strict::strict_json,
    workspace_settings::Nullable,
};

/// The columns of [`WebhookSettings`].
macro_rules! settings_columns {
    () => {
        "name, scheme, rules, allow_from, kept_headers, same_by"
    };
}
pub(crate) use settings_columns;

statements! {
    /// Creates a webhook.
    desk fn create_webhook(
        workspace: WorkspaceId, webhook: WebhookId, secret_sealed: &[u8], is_secret_later: bool,
        name: &str, scheme: Scheme, rules: Option<&str>, allow_from: Option<&str>,
        kept_headers: &[String], same_by: SameBy,
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
    #[serde(default, skip_serializing_if = "Option::is_none", with = "given")]
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
    pub same_by: Option<SameBy>,
    /// Where a new webhook's secret is; without it, one is made.
    #[arg(skip)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[row(default)]
    pub secret: Option<SecretFrom>,
}

text_enum! {
    /// What makes two deliveries one.
    pub enum SameBy {
        /// Equal bodies
        Body = "body",
        /// The id that the sender has given and signed
        Id = "id",
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
        let networks = self.networks();
        if let Some(networks) = networks {
            let parsed = networks.parse::<Networks>();
            parsed.map_err(|error| Reason::InvalidScheme(format!("networks: {error}")))?;
            if networks.trim().is_empty() {
                return Err(Reason::InvalidScheme("networks: name at least one".into()).into());
            }
        }
        for (what, text) in [("networks", networks), ("rules", text.as_deref())] {
            // The database would refuse it too, in its own words.
            let length = text.map_or(0, |text| text.chars().count());
            if length > MAX_TEXT {
                let told = format!("{what}: at most {MAX_TEXT} characters, not {length}");
                return Err(Reason::InvalidScheme(told).into());
            }
        }
        let kept = KeptNames::new(scheme, &rules, self.kept_headers());
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

    /// The scheme by which the tool signs.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme.unwrap_or(Scheme::Letterbox)
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
}

impl WebhookSettings {
    /// Stores the settings of a new webhook, which have been checked.
    pub(crate) async fn store(
        &self,
        operator: &Operator,
        workspace: WorkspaceId,
        webhook: WebhookId,
        secret_sealed: &[u8],
    ) -> Result<(), OperatorError> {
        let rules = self.rules_text();
        let created = create_webhook(
            &operator.database,
            workspace,
            webhook,
            secret_sealed,
            self.secret == Some(SecretFrom::Later),
            &self.name,
            self.scheme(),
            rules.as_deref(),
            self.networks(),
            self.kept_headers(),
            self.same_by.unwrap_or(SameBy::Body),
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
    ) -> Result<(), OperatorError> {
        let all = self.over(former);
        change_webhook(
            operator,
            workspace,
            webhook,
            all.networks(),
            all.kept_headers(),
        )
        .await
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
    // A secret of another form than the rules expect could verify nothing.
    let key = rules.key(&secret);
    key.map_err(|error| Reason::InvalidScheme(error.to_string()))?;
    Ok(secret)
}
