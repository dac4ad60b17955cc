//! A run that a worker has in hand: its release, its values, and what is recorded of it.

use std::{collections::HashMap, sync::LazyLock};

use letterbox_common::ids::{AccountId, UserId};
use letterbox_database::DatabaseError;
use letterbox_traces::Span;
use letterbox_workflow::{TemplateContext, actions::Action, release::Release};

use super::{
    Executor,
    plan::{self, Next},
    store::{self, ActionRecord, Lease, LeasedRun, Transition},
};

/// A run that this executor holds the lease of.
pub(super) struct RunInProgress {
    pub(super) lease: Lease,
    /// The user under whose identity it runs.
    pub(super) owner: UserId,
    /// The account that it may call: the relay counts how many do.
    pub(super) account: Option<AccountId>,
    pub(super) context: TemplateContext,
    pub(super) release: Release,
    pub(super) records: HashMap<String, ActionRecord>,
    /// Why it fails, while what follows a failure is under way.
    pub(super) failing: Option<String>,
    /// The context of this turn, where its trace is followed.
    pub(super) traceparent: Option<String>,
}

impl RunInProgress {
    /// What is recorded of an action; an empty record before its first step.
    pub(super) fn record_of(&self, action: &Action) -> &ActionRecord {
        static EMPTY: LazyLock<ActionRecord> = LazyLock::new(ActionRecord::default);
        self.records.get(&action.id).unwrap_or(&EMPTY)
    }

    pub(super) fn note(&mut self, action: String, record: ActionRecord) {
        if let Some(context) = self.with_answer(&action, &record) {
            self.context = context;
        }
        self.records.insert(action, record);
    }

    /// The context with what an action was answered, where later ones may use it.
    fn with_answer(&self, action: &str, record: &ActionRecord) -> Option<TemplateContext> {
        let is_used = record.status.is_some() && self.release.uses_answer_of(action);
        is_used.then(|| {
            let body = record.answer.as_deref().unwrap_or_default();
            self.context
                .clone()
                .with_answer(action, record.status, body)
        })
    }

    pub(super) fn begin_failing(&mut self, reason: String) {
        self.context = self.context.clone().after_failure(&reason);
        self.failing = Some(reason);
    }

    /// What comes next, after this record of an action, or how the run ends.
    pub(super) fn next(&self, last: Option<(&str, &ActionRecord)>) -> Result<Next<'_>, Transition> {
        let record_of = |id: &str| match last {
            Some((last, record)) if last == id => Some(record),
            _ => self.records.get(id),
        };
        if let Some(next) = plan::next(&self.release, &record_of, self.failing.is_some()) {
            return Ok(next);
        }
        let last = last.map(|(_, record)| record);
        let mut records = self.records.values().chain(last);
        Err(match &self.failing {
            None => Transition::Succeed {
                has_answers: records.any(|record| record.answer.is_some()),
            },
            Some(reason) => Transition::Fail(reason.clone()),
        })
    }
}

impl Executor {
    /// The actions, values and records of a run; or why it can't be executed.
    pub(super) async fn load(
        &self,
        leased: LeasedRun,
        span: Option<&Span>,
    ) -> Result<Result<RunInProgress, String>, DatabaseError> {
        let run = leased.lease.run;
        let release = match Release::load(&leased.actions, leased.on_failure.as_deref()) {
            Ok(release) => release,
            Err(error) => {
                let release_id = leased.release;
                tracing::error!(run_id = %run, %release_id, %error, "a release can't be loaded");
                return Ok(Err(error.to_string()));
            }
        };
        let input = String::from_utf8_lossy(&leased.input);
        let received_at = format!("{:.3}", leased.received_at);
        let context = match TemplateContext::of_run(&input, &run.to_string(), &received_at) {
            Ok(context) => context,
            Err(error) => return Ok(Err(format!("the input can't be read: {error}"))),
        };
        let mut run = RunInProgress {
            lease: leased.lease,
            owner: leased.owner,
            account: leased.account,
            context,
            release,
            records: HashMap::new(),
            failing: None,
            traceparent: span.map(Span::traceparent),
        };
        let lease = leased.lease;
        let records = store::action_records(&self.database, &lease, run.owner).await?;
        for (action, mut record) in records {
            if let Some(sealed) = record.answer.take() {
                match self.open_answer(&lease, &action, &sealed) {
                    Ok(answer) => record.answer = Some(answer),
                    Err(reason) => return Ok(Err(reason)),
                }
            }
            run.note(action, record);
        }
        if let Some(reason) = leased.failing {
            run.begin_failing(reason);
        }
        Ok(Ok(run))
    }
}
