//! What is in the database of a world: counted, awaited and changed, as its owner.

use std::time::Duration;

use letterbox_common::ids::WorkspaceId;
use tokio_postgres::{Client, types::FromSqlOwned};

use crate::{World, eventually, world::PATIENCE};

/// The one value that a query gives a session.
pub async fn value<T: FromSqlOwned>(session: &Client, query: &str) -> T {
    session.query_one(query, &[]).await.unwrap().get(0)
}

impl World {
    /// The one value that a query gives.
    pub async fn value<T: FromSqlOwned>(&self, query: &str) -> T {
        value(&self.database, query).await
    }

    /// The first column of what a query gives.
    pub async fn column<T: FromSqlOwned>(&self, query: &str) -> Vec<T> {
        let rows = self.database.query(query, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// What a counting query counts.
    pub async fn count(&self, query: &str) -> i64 {
        self.value(query).await
    }

    /// Asserts what a counting query counts.
    pub async fn assert_count(&self, query: &str, expected: i64) {
        assert_eq!(self.count(query).await, expected, "{query}");
    }

    /// Waits until a counting query counts so many.
    pub async fn await_count(&self, what: &str, query: &str, expected: i64) {
        eventually(what, async || self.count(query).await == expected).await;
    }

    /// How many rows a table has, or those that follow it: `runs WHERE …`.
    pub async fn rows(&self, of: &str) -> i64 {
        self.count(&format!("SELECT count(*) FROM {of}")).await
    }

    /// Asserts how many rows there are.
    pub async fn assert_rows(&self, of: &str, expected: i64) {
        assert_eq!(self.rows(of).await, expected, "{of}");
    }

    /// Waits until there are so many rows.
    pub async fn await_rows(&self, of: &str, expected: i64) {
        let what = format!("{expected} {of}");
        eventually(&what, async || self.rows(of).await == expected).await;
    }

    /// Adds runs like the one of a workspace, with these values in columns of `active_runs`.
    pub async fn copy_runs(&self, number: u32, of: WorkspaceId, columns: &str, values: &str) {
        let copies = format!(
            "WITH added AS (
                INSERT INTO runs (workspace_id, run_id, workflow_id, release_id, run_as, state,
                    input, received_at)
                SELECT workspace_id, gen_random_uuid(), workflow_id, release_id, run_as, state,
                    input, received_at
                FROM runs, generate_series(1, {number}) WHERE workspace_id = '{of}'
                RETURNING workspace_id, run_id)
            INSERT INTO active_runs (workspace_id, run_id, {columns}) SELECT *, {values} FROM added"
        );
        self.change(&copies).await;
    }

    /// Changes the database, as its owner.
    pub async fn change(&self, orders: &str) {
        let changing = self.database.batch_execute(orders);
        changing
            .await
            .unwrap_or_else(|error| panic!("{orders}: {error:?}"));
    }

    /// Ends the leases of all gateways on what they have claimed.
    pub async fn end_leases(&self) {
        let end = "UPDATE open_batches SET lease_until = clock_timestamp()";
        self.change(end).await;
    }

    /// Lets a minute pass for the rate limits, as far as the database knows of it.
    pub async fn forget_hits(&self) {
        self.change("UPDATE rate_limits SET hits = '{}'").await;
    }

    /// How many runs there are.
    pub async fn runs(&self) -> i64 {
        self.rows("runs").await
    }

    /// How many signals there are.
    pub async fn signals(&self) -> i64 {
        self.rows("signals").await
    }

    /// Waits until there are this many runs, and no more.
    pub async fn await_runs(&self, expected: i64) {
        self.await_all("runs", expected).await;
    }

    /// Waits until there are this many signals, and no more.
    pub async fn await_signals(&self, expected: i64) {
        self.await_all("signals", expected).await;
    }

    async fn await_all(&self, of: &str, expected: i64) {
        eventually(of, async || self.rows(of).await >= expected).await;
        self.assert_rows(of, expected).await;
    }

    /// Waits until a state of runs is reached by so many.
    pub async fn await_state(&self, state: &str, expected: i64) {
        let reached = format!("runs WHERE state = '{state}'");
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while self.rows(&reached).await != expected {
            if tokio::time::Instant::now() > deadline {
                let runs = "SELECT coalesce(string_agg(concat_ws(' ', r.state, r.failure, 'turn',
                        a.turn, a.state, a.due_at - now()), '; '), '')
                    FROM (SELECT * FROM runs LIMIT 20) r LEFT JOIN active_runs a USING (run_id)";
                let runs: String = self.value(runs).await;
                panic!("waited in vain for {expected} runs {state}: {runs}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
