//! The API of RabbitMQ's dashboard: users of the broker who read one queue and nothing else, and
//! what it says of nodes, queues and users.

use std::time::Duration;

use letterbox_broker::AMQP_URL;
use letterbox_common::{
    RandomError, Token,
    process::{secret_setting::SecretSetting, settings::SettingError},
};
use letterbox_trials::{client, describe};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use url::Url;

/// RabbitMQ's dashboard, with its password.
pub(crate) const DASHBOARD_URL: SecretSetting = SecretSetting {
    name: "LETTERBOX_DASHBOARD_URL",
    about: "RabbitMQ's dashboard, as http://USER:PASSWORD@HOST:PORT/: 'demo' names it, and 'signal \
            subscribe --login' and 'doctor' use it",
};

const TIMEOUT: Duration = Duration::from_secs(10);
/// Limits of a user who reads one queue: the broker is shared.
const MOST_OPEN: [(&str, u32); 2] = [("max-connections", 50), ("max-channels", 200)];

/// The outcome of what is asked or ordered.
type Result<T, E = DashboardError> = std::result::Result<T, E>;

/// Why a user of the broker was not made or deleted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DashboardError {
    #[error("a login has 1 to 100 letters, digits and _ . -")]
    Name,
    #[error("the broker has a user {0:?} already: give another name")]
    Exists(String),
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error(transparent)]
    Random(#[from] RandomError),
    #[error("RabbitMQ's dashboard: {0}")]
    Http(String),
}

impl From<reqwest::Error> for DashboardError {
    fn from(error: reqwest::Error) -> Self {
        // The address has the dashboard's password in it.
        Self::Http(describe(&error.without_url()))
    }
}

/// RabbitMQ's dashboard, and the virtual host of the queues.
pub(crate) struct Dashboard {
    dashboard: Url,
    /// Percent-encoded.
    virtual_host: String,
}

impl Dashboard {
    pub(crate) fn from_environment() -> Result<Self, SettingError> {
        let dashboard = DASHBOARD_URL.require()?;
        let malformed = |name| move |_| SettingError::new(name, "is no URL");
        let dashboard = Url::parse(dashboard.expose()).map_err(malformed(DASHBOARD_URL.name))?;
        let broker = AMQP_URL.require()?;
        let first = broker.expose().split(',').next().unwrap_or_default().trim();
        let broker = Url::parse(first).map_err(malformed(AMQP_URL.name))?;
        let virtual_host = match broker.path().trim_start_matches('/') {
            "" => "%2f".to_owned(),
            given => given.to_owned(),
        };
        Ok(Self {
            dashboard,
            virtual_host,
        })
    }

    /// Makes a user who may read this queue; gives the password.
    pub(crate) async fn make_login(&self, login: &str, queue: &str) -> Result<Token> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        if !(1..=100).contains(&login.len()) || !login.chars().all(is_plain) {
            return Err(DashboardError::Name);
        }
        let user = format!("users/{login}");
        match self.ask(Method::GET, &user, None).await? {
            (StatusCode::NOT_FOUND, _) => {}
            (StatusCode::OK, _) => return Err(DashboardError::Exists(login.to_owned())),
            (status, text) => return Err(DashboardError::Http(format!("{status} {text}"))),
        }
        let password = Token::generate()?;
        let given = json!({ "password": password.expose(), "tags": "" });
        self.order(Method::PUT, &user, Some(given)).await?;
        // The names of queues have no other letter that means something here.
        let only = format!("^{}$", queue.replace('.', "\\."));
        let rights = json!({ "configure": "^$", "write": "^$", "read": only });
        let rights_at = format!("permissions/{}/{login}", self.virtual_host);
        let limits = MOST_OPEN.map(|(what, most)| {
            (
                format!("user-limits/{login}/{what}"),
                json!({ "value": most }),
            )
        });
        for (path, given) in limits.into_iter().chain([(rights_at, rights)]) {
            if let Err(error) = self.order(Method::PUT, &path, Some(given)).await {
                self.delete_login(login).await?;
                return Err(error);
            }
        }
        Ok(password)
    }

    /// Deletes a user, if there is one.
    pub(crate) async fn delete_login(&self, login: &str) -> Result<()> {
        self.order(Method::DELETE, &format!("users/{login}"), None)
            .await
    }

    /// Requests a path of the management API.
    pub(crate) async fn read(&self, path: &str) -> Result<Value> {
        match self.ask(Method::GET, path, None).await? {
            (status, text) if status.is_success() => {
                serde_json::from_str(&text).map_err(|error| DashboardError::Http(error.to_string()))
            }
            (status, text) => Err(DashboardError::Http(format!("{path}: {status} {text}"))),
        }
    }

    /// The same, of the virtual host.
    pub(crate) async fn read_of_host(&self, what: &str) -> Result<Value> {
        self.read(&format!("{what}/{}", self.virtual_host)).await
    }

    async fn order(&self, method: Method, path: &str, body: Option<Value>) -> Result<()> {
        let is_deleting = method == Method::DELETE;
        match self.ask(method, path, body).await? {
            (status, _) if status.is_success() => Ok(()),
            (StatusCode::NOT_FOUND, _) if is_deleting => Ok(()),
            (status, text) => Err(DashboardError::Http(format!("{status} {text}"))),
        }
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<(StatusCode, String)> {
        let mut url = self.dashboard.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{base}/api/{path}"));
        let mut request = client(TIMEOUT)?.request(method, url);
        if let Some(body) = body {
            request = request
                .header("content-type", "application/json")
                .body(body.to_string());
        }
        let answer = request.send().await?;
        Ok((answer.status(), answer.text().await?))
    }
}
