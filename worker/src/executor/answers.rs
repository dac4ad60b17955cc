//! Answers of accounts: sealed where they are kept, opened where they are used.
//!
//! A run may keep megabytes of it, and a template may name all. So a worker has only a little of
//! each run in hand and reads the rest for the action that names it; and all that is opened and
//! parsed for templates at one moment comes out of one budget.

use std::collections::HashMap;

use letterbox_common::sealing::{OpenError, Place, Seal};
use letterbox_workflow::{References, TemplateContext};
use tokio::sync::OwnedSemaphorePermit;

use super::{
    Executor,
    record::{ActionRecord, Hindrance, Turn},
    run_in_progress::RunInProgress,
    store::load,
    transition::{ActionKey, Change},
};
use crate::stored_bytes::ROW_BYTES;

/// The values that the templates of one action see. The budget has its answers back when this is
/// dropped.
pub(super) struct AnswerValues {
    pub(super) context: TemplateContext,
    _budget: Option<[OwnedSemaphorePermit; 2]>,
}

impl Executor {
    /// The values of a run for templates with these references.
    pub(super) async fn values(
        &self,
        run: &RunInProgress<'_>,
        references: &References,
    ) -> Result<AnswerValues, Hindrance> {
        let named = run.answers.known.iter();
        let named: Vec<_> = named
            .filter(|(id, _)| references.has_answer_of(id))
            .collect();
        let length = named.iter().map(|(_, kept)| kept.length).sum();
        let budget = self.budget.take(run.turn.workspace, length).await;
        let mut context = run.context.clone();
        let mut absent = Vec::new();
        for (id, kept) in named {
            match &kept.body {
                Some(body) => context = context.with_answer(id, kept.status, body.clone()),
                None => absent.push((&**id, kept.status)),
            }
        }
        if !absent.is_empty() {
            let ids: Vec<&str> = absent.iter().map(|(id, _)| *id).collect();
            let read = || {
                let turn = run.turn;
                load::answers_of_actions(&self.database, turn.workspace, turn.run, &ids)
            };
            let mut read: HashMap<_, _> = self.persist(read).await?.into_iter().collect();
            for (id, status) in absent {
                let sealed = read.remove(id);
                let opened = sealed.map(|sealed| self.open_answer(run.turn, id, &sealed));
                let body = opened.transpose()?.unwrap_or_default();
                context = context.with_answer(id, status, body.into());
            }
        }
        Ok(AnswerValues {
            context,
            _budget: budget,
        })
    }

    /// What is kept of what has happened: the answer, sealed, and the record that its run goes on
    /// with.
    pub(super) fn kept(
        &self,
        run: &RunInProgress<'_>,
        action: &mut Option<(ActionKey, Change)>,
    ) -> (Option<Vec<u8>>, Option<(String, ActionRecord)>) {
        let Some((key, change)) = action else {
            return (None, None);
        };
        let body = change.body().and_then(Option::as_mut);
        let sealed = body.and_then(|body| self.seal_answer(run, &key.id, body));
        (sealed, Some((key.id.clone(), change.record())))
    }

    /// Seals what an action was answered. None where that can't be done: then it is not kept.
    fn seal_answer(&self, run: &RunInProgress<'_>, action: &str, answer: &[u8]) -> Option<Vec<u8>> {
        let sealed = self.keys.seal(place(run.turn, action), answer);
        self.count(run, answer.len());
        let logged = sealed.inspect_err(|error| {
            tracing::error!(%error, "an answer can't be sealed");
        });
        logged.ok()
    }

    /// Counts bytes that a run stores, in a row or with one.
    pub(super) fn count(&self, run: &RunInProgress<'_>, bytes: usize) {
        run.count(bytes);
        let workspace = run.turn.workspace;
        let bytes = bytes as u64 + ROW_BYTES;
        self.stored_bytes.add(workspace, None, bytes);
    }

    /// Opens what an action was answered. A missing key may come, or another worker has it; what
    /// was altered stays so.
    pub(super) fn open_answer(
        &self,
        turn: Turn,
        action: &str,
        sealed: &[u8],
    ) -> Result<Vec<u8>, Hindrance> {
        let opened = self.keys.open(place(turn, action), sealed);
        opened
            .map(|answer| answer.expose().to_vec())
            .map_err(|error| {
                tracing::error!(%error, "an answer can't be decrypted");
                let reason = format!("the answer of {action} can't be decrypted: {error}");
                match error {
                    OpenError::UnknownKey { .. } => Hindrance::Local(reason),
                    OpenError::Malformed | OpenError::Refused => Hindrance::Lasting(reason),
                }
            })
    }
}

fn place(turn: Turn, action: &str) -> Place<'_> {
    Place::ActionAnswer {
        workspace: turn.workspace,
        run: turn.run,
        action,
    }
}
