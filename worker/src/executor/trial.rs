//! Trials: an owner asks what an account answers to a GET, or to a step of a draft with sample
//! answers, before a workflow calls it. A worker sends it as it sends the request of an action:
//! where the policy lets it go on by itself, through the same egress, with the same credential, and
//! judges the answer in the same way. It is sent once at most: what has begun is left alone.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use letterbox_workflow::{
    ActionFacts, Decision, Policy, Taint, account,
    actions::{Outgoing, Request, TOOL_CALL, Trial},
    rehearsal::SampledStep,
};
use tokio_util::sync::CancellationToken;
use url::Url;
use uuid::Uuid;

use super::{
    Executor, MARGIN,
    evaluate::evaluate,
    prepare::{base_url, check_fits, with_sender},
    record::{Account, Hindrance},
    send::UNAUTHORIZED,
    store::{
        load,
        trials::{DueTrial, accounts_of, answer_trial, begin_trial, take_trials},
    },
    verdict::{Verdict, judge},
};
use crate::{
    egress::{Credential, HttpResponse},
    grants::refuse_token,
    leased::{Pace, Place, work},
};

const PACE: Pace = Pace {
    every: Duration::from_secs(1),
    at_once: 16,
    begins_within: Duration::from_secs(15),
};

/// What is sent, and what the policy decides about it.
type Prepared = (Arc<dyn Outgoing>, Request, Decision);

/// What came of a trial.
#[derive(Default)]
struct Tried {
    status: Option<i32>,
    /// JSON text, as it is kept of a failed action's answer.
    answer: Option<String>,
    /// Why an action would fail, or be tried again.
    error: Option<String>,
}

impl Tried {
    fn of(verdict: Verdict, answered: Option<HttpResponse>, used: &Credential) -> Self {
        Self {
            status: answered.as_ref().map(|response| response.status.into()),
            answer: answered.map(|response| response.beginning(&used.secrets())),
            error: match verdict {
                Verdict::Done { .. } => None,
                Verdict::Fail { reason, .. } => Some(reason),
                Verdict::Retry { error, .. } => Some(error),
            },
        }
    }
}

/// Answers what owners try, until `stop`.
pub(crate) async fn answer_trials(executor: Arc<Executor>, stop: CancellationToken) {
    let take = |most| take_trials(&executor.database, most as i64);
    work(&PACE, &stop, take, |due, place| executor.answer(due, place)).await;
}

impl Executor {
    async fn answer(&self, due: DueTrial, place: Place) {
        let tried = match self.try_account(&due, place.into()).await {
            Ok(Some(tried)) => tried,
            // Another worker has begun it, it was asked for once more, or something does not hold
            // any more: whoever takes it next says what.
            Ok(None) => return,
            Err(Hindrance::Lasting(why) | Hindrance::Local(why)) => Tried {
                error: Some(why),
                ..Tried::default()
            },
            // If it has not begun, another worker takes it when the lease ends.
            Err(Hindrance::Database(_)) => return,
        };
        // The database crate logs a failure: then nobody knows what came of it.
        let _ = answer_trial(
            &self.database,
            due.workspace_id,
            due.account_id,
            due.asked_at,
            tried.status,
            tried.answer.as_deref(),
            tried.error.as_deref(),
        )
        .await;
    }

