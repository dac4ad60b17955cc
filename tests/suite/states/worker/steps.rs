//! The steps of a turn: beginning an attempt, and writing what came of it or of anything else.

use letterbox_common::states::{ActionState, RunState};
use uuid::Uuid;

use super::{Account, Decided, LONG, Run, Worker, Written, keys, one};

impl Worker {
    /// Begins an attempt: the key to send it with.
    pub async fn begin(&self, run: &Run, token: i64, by: &Decided) -> Option<Uuid> {
        let (workspace, ids, turn, action) = keys(run, token);
        self.order("BEGIN").await;
        if by.was_asked {
            self.query("lock_asked", &[&workspace, &ids, &action]).await;
        }
        self.query("hold_runs", &[&workspace, &ids, &turn]).await;
        let begun = self
            .query(
                "begin_attempts",
                &[
                    /* $1 workspace_id */ &workspace,
                    /* $2 run_id */ &ids,
                    /* $3 turn */ &turn,
                    /* $4 action_id */ &action,
                    /* $5 type */ &one("http.request"),
                    /* $6 part_of */ &one(None::<&str>),
                    /* $7 untrusted */ &one("{}"),
                    /* $8 steered_by */ &one("{}"),
                    /* $9 idempotency_key */ &one(Uuid::new_v4()),
                    /* $10 decision */ &one(by.decision),
                    /* $11 decision_rule */ &one(None::<i32>),
                    /* $12 policy_version */ &one(by.policy),
                    /* $13 request */ &one(run.request()),
                    /* $14 account_id */ &one(run.account),
                    /* $15 was_asked */ &one(by.was_asked),
                    /* $16 begun */ &one(by.begun),
                    /* $17 answered */ &one(by.answered),
                    /* $18 lease_seconds */ &LONG,
                    /* $19 least_seconds */ &60_f64,
                ],
            )
            .await;
        let key = begun.first().map(|row| row.get("idempotency_key"));
        self.order("COMMIT").await;
        key
    }

    /// Writes what the account has said about an attempt.
    pub async fn write(&self, run: &Run, token: i64, attempt: i32, said: Account) -> Written {
        let (workspace, ids, turn, action) = keys(run, token);
        self.order("BEGIN").await;
        let mut written = self.hold(run, token).await;
        let counted = self
            .query(
                "record_answers",
                &[
                    /* $1 workspace_id */ &workspace,
                    /* $2 run_id */ &ids,
                    /* $3 turn */ &turn,
                    /* $4 action_id */ &action,
                    /* $5 attempt */ &one(attempt),
                    /* $6 state */ &one(said.state()),
                    /* $7 branch */ &one(None::<&str>),
                    /* $8 error */ &one(None::<&str>),
                    /* $9 is_told */ &one(false),
                    /* $10 answer_sealed */ &one(None::<&[u8]>),
                    /* $11 response_status */ &one(None::<i32>),
                    /* $12 retry_in_seconds */ &one(None::<f64>),
                    /* $13 settled */ &one(said.settled()),
                ],
            )
            .await;
        written.is_counted = !counted.is_empty();
        match said.end() {
            Some(end) => self.end_runs(run, Some(token), end).await,
            None => self.release(run, token, LONG).await,
        }
        if !written.is_held && written.is_counted {
            self.query("wake_answered", &[&workspace, &ids, &turn, &action])
                .await;
        }
        let written = self.cancel(run, written, said.end().is_some()).await;
        self.order("COMMIT").await;
        written
    }

