//! Identity: sign-in links, trusted OpenID Connect issuers, and the sessions that both begin.

use jiff::Timestamp;
use letterbox_common::{Token, ids::UserId, process::networks::is_confidential};
use letterbox_database::{Database, FromRow, statements};
use serde::Serialize;
use tokio_postgres::error::SqlState;
use url::Url;

use crate::{Operator, Orderer, Reason, Result, asking::Sought, check_name, error::Explain};

statements! {
    /// Creates a sign-in link for a user, and deletes the user's expired ones.
    fn make_sign_in_link(user: UserId, token_sha256: &[u8]) -> (Timestamp,) = "
WITH over AS (
    DELETE FROM sign_in_links WHERE user_id = $1 AND expires_at < clock_timestamp()
)
INSERT INTO sign_in_links (token_sha256, user_id) VALUES ($2, $1) RETURNING expires_at";

    /// Ends the sessions of a user, and their links and subjects.
    fn sign_out_user(user: UserId) -> SignedOut = "
SELECT $1::uuid AS user_id, sign_out($1) AS sessions";

    /// Trusts an issuer for sign-ins at the desk.
    fn trust_issuer(issuer: &str) = "
INSERT INTO issuers (issuer) VALUES ($1) ON CONFLICT DO NOTHING";

    /// Takes that back, with what the issuer knows users as.
    fn distrust_issuer(issuer: &str) -> u64 = "DELETE FROM issuers WHERE issuer = $1";

    /// The issuers that are trusted, with how many users each knows.
    fn issuers() -> Vec<Issuer> = "
SELECT i.issuer, (SELECT count(*) FROM subjects s WHERE s.issuer = i.issuer) AS users
FROM issuers i ORDER BY i.issuer";

    /// Unbinds a user from the issuer's subject.
    fn unbind_issuer(issuer: &str, user: UserId) -> u64 = "
DELETE FROM subjects WHERE issuer = $1 AND user_id = $2";

    /// Begins a session for an issuer's subject.
    desk fn begin_session_by(
        issuer: &str, subject: &str, email: Option<&str>, former: Option<Vec<u8>>, session: &[u8],
    ) -> (Option<UserId>,) = "SELECT begin_session_by($1, $2, $3, $4, $5) AS user_id";

    /// The user of a sign-in link.
    desk fn sign_in_link(link: &[u8], browser: Option<Vec<u8>>) -> Option<LivingLink> = "
SELECT email, is_here FROM sign_in_link($1, $2)";

    /// Begins a session for a link, which is used up.
    desk fn begin_session(
        link: &[u8], browser: Option<Vec<u8>>, email: Option<&str>, former: Option<Vec<u8>>,
        session: &[u8],
    ) -> (Option<UserId>,) = "SELECT begin_session($1, $2, $3, $4, $5) AS user_id";

    /// Requests a sign-in link for an e-mail address, if it is a user's.
    desk fn ask_sign_in_link(email: &str, client: &str, browser: &[u8]) = "
SELECT ask_sign_in_link($1, $2::text::inet, $3)";

    /// The user of a session, whose last use is updated.
    desk fn greet() -> Option<Person> = "SELECT user_id, email, name FROM greet()";

    /// Says the name of who acts.
    desk fn call_me(name: &str) = "SELECT call_me($1)";

    /// Ends the session that the transaction names.
    desk fn end_session() = "SELECT end_session()";
}

/// A person who has proven who they are.
#[derive(Debug, Clone, PartialEq, Eq, FromRow, Serialize)]
pub struct Person {
    /// The user.
    pub user_id: UserId,
    /// As it was given.
    pub email: String,
    /// The user's name, for people.
    pub name: String,
}

/// A link with which a user signs in, once.
#[derive(Debug)]
pub struct SignInLink {
    /// The user.
    pub user_id: UserId,
    /// When it expires.
    pub expires_at: Timestamp,
    /// The link's token. It isn't stored.
    pub token: Token,
}

/// The user of a sign-in link.
#[derive(Debug, Clone, PartialEq, Eq, FromRow, Serialize)]
pub struct LivingLink {
    /// The user's e-mail address.
    pub email: String,
    /// Whether this browser asked for it; another one must also give the e-mail address.
    pub is_here: bool,
}

/// The browser that signs in.
#[derive(Debug, Clone, Default)]
pub struct Browser {
    /// The network address of the client.
    pub address: String,
    /// The session that it has, which ends when another begins.
    pub session: Option<Token>,
    /// The token that it got when it asked for a link.
    pub asked_with: Option<Token>,
    /// The e-mail address that was given in it.
    pub email: Option<String>,
}

impl From<&str> for Browser {
    /// One that has and keeps nothing, at this network address.
    fn from(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            ..Self::default()
        }
    }
}

fn hash(token: Option<&Token>) -> Option<Vec<u8>> {
    Some(token?.hash().to_vec())
}

/// What a sign-out has ended.
#[derive(Debug, Clone, PartialEq, Eq, FromRow, Serialize)]
pub struct SignedOut {
    /// The user.
    pub user_id: UserId,
    /// How many sessions they had.
    pub sessions: i64,
}

/// An issuer of OpenID Connect.
#[derive(Debug, Clone, PartialEq, Eq, FromRow, Serialize)]
pub struct Issuer {
    /// The URL by which it calls itself.
    pub issuer: String,
    /// How many users have signed in by it.
    pub users: i64,
}

/// A person as an OpenID Connect issuer identifies them.
#[derive(Debug, Clone)]
pub struct Vouched {
    /// The URL by which the issuer calls itself.
    pub issuer: String,
    /// The person, as the issuer names them.
    pub subject: String,
    /// The e-mail address, if the issuer has verified it.
    pub email: Option<String>,
}

