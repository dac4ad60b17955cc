//! E-mail, through the server that the operator names.

use letterbox_common::process::{networks::is_loopback, secret_setting::SecretSetting};
use lettre::{
    AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor,
    address::AddressError,
    message::{Mailbox, header::ContentType},
    transport::smtp,
};
use url::Url;
use uuid::Uuid;

/// The server that takes e-mail.
pub(crate) const SMTP_URL: SecretSetting = SecretSetting {
    name: "LETTERBOX_SMTP_URL",
    about: "Server that takes e-mail, smtps://USER:PASSWORD@HOST or \
            smtp://USER:PASSWORD@HOST:587?tls=required; without it none is sent",
};

/// Why an e-mail was not sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MailError {
    #[error("the address can't be written to: {0}")]
    Address(#[from] AddressError),
    #[error("{0}")]
    Message(#[from] lettre::error::Error),
    #[error("the mail server: {0}")]
    Server(#[from] smtp::Error),
}

/// Sends e-mail from one address.
#[derive(Clone)]
pub(crate) struct Mailer {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
}

impl Mailer {
    /// Connects to nothing yet. Warns if others could read what is sent.
    pub(crate) fn new(url: &str, from: &str) -> Result<Self, MailError> {
        if is_in_clear(url) {
            tracing::warn!(
                "LETTERBOX_SMTP_URL: e-mail may be in clear text, with links to sign in and the \
                 password; use smtps:// or ?tls=required unless the network is trusted"
            );
        }
        Ok(Self {
            transport: AsyncSmtpTransport::<Tokio1Executor>::from_url(url)?.build(),
            from: from.parse()?,
        })
    }

    /// Sends a text once. The same id marks the same e-mail, however often it is tried.
    pub(crate) async fn send(
        &self,
        to: &str,
        id: Uuid,
        subject: &str,
        text: String,
    ) -> Result<(), MailError> {
        let domain = self.from.email.domain();
        let message = Message::builder()
            .from(self.from.clone())
            .to(Mailbox::new(None, to.parse()?))
            .message_id(Some(format!("<{id}@{domain}>")))
            .subject(subject)
            .header(ContentType::TEXT_PLAIN)
            .body(text)?;
        self.transport.send(message).await?;
        Ok(())
    }
}

/// Whether the connection to the server could be eavesdropped on.
fn is_in_clear(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| {
        let is_required = url
            .query_pairs()
            .any(|pair| pair == ("tls".into(), "required".into()));
        let is_here = url.host_str().is_some_and(is_loopback);
        url.scheme() == "smtp" && !is_required && !is_here
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_without_tls_is_in_clear() {
        for (url, expected) in [
            ("smtp://ada:secret@mail.example:587", true),
            ("smtp://mail.example?tls=opportunistic", true),
            ("smtp://mail.example?tls=required", false),
            ("smtps://mail.example", false),
            ("smtp://127.0.0.1:25", false),
            ("smtp://localhost", false),
        ] {
            assert_eq!(is_in_clear(url), expected, "{url}");
        }
    }
}
