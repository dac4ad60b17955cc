//! A run that a worker has in hand: its release, its values, and what is recorded of it.

use std::{collections::HashMap, sync::LazyLock};

use letterbox_common::ids::{AccountId, UserId};
use letterbox_workflow::{TemplateContext, actions::Action, release::Release};

use super::{
    plan::{self, Next},
    store::{ActionRecord, Lease, Transition},
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
