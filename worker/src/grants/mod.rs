//! Grants of OAuth 2.0: gets accounts their access tokens, and the next ones before those end. One
//! worker does it for all: whoever takes a grant has a minute for it. A token is kept as the
//! credential of its account, so runs know nothing of grants. When there is none, because the owner
//! has taken back what was granted, the account waits for its owner, and with it its runs.

mod answer;
mod store;

use std::time::{Duration, Instant};

use letterbox_common::{
    grant::Grant,
    sealing::{OpenError, Place, Seal, Secret},
};
use letterbox_database::{DatabaseError, Fault};
use oauth2::{
    AuthType, AuthorizationCode, ClientId, ClientSecret, HttpRequest, PkceCodeVerifier,
    RedirectUrl, RefreshToken, RequestTokenError, Scope, TokenResponse, TokenUrl,
    basic::{BasicClient, BasicErrorResponse, BasicTokenResponse},
    url::form_urlencoded,
};
use tokio_util::sync::CancellationToken;

pub(crate) use self::store::{STATEMENTS, refuse_token};
use self::{
    answer::AskError,
    store::{Due, KeptGrant},
};
use crate::{
    egress::Egress,
    leased::{self, Pace, work},
    metrics, outcome,
    worker::Worker,
};

const PACE: Pace = Pace {
    every: Duration::from_secs(1),
    at_once: 100,
    // Two questions later another worker may take the grant.
    begins_within: Duration::from_secs(15),
};
/// How long before its end a token is renewed; one that lasts less than twice as long, at half
/// time.
const EARLY: Duration = Duration::from_secs(300);
/// A token is not renewed sooner than after this time, and after this one it is, whatever its
/// server says.
const SOONEST: Duration = Duration::from_secs(5);
const LATEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
enum NoToken {
    /// The grant is invalid: the owner must act.
    #[error("{0}")]
    Spent(String),
    /// Another exchange would end the same way, unless the server errs.
    #[error("{0}")]
    Refused(String),
    /// Another one may give it.
    #[error("{0}")]
    Failed(String),
    /// The same, in words of the server, which are for the owner only.
    #[error("{0}")]
    Said(String),
}

type GrantRefusal = RequestTokenError<AskError, BasicErrorResponse>;

/// Gets tokens.
pub(crate) struct Grants(pub(crate) Worker);

impl Grants {
    /// Renews until `stop`, and ends what has begun: a refresh token may work only once.
    pub(crate) async fn keep(self, stop: CancellationToken) {
        let take = |most| store::take_grants(&self.0.database, most as i32);
        work(&PACE, &stop, take, |due, place| self.renew(due, place)).await;
    }

    /// Exchanges a grant, and writes what came of it for as long as the database is away.
    async fn renew(&self, due: Due, place: leased::Place) {
        let exchanged = self.exchange(&due).await;
        // What is written for long, because an account is locked, takes nobody's place.
        drop(place);
        let outcome = match &exchanged {
            Ok(_) => "renewed",
            Err(NoToken::Refused(_) | NoToken::Spent(_)) => "refused",
            Err(NoToken::Failed(_) | NoToken::Said(_)) => "failed",
        };
        metrics::TOKENS.add([outcome], 1);
        if let Err(error) = &exchanged {
            // What a server says in its refusal is for the owner: it may be anything.
            let error = Some(error).filter(|error| matches!(error, NoToken::Failed(_)));
            let error = error.map(tracing::field::display);
            tracing::warn!(account_id = %due.account_id, error, outcome, "an account got no token");
        }
        let mut pauses = outcome::pauses();
        while let Err(error) = self.write(&due, &exchanged).await
            && error.fault == Fault::Transient
        {
            tokio::time::sleep(pauses.next().unwrap_or(PACE.every).min(PACE.every)).await;
        }
    }

