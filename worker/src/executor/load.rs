//! Loads a leased run: its release, its values and its records.

use std::collections::HashMap;

use letterbox_database::DatabaseError;
use letterbox_traces::Span;
use letterbox_workflow::{TemplateContext, release::Release};

use super::{
    Executor,
    run_in_progress::RunInProgress,
    store::{self, LeasedRun},
};

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
