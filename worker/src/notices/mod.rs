//! Notices: tells people what waits and what went wrong, by e-mail and through accounts, and sends
//! the links to sign in that somebody has asked for. What happened is written down by the database
//! where it happens; here letters are made of it and sent, each under one id however often it is
//! tried.

mod mail;
mod store;

use std::time::Duration;

use letterbox_common::{Token, sealing::Place};
use letterbox_database::DatabaseError;
use letterbox_workflow::actions::{self, BodyType, MAX_ANSWER, Request};
use tokio_util::sync::CancellationToken;
use url::Url;

use self::store::{By, Letter};
pub(crate) use self::{
    mail::{Mailer, SMTP_URL},
    store::STATEMENTS,
};
use crate::{
    egress::Credential,
    grants::refuse_token,
    leased::{self, Pace, work},
    metrics,
    worker::Worker,
};

const LETTERS: Pace = Pace {
    every: Duration::from_secs(1),
    at_once: 20,
    begins_within: Duration::from_secs(30),
};
/// How long a letter may take: less than what is left of the two minutes for which it is taken.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How often the worker looks for links that are asked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Makes letters, and sends them.
pub(crate) struct Notices {
    pub(crate) worker: Worker,
    /// `None` sends no e-mail.
    pub(crate) mailer: Option<Mailer>,
    /// The address of the desk as people see it.
    pub(crate) desk: Url,
    /// How long what happens is gathered into one letter.
    pub(crate) gather: Duration,
}

impl Notices {
    /// Sends until `stop`. Several workers may do so at once. Links to sign in wait for no letter.
    pub(crate) async fn keep(self, stop: CancellationToken) {
        let take = async |free: usize| {
            // Those that are written are sent, whatever keeps further ones from being written.
            let _ = store::write_letters(&self.worker.database, self.gather.as_secs_f64()).await;
            let runs = format!("{}/runs/", self.desk.as_str().trim_end_matches('/'));
            store::take_letters(&self.worker.database, free as i32, &runs).await
        };
        let letters = work(&LETTERS, &stop, take, |letter, place| {
            self.try_once(letter, place)
        });
        // Whoever takes a request deletes it: there is no lease, and nothing to settle.
        let links = async {
            while let (Some(mailer), false) = (&self.mailer, stop.is_cancelled()) {
                if !self.send_sign_in_link(mailer).await.unwrap_or(false) {
                    stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY))
                        .await;
                }
            }
        };
        tokio::join!(letters, links);
    }

    async fn try_once(&self, letter: Letter, _place: leased::Place) {
        let sending = tokio::time::timeout(TIMEOUT, self.send(&letter)).await;
        let sent = sending.unwrap_or_else(|_| Err("it took too long".to_owned()));
        let outcome = if sent.is_ok() { "sent" } else { "failed" };
        metrics::LETTERS.add([outcome], 1);
        let failure = sent.err();
        if let Some(failure) = &failure {
            tracing::warn!(workspace_id = %letter.workspace, letter_id = %letter.id, failure,
                "a notice was not sent");
        }
        let failure = failure.as_deref();
        // Where this fails, it is sent again when its lease is over.
        let _ =
            store::end_letter(&self.worker.database, letter.workspace, letter.id, failure).await;
    }

    async fn send(&self, letter: &Letter) -> Result<(), String> {
        match &letter.by {
            By::Mail(address) => {
                let mailer = self.mailer.as_ref();
                let mailer = mailer.ok_or("LETTERBOX_SMTP_URL is not set")?;
                let (subject, text) = match letter.told.contains_key(INVITATION) {
                    true => self.invitation(letter),
                    false => (subject(letter), self.text(letter)),
                };
                let sending = mailer.send(address, letter.id, &subject, text);
                sending.await.map_err(|error| error.to_string())
            }
            By::Account(account) => {
                let place = Place::AccountCredential {
                    workspace: letter.workspace,
                    account: account.id,
                    user: account.user,
                    header: &account.header,
                    base_url: &account.base_url,
                };
                let value = self.worker.keys.open(place, &account.credential_sealed);
                let value = value.map_err(|error| error.to_string())?;
                let credential = Credential::of(&account.header, &value);
                let body = serde_json::json!({ "text": self.text(letter) });
                let request = Request {
                    method: "POST".to_owned(),
                    url: account.base_url.clone(),
                    headers: Vec::new(),
                    body: Some(body.to_string()),
                    body_type: BodyType::Json,
                };
                let egress = &self.worker.egress;
                let time = actions::TIMEOUT;
                let sending = egress.send(&request, &credential, letter.id, time, MAX_ANSWER, None);
                match sending.await.map_err(|error| error.to_string())?.status {
                    200..300 => Ok(()),
                    401 => {
                        let workspace = letter.workspace;
                        let used = &account.credential_sealed;
                        // The letter is tried again, with another token if there is one.
                        let refusing =
                            refuse_token(&self.worker.database, workspace, account.id, used, false);
                        let _ = refusing.await;
                        Err("the account refused its credential".to_owned())
                    }
                    status => Err(format!("the account answered {status}")),
                }
            }
            By::Nothing => Err("the account is not connected".to_owned()),
        }
    }

    /// What is told, with the place where more is to be seen; no word of a stranger's.
    fn text(&self, letter: &Letter) -> String {
        let told: String = sentences(letter).map(|told| format!("{told}.\n")).collect();
        let name = &letter.workspace_name;
        let Letter { failed, why, .. } = letter;
        let more = [failed.as_str(), why].join("\n");
        format!("{name}:\n\n{told}{}\n\n{}\n", more.trim(), self.desk)
    }

    /// What somebody is told whom an owner has made a member. It lets nobody in.
    fn invitation(&self, letter: &Letter) -> (String, String) {
        let name = &letter.workspace_name;
        let subject = format!("You are a member of {name} in Letterbox");
        let text = format!(
            "An owner of {name} has made you a member of it in Letterbox, where forms are answered \
             and looked after. Open this address, and sign in with the one that this went to:\n\n\
             {}\n\nIf you don't know them, leave it alone: nothing more is sent to you.\n",
            self.desk
        );
        (subject, text)
    }

    /// Sends the next requested sign-in link; `false` if there is none.
    async fn send_sign_in_link(&self, mailer: &Mailer) -> Result<bool, DatabaseError> {
        let Ok(token) = Token::generate() else {
            return Ok(false);
        };
        let asked = store::answer_sign_in_request(&self.worker.database, &token.hash()).await?;
        let Some(asked) = asked else {
            return Ok(false);
        };
        if !asked.is_known {
            return Ok(true);
        }
        let desk = self.desk.as_str().trim_end_matches('/');
        let text = format!(
            "Open this link where you have asked for it; another browser wants your address first. \
             It works once, within ten minutes:\n\n{desk}/sign-in?token={}\n\nIf you have not \
             asked for it, leave it alone.\n",
            token.expose()
        );
        let id = uuid::Uuid::new_v4();
        let sent = mailer
            .send(&asked.address, id, "Sign in to Letterbox", text)
            .await;
        let outcome = if sent.is_ok() { "sent" } else { "failed" };
        metrics::SIGN_IN_LINKS.add([outcome], 1);
        if let Err(error) = sent {
            // The person can ask again.
            tracing::warn!(%error, "a link to sign in was not sent");
        }
        Ok(true)
    }
}