    async fn write(
        &self,
        due: &Due,
        exchanged: &Result<KeptGrant, NoToken>,
    ) -> Result<(), DatabaseError> {
        let database = &self.0.database;
        let workspace = due.workspace_id;
        let account = due.account_id;
        match exchanged {
            Ok(kept) => {
                // The token has lasted a while already, if its exchange or the database was slow.
                let left = |at: Instant| at.saturating_duration_since(Instant::now());
                let keeping = store::keep_token(
                    database,
                    workspace,
                    account,
                    due.revision,
                    due.grant_sealed.as_deref(),
                    &kept.token,
                    kept.grant.as_deref(),
                    kept.is_spent,
                    kept.renew_at.map(|at| left(at).as_secs_f64()),
                );
                keeping.await
            }
            Err(error) => {
                let is_final = !matches!(error, NoToken::Failed(_) | NoToken::Said(_));
                let is_spent = matches!(error, NoToken::Spent(_));
                let why = error.to_string();
                let revision = due.revision;
                store::keep_failure(
                    database, workspace, account, revision, &why, is_final, is_spent,
                )
                .await
            }
        }
    }

    async fn exchange(&self, due: &Due) -> Result<KeptGrant, NoToken> {
        let secret = self.open(due.client_secret(), due.client_secret_sealed.as_deref())?;
        let grant = match self.open(due.grant(), due.grant_sealed.as_deref())? {
            Some(json) => Some(Grant::parse(&json).ok_or_else(|| refused("it is no grant"))?),
            None => None,
        };
        if due.is_code && grant.is_none() {
            let why = "its owner has not authorized Letterbox yet";
            return Err(NoToken::Spent(why.to_owned()));
        }
        let asking = Asking {
            egress: &self.0.egress,
            due,
            secret: secret
                .as_ref()
                .and_then(|secret| str::from_utf8(secret.expose()).ok()),
            grant: grant.as_ref(),
        };
        let asked = Instant::now();
        let answer = match asking.ask(AuthType::BasicAuth).await {
            // Some servers look for the client in the body only, and say so in words of their own.
            Err(error) if asking.may_want_body(&error) => asking.ask(AuthType::RequestBody).await,
            answer => answer,
        };
        let answer = answer.map_err(|error| match (asking.no_token(&error), &grant) {
            (NoToken::Refused(why), Some(Grant::Code { .. })) => NoToken::Spent(why),
            (why, _) => why,
        });
        self.kept(due, grant.as_ref(), asked, &answer?)
    }

    fn open(&self, place: Place<'_>, sealed: Option<&[u8]>) -> Result<Option<Secret>, NoToken> {
        let Some(sealed) = sealed else {
            return Ok(None);
        };
        let opened = self.0.keys.open(place, sealed).map_err(|error| {
            let reason = format!("its client secret or refresh token can't be decrypted: {error}");
            match error {
                OpenError::UnknownKey { .. } => NoToken::Failed(reason),
                OpenError::Malformed | OpenError::Refused => NoToken::Refused(reason),
            }
        });
        opened.map(Some)
    }

    /// The token as it is kept, and what gets the next one.
    fn kept(
        &self,
        due: &Due,
        grant: Option<&Grant>,
        asked: Instant,
        answer: &BasicTokenResponse,
    ) -> Result<KeptGrant, NoToken> {
        let token = answer.access_token().secret();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(refused("what its server gave is no token"));
        }
        let seal = |place, value: &[u8]| {
            let sealed = self.0.keys.seal(place, value);
            sealed.map_err(|error| NoToken::Failed(error.to_string()))
        };
        let fresh = answer.refresh_token();
        let fresh = fresh.filter(|token| due.is_code && !token.secret().is_empty());
        let fresh = fresh.map(|token| Grant::RefreshToken(token.secret().clone()).to_json());
        let fresh = fresh.map(|fresh| seal(due.grant(), fresh.expose()));
        let is_spent = matches!(grant, Some(Grant::Code { .. }));
        let can_renew = !due.is_code || !is_spent || fresh.is_some();
        let lasts = answer.expires_in().filter(|_| can_renew);
        Ok(KeptGrant {
            token: seal(due.credential(), format!("Bearer {token}").as_bytes())?,
            grant: fresh.transpose()?,
            is_spent,
            renew_at: lasts.map(|lasts| asked + renew_in(lasts)),
        })
    }
}

