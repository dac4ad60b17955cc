//! A gate in the database: workers that ask a table for rows wait there until it is opened.

use crate::{World, eventually};

impl World {
    /// Shuts the gate before a table.
    pub async fn shut_gate(&self, table: &str) {
        let gate = format!(
            "CREATE FUNCTION gate() RETURNS boolean LANGUAGE plpgsql AS $$
            BEGIN
                PERFORM pg_advisory_xact_lock_shared(42);
                RETURN true;
            END $$;
            ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
            CREATE POLICY open ON {table} TO letterbox_worker, letterbox_operator USING (true);
            CREATE POLICY gate ON {table} AS RESTRICTIVE TO letterbox_worker USING (gate());
            SELECT pg_advisory_lock(42)"
        );
        self.change(&gate).await;
    }

    /// Waits until somebody waits for a lock of this kind, at the gate or another one.
    pub async fn await_at_gate(&self) {
        let waiting = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
            WHERE d.datname = current_database() AND locktype = 'advisory' AND NOT granted";
        eventually("it waits", async || self.count(waiting).await > 0).await;
    }

    /// Opens the gate again.
    pub async fn open_gate(&self) {
        self.change("SELECT pg_advisory_unlock(42)").await;
    }

    /// Whether somebody waits for rows or tables that others have locked.
    pub async fn locks_out(&self) -> bool {
        let waiting = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'";
        self.count(waiting).await > 0
    }

    /// Waits until no worker has a run.
    pub async fn await_idle(&self) {
        let taken = "SELECT count(*) FROM active_runs WHERE state = 'taken'";
        self.await_count("no worker has a run", taken, 0).await;
    }
}