/// The desk's side of a sign-in.
fn signing_in(desk: &Database, browser: &Browser) -> Database {
    desk.saying([
        ("letterbox.address", browser.address.clone()),
        ("letterbox.command", "sign in".to_owned()),
    ])
}

impl Operator {
    /// Makes a link with which a user signs in to the desk, within ten minutes and once.
    pub async fn make_sign_in_link(&self, user: UserId) -> Result<SignInLink> {
        let token = Token::generate()?;
        let made = make_sign_in_link(&self.database, user, &token.hash()).await;
        let missing = Reason::NotFound("user");
        let (expires_at,) = made.explain(&SqlState::FOREIGN_KEY_VIOLATION, missing)?;
        Ok(SignInLink {
            user_id: user,
            expires_at,
            token,
        })
    }

    /// Ends a user's sessions and sign-in links, and unbinds the user from issuers.
    pub async fn sign_out_user(&self, user: UserId) -> Result<SignedOut> {
        sign_out_user(self, user).await
    }

    /// Trusts an issuer: people whose verified e-mail address is a user's can sign in at the desk.
    ///
    /// # Errors
    /// When it is no URL of an issuer, or isn't HTTPS.
    pub async fn trust_issuer(&self, issuer: &str) -> Result<Vec<Issuer>> {
        let url = Url::parse(issuer).ok();
        let is_fit = url
            .is_some_and(|url| is_confidential(url.scheme(), url.host_str().unwrap_or_default()));
        if !is_fit || issuer.chars().count() > 300 {
            return Err(Reason::InvalidIssuer.into());
        }
        trust_issuer(self, issuer).await?;
        self.issuers().await
    }

    /// Takes that back. Sessions that have begun go on.
    pub async fn distrust_issuer(&self, issuer: &str) -> Result<Vec<Issuer>> {
        let distrusted = distrust_issuer(self, issuer).await?;
        distrusted.found("trusted issuer")?;
        self.issuers().await
    }

    /// Lists the issuers that are trusted.
    pub async fn issuers(&self) -> Result<Vec<Issuer>> {
        issuers(self).await
    }

    /// Forgets as whom an issuer knows a user. If they have been here before, they sign in by a
    /// link next, and by the issuer in the same browser.
    pub async fn unbind_issuer(&self, issuer: &str, user: UserId) -> Result<()> {
        let unbound = unbind_issuer(self, issuer, user).await?;
        unbound.found("user whom this issuer knows")
    }

    /// Begins a session of the desk for a person that an issuer identifies. `None` if it is no
    /// user, or the issuer is not trusted.
    pub async fn begin_session_by(
        desk: &Database,
        vouched: &Vouched,
        browser: Browser,
    ) -> Result<Option<Token>> {
        let session = Token::generate()?;
        // The database decides who that is: a desk in foreign hands would name anybody.
        let (user,) = begin_session_by(
            &signing_in(desk, &browser),
            &vouched.issuer,
            &vouched.subject,
            vouched.email.as_deref(),
            hash(browser.session.as_ref()),
            &session.hash(),
        )
        .await?;
        Ok(user.map(|_| session))
    }

    /// The user of a sign-in link, without using it up. `None` if the link is used, expired or
    /// unknown.
    pub async fn living_link(
        desk: &Database,
        link: &Token,
        browser: &Browser,
    ) -> Result<Option<LivingLink>> {
        Ok(sign_in_link(desk, &link.hash(), hash(browser.asked_with.as_ref())).await?)
    }

    /// Begins a session of the desk for the token of a link, which is used up. `None` if the link
    /// is used, over or unknown; or if it was asked for in another browser, and not by the address
    /// that was given in this one.
    pub async fn begin_session(
        desk: &Database,
        link: &Token,
        browser: Browser,
    ) -> Result<Option<Token>> {
        let session = Token::generate()?;
        let (user,) = begin_session(
            &signing_in(desk, &browser),
            &link.hash(),
            hash(browser.asked_with.as_ref()),
            browser.email.as_deref(),
            hash(browser.session.as_ref()),
            &session.hash(),
        )
        .await?;
        Ok(user.map(|_| session))
    }

    /// Has a link to sign in sent to an e-mail address, if it is a user's, for the browser that
    /// keeps this token, of a client at this network address. The caller learns nothing of that.
    pub async fn ask_sign_in_link(
        desk: &Database,
        email: &str,
        client: &str,
        browser: &Token,
    ) -> Result<()> {
        Ok(ask_sign_in_link(desk, email, client, &browser.hash()).await?)
    }

    /// Carries out the orders of the person in a session of the desk. `None` if it is over or
    /// unknown.
    pub async fn in_session(
        desk: &Database,
        session: &Token,
        address: String,
        orderer: Orderer,
    ) -> Result<Option<Self>> {
        let desk = desk.saying([
            ("letterbox.session", hex::encode(session.hash())),
            ("letterbox.address", address),
        ]);
        // Row security goes by the session, not by what this program says of a person.
        let Some(person) = greet(&desk).await? else {
            return Ok(None);
        };
        let by = orderer.by.or(Some(person.user_id));
        let orderer = Orderer { by, ..orderer };
        Ok(Some(Self {
            database: desk.saying(orderer.said()),
            orderer,
            person: Some(person),
        }))
    }

    /// Says the name of the person whose orders these are.
    pub async fn call_me(&self, name: &str) -> Result<()> {
        check_name(name)?;
        call_me(self, name).await
    }

    /// Ends the session in which these orders are given.
    pub async fn end_session(&self) -> Result<()> {
        end_session(self).await
    }
}