    /// `None` if it is not for this worker to send.
    async fn try_account(
        &self,
        due: &DueTrial,
        place: Arc<Place>,
    ) -> Result<Option<Tried>, Hindrance> {
        let (workspace, owner) = (due.workspace_id, due.user_id);
        let now = load::circumstances(&self.database, workspace, owner, &due.name).await?;
        let account = now.account.filter(|one| one.id == due.account_id);
        let account = account.ok_or_else(|| "it is not connected any more".to_owned())?;
        let parsed = &self.parsed;
        let policy = parsed.policy(workspace, now.policy_version, None).await??;
        let base = base_url(&account)?;
        let (outgoing, request, decision) = match &due.step {
            None => get(due, &base, &policy)?,
            Some(step) => {
                let step = self.step(due, step, &base, policy, place).await?;
                check_fits(&*step.0, &account)?;
                step
            }
        };
        let request = with_sender(request, &account);
        if let Some(why) = hindered(now.is_held, now.owner_may_run, &account, decision) {
            return Err(why.to_owned().into());
        }
        let credential = self.open_credential(workspace, owner, &account);
        let credential = credential.map_err(|error| error.to_string())?;
        if self.stop.is_cancelled() {
            return Ok(None);
        }
        // Preparing it took a while: what held then is asked again.
        let (began, version) = (Instant::now(), now.policy_version);
        let beginning = begin_trial(&self.database, workspace, account.id, due.asked_at, version);
        if beginning.await? == 0 {
            return Ok(None);
        }
        // A process that was paused meanwhile sends nothing that may have been asked for again.
        if began.elapsed() >= MARGIN {
            return Err("nothing was sent: the worker was held up".to_owned().into());
        }
        let egress = &self.egress;
        let (time, most) = (outgoing.timeout(), outgoing.reading().max + 1);
        let sending = egress.send(&request, &credential, Uuid::new_v4(), time, most, None);
        let answered = self.answer_in_time(sending).await;
        // As the first one of two attempts: nothing is given up.
        let mut verdict = judge(&*outgoing, &answered, 1, 2);
        let is_refused = |one: &HttpResponse| one.status == UNAUTHORIZED;
        if answered.as_ref().is_ok_and(is_refused) {
            let (database, used) = (&self.database, &account.credential_sealed);
            let refusing = refuse_token(database, workspace, account.id, used, false);
            if refusing.await.is_ok_and(|refused| refused.0) {
                verdict = Verdict::refused_token(UNAUTHORIZED);
            }
        }
        Ok(Some(Tried::of(verdict, answered.ok(), &credential)))
    }

    /// What a step of a draft sends, to the account with this base URL.
    async fn step(
        &self,
        due: &DueTrial,
        step: &str,
        base: &Url,
        policy: Arc<Policy>,
        place: Arc<Place>,
    ) -> Result<Prepared, Hindrance> {
        let step: SampledStep = serde_json::from_str(step).map_err(|error| error.to_string())?;
        let accounts = accounts_of(&self.database, due.workspace_id, due.user_id).await?;
        let parsed = accounts
            .into_iter()
            .filter_map(|(name, url)| Some((name, Url::parse(&url).ok()?)));
        let mut urls: HashMap<String, Url> = parsed.collect();
        urls.insert(due.name.clone(), base.clone());
        let prepared = move || {
            // What goes on although nobody waits for it any more keeps its place.
            let _place = place;
            step.request(|name| urls.get(name).cloned(), &policy)
        };
        let prepared = evaluate(usize::MAX, prepared).await?;
        if prepared.0.account() != due.name {
            return Err("the step calls another account".to_owned().into());
        }
        Ok(prepared)
    }
}

/// What a GET of a path sends.
fn get(due: &DueTrial, base_url: &Url, policy: &Policy) -> Result<Prepared, String> {
    if account::is_mail(base_url) {
        return Err("nothing was sent: it is a mail server".to_owned());
    }
    let path = due.path.clone().unwrap_or_default();
    let trial = Trial::new(due.name.clone(), path);
    let request = trial.request(base_url);
    let request = request.map_err(|error| error.to_string())?;
    let url = request.url.parse::<Url>().ok();
    let facts = ActionFacts {
        host: url.as_ref().and_then(Url::host_str).unwrap_or_default(),
        action: TOOL_CALL.name,
        account: &due.name,
        method: &request.method,
        taint: Taint::default(),
    };
    let decision = policy.decide(&facts).decision;
    Ok((Arc::new(trial), request, decision))
}

/// Why nothing may be sent; an action would wait or fail.
fn hindered(
    is_held: bool,
    owner_may_run: bool,
    account: &Account,
    decision: Decision,
) -> Option<&'static str> {
    match decision {
        _ if is_held => Some("nothing was sent: the workspace is held"),
        _ if !owner_may_run => Some("nothing was sent: its owner may not run workflows"),
        _ if account.waits => Some("nothing was sent: it waits for a token, or for its owner"),
        Decision::Allow => None,
        Decision::Approve => Some("nothing was sent: the policy wants an approval for that"),
        Decision::Deny => Some("nothing was sent: the policy denies that"),
    }
}
