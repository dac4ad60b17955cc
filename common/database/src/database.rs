//! The one way to call the database: every call has a name, a time limit, a bounded number of
//! retries, a recorded latency and, when it fails, one log line. While the database does not answer
//! anything, calls fail at once, without a line.
//!
//! A call is retried only after a serialization failure (40001) or a deadlock (40P01), which the
//! server has rolled back. Whether a call that timed out took effect is unknown; callers are
//! written so that repeating it is safe.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use backon::{BackoffBuilder, ExponentialBuilder};
use deadpool_postgres::Pool;
use letterbox_common::{fail_point::fails, process::settings::SettingError};
use tokio::sync::Mutex;

use crate::{
    Answered, Client, DatabaseError, DatabaseSettings, DatabaseTarget, Parameters, Role, Statement,
    connect,
    connection::Connection,
    held::HeldTransaction,
    metrics,
    refusals::Refusals,
    silence::Silence,
    transaction::{Call, Session, Transaction, Work, say},
};

/// Maximum retries after a serialization failure or a deadlock.
const MAX_RETRIES: usize = 4;
const RETRY_PAUSE: Duration = Duration::from_millis(10);
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(200);

/// A database, with the rights of one process. Cheap to clone.
#[derive(Clone)]
pub struct Database {
    pool: Pool,
    time_limit: Duration,
    pub(crate) silence: Arc<Silence>,
    refusals: Arc<Refusals>,
    /// What each call says first, in its own transaction: names of settings, and their values.
    said: Arc<[(&'static str, String)]>,
    /// The transaction that all calls are part of, if they are part of one.
    held: Option<Arc<Mutex<HeldTransaction>>>,
}

impl Database {
    /// Creates a pool of connections, without connecting yet.
    pub fn new(
        target: &DatabaseTarget,
        settings: &DatabaseSettings,
        role: Role,
        application: &str,
    ) -> Result<Self, SettingError> {
        let size = usize::from(settings.database_pool_size);
        let pool = connect::create_pool(target, role, application, size)?;
        Ok(Self {
            pool,
            time_limit: role.time_limit(),
            silence: Arc::default(),
            refusals: Arc::default(),
            said: Arc::default(),
            held: None,
        })
    }

    /// The same database, for calls each of which is a transaction that begins with these settings,
    /// too: in whose name it is made, and why. They are over with it.
    #[must_use]
    pub fn saying(&self, said: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        Self {
            said: self.said.iter().cloned().chain(said).collect(),
            ..self.clone()
        }
    }

    /// The same database, all of whose calls are part of one transaction, which this order begins,
    /// until that is committed or dropped.
    pub(crate) async fn hold(
        &self,
        order: &str,
    ) -> Result<(Self, Arc<Mutex<HeldTransaction>>), DatabaseError> {
        let connection = Connection::acquire(&self.pool, &self.refusals).await?;
        let held = HeldTransaction::begin(connection, order, &self.said).await?;
        let held = Arc::new(Mutex::new(held));
        let database = Self {
            held: Some(held.clone()),
            ..self.clone()
        };
        Ok((database, held))
    }

    /// Reports the size of the pool as a metric.
    pub(crate) fn note_pool(&self) {
        metrics::POOL_SIZE.set(self.pool.status().max_size as f64);
    }

    /// Closes the pool: later calls fail.
    pub fn close(&self) {
        self.pool.close();
    }

    /// Runs `work` in a transaction called `name`. `Ok(Some(…))` commits; `Ok(None)` and errors
    /// roll back. After a serialization failure or a deadlock it runs again.
    pub async fn transaction<W: Work>(
        &self,
        name: &'static str,
        work: &W,
    ) -> Result<Option<W::Output>, DatabaseError> {
        self.run(name, &InTransaction { name, work }).await
    }

    /// Runs a call with everything that all calls share: time limit, retries, latency, log line.
    async fn run<C: Call>(&self, name: &'static str, call: &C) -> Result<C::Output, DatabaseError> {
        if self.silence.is_silent() {
            let error = DatabaseError::silent();
            metrics::STATEMENT_FAILURES.add([name, error.fault.as_str()], 1);
            return Err(error);
        }
        let began = Instant::now();
        let timed_out = || Err(DatabaseError::timed_out(name, self.time_limit));
        let calling = async {
            if fails(&["statement", name, "before"]).await {
                return timed_out();
            }
            let answer = self.run_with_retries(call).await?;
            match fails(&["statement", name, "after"]).await {
                true => timed_out(),
                false => Ok(answer),
            }
        };
        let result = match tokio::time::timeout(self.time_limit, calling).await {
            Ok(result) => result,
            Err(_) => {
                self.silence.note_failure(began);
                timed_out()
            }
        };
        metrics::STATEMENT_DURATION.record([name], began.elapsed());
        if let Err(error) = &result {
            metrics::STATEMENT_FAILURES.add([name, error.fault.as_str()], 1);
            tracing::warn!(statement = name, %error, "database call failed");
        }
        result
    }

    async fn run_with_retries<C: Call>(&self, call: &C) -> Result<C::Output, DatabaseError> {
        let pauses = ExponentialBuilder::default()
            .with_jitter()
            .with_min_delay(RETRY_PAUSE)
            .with_max_delay(RETRY_PAUSE_MAX)
            .with_max_times(MAX_RETRIES)
            .build();
        // What was rolled back is more than this call.
        if self.held.is_some() {
            return self.attempt(call).await;
        }
        for pause in pauses {
            match self.attempt(call).await {
                Err(error) if error.asks_for_retry() => tokio::time::sleep(pause).await,
                result => return result,
            }
        }
        self.attempt(call).await
    }

    /// Makes one attempt to run a statement: see [`Self::attempt`].
    pub(crate) async fn try_once(
        &self,
        statement: &Statement,
        parameters: Parameters<'_>,
    ) -> Result<Answered, DatabaseError> {
        let question = DatabaseCall {
            statement,
            parameters,
        };
        self.attempt(&question).await
    }

    /// Makes one attempt, without time limit or log line, even while the database is silent.
    pub(crate) async fn attempt<C: Call>(&self, call: &C) -> Result<C::Output, DatabaseError> {
        let began = Instant::now();
        let made = async {
            if let Some(held) = &self.held {
                return held.lock().await.call(call).await;
            }
            let connection = Connection::acquire(&self.pool, &self.refusals).await?;
            // After an error the state of the connection is uncertain: it is dropped, and so
            // closed.
            let session = Session::new(&connection);
            let output = if self.said.is_empty() {
                call.call(session).await?
            } else {
                let transaction = Transaction::begin(session).await?;
                say(&transaction, &self.said).await?;
                let output = call.call(transaction.inner()).await?;
                transaction.commit().await?;
                output
            };
            connection.release();
            Ok(output)
        };
        let made: Result<C::Output, DatabaseError> = made.await;
        match &made {
            Err(error) if error.code.is_none() => self.silence.note_failure(began),
            _ => self.silence.note_answer(),
        }
        made
    }
}

impl Client for Database {
    type Error = DatabaseError;

    async fn ask(
        &self,
        statement: &Statement,
        parameters: Parameters<'_>,
    ) -> Result<Answered, DatabaseError> {
        let question = DatabaseCall {
            statement,
            parameters,
        };
        self.run(statement.name, &question).await
    }
}

struct DatabaseCall<'c> {
    statement: &'c Statement,
    parameters: Parameters<'c>,
}

impl Call for DatabaseCall<'_> {
    type Output = Answered;

    async fn call(&self, session: Session<'_>) -> Result<Answered, DatabaseError> {
        session.ask(self.statement, self.parameters).await
    }
}

struct InTransaction<'w, W> {
    name: &'static str,
    work: &'w W,
}

impl<W: Work> Call for InTransaction<'_, W> {
    type Output = Option<W::Output>;

    async fn call(&self, session: Session<'_>) -> Result<Self::Output, DatabaseError> {
        let transaction = Transaction::begin(session).await?;
        let output = self.work.run(&transaction).await?;
        if fails(&["commit", self.name, "before"]).await {
            return Err(DatabaseError::rolled_back(self.name));
        }
        match &output {
            Some(_) => transaction.commit().await?,
            None => transaction.roll_back().await?,
        }
        Ok(output)
    }
}