    /// Writes what has happened to the action otherwise: a person must be asked, or it is denied.
    pub async fn change(&self, run: &Run, token: i64, to: ActionState, by: &Decided) -> Written {
        let (workspace, ids, turn, action) = keys(run, token);
        self.order("BEGIN").await;
        let written = self.hold(run, token).await;
        self.query(
            "record_changes",
            &[
                /* $1 workspace_id */ &workspace,
                /* $2 run_id */ &ids,
                /* $3 turn */ &turn,
                /* $4 action_id */ &action,
                /* $5 type */ &one("http.request"),
                /* $6 part_of */ &one(None::<&str>),
                /* $7 untrusted */ &one("{}"),
                /* $8 steered_by */ &one("{}"),
                /* $9 idempotency_key */ &one(Uuid::new_v4()),
                /* $10 state */ &one(to),
                /* $11 branch */ &one(None::<&str>),
                /* $12 error */ &one(None::<&str>),
                /* $13 is_told */ &one(false),
                /* $14 answer_sealed */ &one(None::<&[u8]>),
                /* $15 response_status */ &one(None::<i32>),
                /* $16 retry_in_seconds */ &one(None::<f64>),
                /* $17 decision */ &one(by.decision),
                /* $18 decision_rule */ &one(None::<i32>),
                /* $19 policy_version */ &one(by.policy),
                /* $20 request */ &one(run.request()),
                /* $21 begun */ &one(by.begun),
                /* $22 answered */ &one(by.answered),
            ],
        )
        .await;
        let is_over = to == ActionState::Denied;
        if is_over {
            self.end_runs(run, Some(token), RunState::Denied).await;
        } else {
            let (id, time) = (one(Uuid::new_v4()), one(LONG));
            let ask = [
                &workspace as _,
                &ids as _,
                &turn as _,
                &action as _,
                &id as _,
                &time as _,
            ];
            self.query("ask_approvals", &ask).await;
            self.release(run, token, LONG).await;
            // Who answers while a worker has the run leaves it to this to look.
            self.query("wake_answered", &[&workspace, &ids, &turn, &action])
                .await;
        }
        let written = self.cancel(run, written, is_over).await;
        self.order("COMMIT").await;
        written
    }
}

/// The steps that are not about an attempt.
impl Worker {
    /// Renews the lease.
    pub async fn keep(&self, run: &Run, token: i64) {
        let (workspace, ids, turn, _) = keys(run, token);
        self.query("keep_turns", &[&workspace, &ids, &turn, &LONG])
            .await;
    }

    /// Lets go of the run.
    pub async fn let_go(&self, run: &Run, token: i64) -> Written {
        self.order("BEGIN").await;
        let written = self.hold(run, token).await;
        self.release(run, token, 0.0).await;
        let written = self.cancel(run, written, false).await;
        self.order("COMMIT").await;
        written
    }

    /// Ends the run.
    pub async fn end(&self, run: &Run, token: i64, state: RunState) {
        self.order("BEGIN").await;
        self.hold(run, token).await;
        self.end_runs(run, Some(token), state).await;
        self.order("COMMIT").await;
    }

    async fn hold(&self, run: &Run, token: i64) -> Written {
        let (workspace, ids, turn, _) = keys(run, token);
        let held = self.query("hold_runs", &[&workspace, &ids, &turn]).await;
        Written {
            is_held: !held.is_empty(),
            is_cancelled: held.iter().any(|row| row.get("is_cancelled")),
            is_counted: false,
        }
    }

    async fn release(&self, run: &Run, token: i64, seconds: f64) {
        let (workspace, ids, turn, _) = keys(run, token);
        let arguments = (one(seconds), one(None::<Uuid>));
        let release = [
            &workspace as _,
            &ids as _,
            &turn as _,
            &arguments.0 as _,
            &arguments.1 as _,
        ];
        self.query("release_runs", &release).await;
    }

    async fn end_runs(&self, run: &Run, token: Option<i64>, state: RunState) {
        let reason = (state != RunState::Succeeded).then_some("because");
        let (workspace, ids) = (one(run.workspace), one(run.run));
        let (turn, state, reason) = (one(token), one(state), one(reason));
        let end = [
            &workspace as _,
            &ids as _,
            &turn as _,
            &state as _,
            &reason as _,
        ];
        self.query("end_runs", &end).await;
    }

    /// Cancels a run whose step has not ended it, if that was ordered.
    async fn cancel(&self, run: &Run, written: Written, has_ended: bool) -> Written {
        let is_cancelled = written.is_cancelled && !has_ended;
        if is_cancelled {
            self.end_runs(run, None, RunState::Cancelled).await;
        }
        Written {
            is_cancelled,
            ..written
        }
    }
}
