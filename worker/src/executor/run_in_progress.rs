//! A run that a worker has in hand: its release, its values, and what is recorded of it.

use std::{
    collections::HashMap,
    fmt::Display,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use letterbox_common::ids::{AccountId, UserId};
use letterbox_traces::Span;
use letterbox_workflow::{
    TemplateContext,
    actions::{Action, MAX_STORED},
    release::Release,
};

use parking_lot::Mutex;

use super::{
    evaluate::{VERY_SMALL, evaluate, size},
    kept_answers::Answers,
    plan::{self, Next},
    record::{ActionRecord, Circumstances, Turn},
    transition::{ActionKey, Change, End, Then},
    turns::Place,
};

/// A run in this worker's turn.
pub(super) struct RunInProgress<'p> {
    pub(super) turn: Turn,
    pub(super) place: &'p Place,
    /// The user as whom it runs.
    pub(super) owner: UserId,
    /// The account that it may call in this turn.
    pub(super) account: Option<AccountId>,
    /// The bytes of what was submitted.
    pub(super) input: usize,
    /// Its values, but for the answers.
    pub(super) context: TemplateContext,
    pub(super) answers: Answers,
    pub(super) release: Arc<Release>,
    pub(super) records: HashMap<String, ActionRecord>,
    /// Why it fails, while what follows a failure is under way.
    pub(super) failing: Option<String>,
    /// What held when it was taken.
    pub(super) circumstances: Circumstances,
    /// What has happened last, if that is written with what comes next.
    pub(super) unwritten: Mutex<Option<(ActionKey, Change)>>,
    /// The bytes of the requests and answers that it has stored.
    pub(super) stored: AtomicUsize,
    /// The trace of this turn, if it is followed.
    pub(super) span: Option<Span>,
}

impl RunInProgress<'_> {
    pub(super) fn traceparent(&self) -> Option<String> {
        self.span.as_ref().map(Span::traceparent)
    }

    /// What is recorded of an action; an empty record before its first step.
    pub(super) fn record_of(&self, action: &Action) -> &ActionRecord {
        static EMPTY: LazyLock<ActionRecord> = LazyLock::new(ActionRecord::default);
        self.records.get(&action.id).unwrap_or(&EMPTY)
    }

    /// Counts bytes that it stores.
    pub(super) fn count(&self, bytes: usize) {
        self.stored.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether it may store so many bytes more.
    pub(super) fn has_room_for(&self, bytes: usize) -> bool {
        self.stored.load(Ordering::Relaxed) + bytes <= MAX_STORED
    }

    /// What templates of an action give. Before the run is known to be recorded only very small
    /// ones are evaluated: others wait for the transaction that records it.
    pub(super) async fn evaluate<T: Send + 'static, E: Display + Send + 'static>(
        &self,
        action: &Action,
        templates: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, String> {
        let failing = self.failing.as_ref().map_or(0, String::len);
        let values = self.input + self.stored.load(Ordering::Relaxed) + failing;
        let size = size(self.release.length, values, &action.references);
        if size > VERY_SMALL {
            self.place.recorded().await;
        }
        evaluate(size, templates).await
    }

    /// Which action is written about.
    pub(super) fn key(&self, next: &Next<'_>) -> ActionKey {
        next.key(self.record_of(next.action))
    }

    pub(super) fn note(&mut self, action: String, mut record: ActionRecord) {
        // Later actions use it, or its agent does.
        if record.status.is_some() && self.release.uses_answer_of(&action) {
            let body = record.answer.take();
            let stored = record.answer_length;
            self.answers
                .add(action.clone(), record.status, body, stored);
        }
        self.records.insert(action, record);
    }

    /// What becomes of it when it fails for this reason.
    pub(super) fn after_failure(&self, why: String) -> Then {
        match &self.failing {
            Some(first) => Then::End(End::Failed(format!("{first}; after that, {why}"))),
            None if self.release.on_failure.is_empty() => Then::End(End::Failed(why)),
            None => Then::BeginFailing(why),
        }
    }

    pub(super) fn begin_failing(&mut self, reason: String) {
        self.failing = Some(reason);
        self.go_on_failing();
    }

    /// Lets the actions that follow a failure know why the run fails, if it does.
    pub(super) fn go_on_failing(&mut self) {
        if let Some(reason) = &self.failing {
            self.context = self.context.clone().after_failure(reason);
        }
    }

    /// What comes next, after this record of an action, or how the run ends.
    pub(super) fn next(&self, last: Option<(&str, &ActionRecord)>) -> Result<Next<'_>, End> {
        let record_of = |id: &str| match last {
            Some((last, record)) if last == id => Some(record),
            _ => self.records.get(id),
        };
        if let Some(next) = plan::next(&self.release, &record_of, self.failing.is_some()) {
            return Ok(next);
        }
        Err(match &self.failing {
            None => End::Succeeded,
            Some(reason) => End::Failed(reason.clone()),
        })
    }
}
