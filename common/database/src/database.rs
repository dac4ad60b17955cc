//! The one way to ask the database: every call has a name, a time limit, a bounded number of
//! retries, a latency and, when it fails, one line in the log.
//!
//! A call is repeated only after a serialization failure (40001) or a deadlock (40P01): the server
//! has rolled it back and asks for another try. Whether a call that ran out of time took effect is
//! unknown; callers are written so that repeating it is safe.

use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBuilder};
use deadpool_postgres::Pool;
use letterbox_common::process::settings::SettingError;
use tokio_postgres::Row;

use crate::{
    DatabaseError, DatabaseSettings, DatabaseTarget, Role, Statement, connect,
    connection::Connection,
    metrics,
    transaction::{Parameters, Transaction, Work},
};

/// Retries after a serialization failure or a deadlock.
const MAX_RETRIES: usize = 4;
const RETRY_PAUSE: Duration = Duration::from_millis(10);
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(200);

/// A database, under the rights of one process. Cheap to clone.
#[derive(Clone)]
pub struct Database {
    pool: Pool,
    time_limit: Duration,
}

impl Database {
    /// A pool of connections to a database. Connects to nothing yet.
    ///
    /// # Errors
    /// When the certificates of the URL can't be read.
    pub fn new(
        target: &DatabaseTarget,
        settings: &DatabaseSettings,
        role: Role,
        application: &str,
    ) -> Result<Self, SettingError> {
        let size = usize::from(settings.database_pool_size);
        Self::with_pool_of(size, target, role, application)
    }

    /// One connection at most, for a program that does one thing after the other.
    ///
    /// # Errors
    /// When the certificates of the URL can't be read.
    pub fn single(
        target: &DatabaseTarget,
        role: Role,
        application: &str,
    ) -> Result<Self, SettingError> {
        Self::with_pool_of(1, target, role, application)
    }

    fn with_pool_of(
        size: usize,
        target: &DatabaseTarget,
        role: Role,
        application: &str,
    ) -> Result<Self, SettingError> {
        let pool = connect::create_pool(target, role, application, size)?;
        Ok(Self {
            pool,
            time_limit: role.time_limit(),
        })
    }

    /// Tells how many connections may be open.
    pub(crate) fn note_pool(&self) {
        metrics::POOL_SIZE.set(self.pool.status().max_size as f64);
    }

    /// Closes the pool: later calls fail.
    pub fn close(&self) {
        self.pool.close();
    }

    /// Runs a statement; gives all of its rows.
    ///
    /// # Errors
    /// When the database does not answer in time, or refuses.
    pub async fn query(
        &self,
        statement: &Statement,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, DatabaseError> {
        self.run(
            statement.name,
            &Query {
                statement,
                parameters,
            },
        )
        .await
    }

    /// Runs a statement that gives at most one row.
    ///
    /// # Errors
    /// As [`Self::query`]. Of several rows the first is given.
    pub async fn query_opt(
        &self,
        statement: &Statement,
        parameters: Parameters<'_>,
    ) -> Result<Option<Row>, DatabaseError> {
        Ok(self.query(statement, parameters).await?.into_iter().next())
    }

    /// Runs a statement that always gives a row.
    ///
    /// # Errors
    /// As [`Self::query`]; and when there is no row.
    pub async fn query_one(
        &self,
        statement: &Statement,
        parameters: Parameters<'_>,
    ) -> Result<Row, DatabaseError> {
        let row = self.query_opt(statement, parameters).await?;
        row.ok_or_else(|| DatabaseError::no_row(statement.name))
    }

    /// Runs a statement; gives the number of rows that it changed.
    ///
    /// # Errors
    /// As [`Self::query`].
    pub async fn execute(
        &self,
        statement: &Statement,
        parameters: Parameters<'_>,
    ) -> Result<u64, DatabaseError> {
        self.run(
            statement.name,
            &Execute {
                statement,
                parameters,
            },
        )
        .await
    }

    /// Does `work` in a transaction called `name`. `Ok(Some(…))` commits; `Ok(None)` and errors
    /// roll back. After a serialization failure or a deadlock it is done again.
    ///
    /// # Errors
    /// When the database does not answer in time, or refuses.
    pub async fn transaction<W: Work>(
        &self,
        name: &'static str,
        work: &W,
    ) -> Result<Option<W::Output>, DatabaseError> {
        self.run(name, &InTransaction(work)).await
    }

    /// What all calls share: a connection, the time limit, retries, the latency, the log line.
    async fn run<C: Call>(&self, name: &'static str, call: &C) -> Result<C::Output, DatabaseError> {
        let began = Instant::now();
        let calling = self.run_with_retries(call);
        let result = match tokio::time::timeout(self.time_limit, calling).await {
            Ok(result) => result,
            Err(_) => Err(DatabaseError::timed_out(name, self.time_limit)),
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
        for pause in pauses {
            match self.attempt(call).await {
                Err(error) if error.asks_for_retry() => tokio::time::sleep(pause).await,
                result => return result,
            }
        }
        self.attempt(call).await
    }

    /// One try, without time limit or log line.
    pub(crate) async fn attempt<C: Call>(&self, call: &C) -> Result<C::Output, DatabaseError> {
        let mut connection = Connection::acquire(&self.pool).await?;
        let output = call.call(&mut connection).await?;
        connection.release();
        Ok(output)
    }
}

/// What is done on a connection, perhaps more than once.
pub(crate) trait Call: Sync {
    type Output: Send;

    fn call(
        &self,
        connection: &mut Connection,
    ) -> impl Future<Output = Result<Self::Output, DatabaseError>> + Send;
}

struct Query<'c> {
    statement: &'c Statement,
    parameters: Parameters<'c>,
}

impl Call for Query<'_> {
    type Output = Vec<Row>;

    async fn call(&self, connection: &mut Connection) -> Result<Vec<Row>, DatabaseError> {
        let prepared = connection.prepare_cached(self.statement.sql).await?;
        Ok(connection.query(&prepared, self.parameters).await?)
    }
}

struct Execute<'c> {
    statement: &'c Statement,
    parameters: Parameters<'c>,
}

impl Call for Execute<'_> {
    type Output = u64;

    async fn call(&self, connection: &mut Connection) -> Result<u64, DatabaseError> {
        let prepared = connection.prepare_cached(self.statement.sql).await?;
        Ok(connection.execute(&prepared, self.parameters).await?)
    }
}

struct InTransaction<'w, W>(&'w W);

impl<W: Work> Call for InTransaction<'_, W> {
    type Output = Option<W::Output>;

    async fn call(&self, connection: &mut Connection) -> Result<Self::Output, DatabaseError> {
        let transaction = Transaction::begin(connection).await?;
        let output = self.0.run(&transaction).await?;
        match &output {
            Some(_) => transaction.commit().await?,
            None => transaction.roll_back().await?,
        }
        Ok(output)
    }
}
