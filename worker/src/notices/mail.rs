//! E-mail, through the server that the operator names.

use letterbox_common::process::secret_setting::SecretSetting;
use lettre::{
    AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor,
    address::AddressError,
    message::{Mailbox, header::ContentType},
    transport::smtp,
};
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
    /// Connects to nothing yet.
    ///
    /// # Errors
    /// When the URL or the address is invalid.
    pub(crate) fn new(url: &str, from: &str) -> Result<Self, MailError> {
        Ok(Self {
            transport: AsyncSmtpTransport::<Tokio1Executor>::from_url(url)?.build(),
            from: from.parse()?,
        })
    }

    /// Sends a text once. The same id marks the same e-mail, however often it is tried.
    ///
    /// # Errors
    /// When the server does not take it.
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