/// One question to a token server.
struct Asking<'a> {
    egress: &'a Egress,
    due: &'a Due,
    secret: Option<&'a str>,
    grant: Option<&'a Grant>,
}

impl Asking<'_> {
    /// Whether the refusal may be one of the client in the header.
    fn may_want_body(&self, error: &GrantRefusal) -> bool {
        let has_secret = self.secret.is_some();
        has_secret && matches!(error, RequestTokenError::Request(error) if error.may_be_of_client())
    }

    /// A refusal of the token server is final; what a proxy may have sent is not.
    fn no_token(&self, error: &GrantRefusal) -> NoToken {
        let RequestTokenError::Request(error) = error else {
            return NoToken::Failed(answer::NOT_UNDERSTOOD.to_owned());
        };
        match error.is_final() {
            true => NoToken::Refused(error.to_string()),
            false if matches!(error, AskError::Refused { .. }) => NoToken::Said(error.to_string()),
            false => NoToken::Failed(error.to_string()),
        }
    }

    /// What a server may quote of what it was sent, and nobody else may read.
    fn secrets(&self) -> Vec<String> {
        let sent = match self.grant {
            Some(Grant::Code { code, verifier, .. }) => [Some(&**code), Some(&**verifier)],
            Some(Grant::RefreshToken(token)) => [Some(&**token), None],
            None => [None, None],
        };
        let plain = [self.secret].into_iter().chain(sent).flatten();
        // Also as it was sent.
        let encoded = |secret: &str| form_urlencoded::byte_serialize(secret.as_bytes()).collect();
        plain
            .flat_map(|secret| [secret.to_owned(), encoded(secret)])
            .collect()
    }

    async fn ask(&self, auth: AuthType) -> Result<BasicTokenResponse, GrantRefusal> {
        let invalid = |error: oauth2::url::ParseError| GrantRefusal::Other(error.to_string());
        let token_url = TokenUrl::new(self.due.token_url.clone()).map_err(invalid)?;
        let mut client = BasicClient::new(ClientId::new(self.due.client_id.clone()))
            .set_token_uri(token_url)
            .set_auth_type(auth);
        if let Some(secret) = self.secret {
            client = client.set_client_secret(ClientSecret::new(secret.to_owned()));
        }
        let http = |request| send(self.egress.clone(), request, self.secrets());
        match self.grant {
            None => {
                let scopes = self.due.scope.iter().flat_map(|scope| scope.split(' '));
                let scopes = scopes.map(|scope| Scope::new(scope.to_owned()));
                let asking = client.exchange_client_credentials().add_scopes(scopes);
                asking.request_async(&http).await
            }
            Some(Grant::Code {
                code,
                verifier,
                redirect_url,
            }) => {
                let back = RedirectUrl::new(redirect_url.clone()).map_err(invalid)?;
                let client = client.set_redirect_uri(back);
                let asking = client
                    .exchange_code(AuthorizationCode::new(code.clone()))
                    .set_pkce_verifier(PkceCodeVerifier::new(verifier.clone()));
                asking.request_async(&http).await
            }
            Some(Grant::RefreshToken(token)) => {
                let token = RefreshToken::new(token.clone());
                let asking = client.exchange_refresh_token(&token);
                asking.request_async(&http).await
            }
        }
    }
}

async fn send(
    egress: Egress,
    request: HttpRequest,
    secrets: Vec<String>,
) -> Result<oauth2::HttpResponse, AskError> {
    answer::read(&egress.send_as_is(request).await?, &secrets)
}

fn refused(why: &str) -> NoToken {
    NoToken::Refused(why.to_owned())
}

/// When a token is renewed that lasts so long.
fn renew_in(lasts: Duration) -> Duration {
    let early = EARLY.min(lasts / 2);
    lasts.saturating_sub(early).clamp(SOONEST, LATEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_renewed_before_it_ends_and_not_all_the_time() {
        let seconds = |lasts| renew_in(Duration::from_secs(lasts)).as_secs();
        let renewed = [0, 8, 60, 600, 3600, u64::MAX].map(seconds);
        assert_eq!(renewed, [5, 5, 30, 300, 3300, 30 * 24 * 3600]);
    }
}
