//! A run that was taken, with everything that executing it needs: its release, its values and its
//! records.

use std::{collections::HashMap, sync::atomic::AtomicUsize};

use letterbox_database::DatabaseError;
use letterbox_traces::{SpanKind, child};
use letterbox_workflow::TemplateContext;
use parking_lot::Mutex;

use super::{
    Executor,
    kept_answers::Answers,
    record::{Hindrance, TakenRun},
    run_in_progress::RunInProgress,
    store::load::{self, Loaded},
    turns::Place,
};

impl Executor {
    /// The run in hand. `loaded` is what was loaded for many runs at once.
    pub(super) async fn load<'p>(
        &self,
        taken: TakenRun,
        loaded: Option<Loaded>,
        place: &'p Place,
    ) -> Result<RunInProgress<'p>, Hindrance> {
        let turn = taken.turn;
        let (facts, records) = match loaded {
            Some(loaded) => loaded,
            None => self.load_again(taken).await?,
        };
        let workflow = facts.workflow;
        let release = facts.release;
        let parsed = &self.parsed;
        let release = || parsed.release(turn.workspace, workflow, release, place);
        let release = self.persist(release).await??;
        let input = String::from_utf8_lossy(&facts.input);
        let received_at = format!("{:.3}", facts.received_at);
        let context = TemplateContext::of_run(&input, &turn.run.to_string(), &received_at)
            .map_err(|error| format!("the input can't be read: {error}"))?;
        let context = context.with_labels(&release.labels);

        let parent = facts.traceparent.as_deref();
        let mut span = parent.and_then(|parent| child(SpanKind::Internal, "run", parent));
        if let Some(span) = &mut span {
            span.set("letterbox.run_id", turn.run.to_string());
        }
        let mut run = RunInProgress {
            turn,
            place,
            owner: facts.owner,
            input: facts.input.len(),
            account: taken.account,
            context,
            answers: Answers::default(),
            release,
            records: HashMap::new(),
            failing: facts.failing,
            circumstances: facts.circumstances,
            unwritten: Mutex::default(),
            stored: AtomicUsize::new(facts.stored),
            span,
        };
        for (action, mut record) in records {
            if let Some(sealed) = record.answer.take() {
                record.answer = Some(self.open_answer(turn, &action, &sealed)?);
            }
            run.note(action, record);
        }
        run.go_on_failing();
        Ok(run)
    }

    /// Loads one run by itself.
    async fn load_again(&self, taken: TakenRun) -> Result<Loaded, DatabaseError> {
        let one = [taken];
        let load = || load::load(&self.database, &one);
        let mut loaded = self.persist(load).await?;
        loaded
            .remove(&taken.turn.key())
            .ok_or_else(|| DatabaseError::no_row("load_runs"))
    }
}
