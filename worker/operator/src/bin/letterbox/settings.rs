//! The settings of the command line, parsed once. Which of them a command needs, it says itself.

use letterbox_common::{
    process::settings::{SecretText, SettingError},
    sealing::KeyRing,
};
use letterbox_database::DatabaseTarget;
use letterbox_operator::{Operator, OperatorError};
use url::Url;

/// Settings of every command.
#[derive(clap::Args)]
pub(crate) struct CliSettings {
    /// Print one JSON object or array instead of a table
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// PostgreSQL, as postgres://USER:PASSWORD@HOST:PORT/DATABASE[?sslmode=...]
    #[arg(
        long,
        global = true,
        env = "DATABASE_URL",
        value_name = "URL",
        hide_env_values = true
    )]
    database_url: Option<SecretText>,

    /// Sealing keys, as ID:KEY[,ID:KEY...], each key 64 hexadecimal digits; the first one seals
    #[arg(
        long,
        global = true,
        env = "LETTERBOX_SEALING_KEYS",
        value_name = "KEYS",
        hide_env_values = true
    )]
    sealing_keys: Option<SecretText>,

    /// Address of the gateway as senders see it; begins the URLs that are printed
    #[arg(
        long,
        global = true,
        env = "LETTERBOX_BASE_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:8080"
    )]
    base_url: Url,

    /// Address of the app; begins the form links that are printed [default: the base URL]
    #[arg(long, global = true, env = "LETTERBOX_APP_URL", value_name = "URL")]
    app_url: Option<Url>,
}

impl CliSettings {
    pub(crate) fn database(&self) -> Result<DatabaseTarget, SettingError> {
        self.database_url()?.parse()
    }

    pub(crate) fn database_url(&self) -> Result<&str, SettingError> {
        let missing = || SettingError::new("DATABASE_URL", "must be set");
        Ok(self.database_url.as_ref().ok_or_else(missing)?.expose())
    }

    pub(crate) fn keys(&self) -> Result<KeyRing, SettingError> {
        let invalid = |error| SettingError::new("LETTERBOX_SEALING_KEYS", error);
        self.sealing_keys()?.parse().map_err(invalid)
    }

    pub(crate) fn sealing_keys(&self) -> Result<&str, SettingError> {
        let missing = || SettingError::new("LETTERBOX_SEALING_KEYS", "must be set");
        Ok(self.sealing_keys.as_ref().ok_or_else(missing)?.expose())
    }

    pub(crate) async fn operator(&self) -> Result<Operator, OperatorError> {
        Operator::connect(&self.database()?).await
    }

    /// The gateway's address, without a slash at its end.
    pub(crate) fn base(&self) -> &str {
        self.base_url.as_str().trim_end_matches('/')
    }

    /// The app's address, without a slash at its end.
    pub(crate) fn app(&self) -> &str {
        let app = self.app_url.as_ref().unwrap_or(&self.base_url);
        app.as_str().trim_end_matches('/')
    }

    /// The form link with this token.
    pub(crate) fn form_url(&self, token: &str) -> String {
        format!("{}/forms?token={token}", self.app())
    }

    /// The URL of the webhook with this address.
    pub(crate) fn webhook_url(&self, address: impl std::fmt::Display) -> String {
        format!("{}/webhooks/incoming/{address}", self.base())
    }
}
