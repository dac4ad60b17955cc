//! Where people and tools reach Letterbox, and the links that are shown to them.

use letterbox_common::webhook::WebhookAddress;
use url::Url;

/// The addresses of the gateway, the app and the desk, as those see them who use them.
#[derive(Debug, Clone, clap::Args)]
pub struct Addresses {
    /// Address of the gateway as senders see it; begins the URLs that are shown
    #[arg(
        long,
        global = true,
        help_heading = "Addresses",
        env = "LETTERBOX_BASE_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:8080"
    )]
    base_url: Url,

    /// Address of the app; begins the form links that are shown [default: the base URL]
    #[arg(
        long,
        global = true,
        help_heading = "Addresses",
        env = "LETTERBOX_APP_URL",
        value_name = "URL"
    )]
    app_url: Option<Url>,

    /// Address of the desk as people see it: begins the links to sign in with, and pages of no
    /// other may send anything to the desk
    #[arg(
        long,
        global = true,
        help_heading = "Addresses",
        env = "LETTERBOX_DESK_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:8082"
    )]
    pub desk_url: Url,
}

impl Addresses {
    /// The gateway's address, without a slash at its end.
    pub fn base(&self) -> &str {
        self.base_url.as_str().trim_end_matches('/')
    }

    /// The app's address, without a slash at its end.
    pub fn app(&self) -> &str {
        let app = self.app_url.as_ref().unwrap_or(&self.base_url);
        app.as_str().trim_end_matches('/')
    }

    /// The desk's address, without a slash at its end.
    pub fn desk(&self) -> &str {
        self.desk_url.as_str().trim_end_matches('/')
    }

    /// The form link with this token.
    pub fn form_url(&self, token: &str) -> String {
        format!("{}/forms?token={token}", self.app())
    }

    /// The link to sign in with this token.
    pub fn sign_in_url(&self, token: &str) -> String {
        format!("{}/sign-in?token={token}", self.desk())
    }

    /// The URL of the webhook with this address.
    pub fn webhook_url(&self, address: WebhookAddress) -> String {
        format!("{}/webhooks/incoming/{address}", self.base())
    }
}