/// The kind of news that a letter of its own tells.
const INVITATION: &str = "invitation";

fn subject(letter: &Letter) -> String {
    let first = sentences(letter).next().unwrap_or_default();
    format!("{} ({})", first, letter.workspace_name)
}

/// Each kind of news: what it is about, what one of these does, and several.
const KINDS: [(&str, &str, [&str; 2], &str); 7] = [
    ("question", "question", ["waits", "wait"], "for an answer"),
    ("expired_question", "question", HAS, "got no answer in time"),
    ("failure", "run", HAS, "failed"),
    ("refused_account", "account", HAS, "refused its credential"),
    (
        "ended_link",
        "form link",
        HAS,
        "ended, because the workflow's owner may not run it any more",
    ),
    (
        "stalled_subscription",
        "subscription",
        HAS,
        "got no signals for five minutes",
    ),
    (
        "deaf_webhook",
        "webhook",
        ["loses", "lose"],
        "events: its page says why",
    ),
];
const HAS: [&str; 2] = ["has", "have"];

fn sentences(letter: &Letter) -> impl Iterator<Item = String> {
    let known = KINDS
        .iter()
        .filter_map(|(kind, noun, [does, many_do], what)| {
            Some(match letter.told.get(*kind)? {
                1 => format!("1 {noun} {does} {what}"),
                count => format!("{count} {noun}s {many_do} {what}"),
            })
        });
    // Of a newer version.
    let is_known = |kind: &str| KINDS.iter().any(|(known, ..)| *known == kind);
    let others = letter.told.iter().filter(|(kind, _)| !is_known(kind));
    let others: i64 = others.map(|(_, count)| count).sum();
    known.chain((others > 0).then(|| format!("{others} other news")))
}
