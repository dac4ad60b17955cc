//! Transactions, and pipelined statements in them.

use std::{future::poll_fn, pin::pin, task::Poll};

use deadpool_postgres::ClientWrapper;
use futures_util::TryStreamExt;
use tokio::sync::Mutex;

use crate::{Answered, Client, DatabaseError, Parameters, Statement};

/// The work of a transaction. It runs again after a serialization failure or a deadlock, so it must
/// have no effects elsewhere that may not happen twice.
pub trait Work: Sync {
    /// The value that a committed transaction returns to its caller.
    type Output: Send;

    /// Returns `Some` to commit, `None` to roll back.
    ///
    /// # Errors
    /// When a statement fails. Rolls back.
    fn run(
        &self,
        transaction: &Transaction<'_>,
    ) -> impl Future<Output = Result<Option<Self::Output>, DatabaseError>> + Send;
}

/// Work on a connection, done again when it is retried.
pub(crate) trait Call: Sync {
    type Output: Send;

    fn call(
        &self,
        session: Session<'_>,
    ) -> impl Future<Output = Result<Self::Output, DatabaseError>> + Send;
}

/// Sets settings for a transaction.
const SAY: Statement = Statement {
    name: "say",
    sql: "SELECT set_config(name, value, true)
FROM unnest($1::text[], $2::text[]) AS said (name, value)",
    is_of_desk: false,
};

/// Says something in a transaction that has just begun.
pub(crate) async fn say(
    transaction: &Transaction<'_>,
    said: &[(&'static str, String)],
) -> Result<(), DatabaseError> {
    let (names, values): (Vec<_>, Vec<_>) = said.iter().map(|(name, value)| (*name, value)).unzip();
    transaction.ask(&SAY, &[&names, &values]).await?;
    Ok(())
}

/// A connection, and how many transactions are under way on it, one in another.
#[derive(Clone, Copy)]
pub(crate) struct Session<'c> {
    pub(crate) client: &'c ClientWrapper,
    depth: u8,
}

impl<'c> Session<'c> {
    /// A connection on which nothing is under way.
    pub(crate) fn new(client: &'c ClientWrapper) -> Self {
        Self { client, depth: 0 }
    }

    /// Runs a statement, which is prepared once for each connection.
    pub(crate) async fn ask(
        self,
        statement: &Statement,
        parameters: Parameters<'_>,
    ) -> Result<Answered, DatabaseError> {
        self.ask_in_turn(statement, parameters, ()).await
    }

    /// As [`Self::ask`]; `turn` is dropped once the statement is sent.
    async fn ask_in_turn<T>(
        self,
        statement: &Statement,
        parameters: Parameters<'_>,
        turn: T,
    ) -> Result<Answered, DatabaseError> {
        let prepared = self.client.prepare_cached(statement.sql).await?;
        let parameters = parameters.iter().copied();
        let mut asking = pin!(self.client.query_raw(&prepared, parameters));
        // A query is sent when its future is first polled.
        let first = poll_fn(|context| Poll::Ready(asking.as_mut().poll(context))).await;
        drop(turn);
        let answer = match first {
            Poll::Ready(answer) => answer?,
            Poll::Pending => asking.await?,
        };
        let mut answer = pin!(answer);
        let mut rows = Vec::new();
        while let Some(row) = answer.try_next().await? {
            rows.push(row);
        }
        let count = answer.rows_affected().unwrap_or_default();
        Ok(Answered { rows, count })
    }

    /// A connection on which a transaction is under way.
    pub(crate) fn part_of_one(client: &'c ClientWrapper) -> Self {
        Self { client, depth: 1 }
    }
}

/// A transaction in progress, or a part of one. Whoever drops it must close the connection: that
/// rolls it back.
///
/// Statements that are asked at once are sent in the order in which they were asked, without
/// waiting for answers between them.
pub struct Transaction<'c> {
    session: Session<'c>,
    /// Whose turn it is to send a statement.
    sending: Mutex<()>,
}

impl<'c> Transaction<'c> {
    pub(crate) async fn begin(session: Session<'c>) -> Result<Self, DatabaseError> {
        Self::begin_as(session, "BEGIN").await
    }

    /// As [`Self::begin`], by this order where it is no part of another.
    pub(crate) async fn begin_as(session: Session<'c>, whole: &str) -> Result<Self, DatabaseError> {
        let transaction = Self {
            session,
            sending: Mutex::default(),
        };
        transaction.order(whole, "SAVEPOINT").await?;
        Ok(transaction)
    }

    /// The connection, for what is part of this transaction.
    pub(crate) fn inner(&self) -> Session<'c> {
        Session {
            depth: self.session.depth + 1,
            ..self.session
        }
    }

    pub(crate) async fn commit(self) -> Result<(), DatabaseError> {
        self.order("COMMIT", "RELEASE SAVEPOINT").await
    }

    pub(crate) async fn roll_back(self) -> Result<(), DatabaseError> {
        self.order("ROLLBACK", "ROLLBACK TO SAVEPOINT").await
    }

    /// An order about the whole transaction, or about the part of another that this one is.
    async fn order(&self, whole: &str, part: &str) -> Result<(), DatabaseError> {
        let Session { client, depth } = self.session;
        let ordered = match depth {
            0 => client.batch_execute(whole).await,
            depth => client.batch_execute(&format!("{part} part_{depth}")).await,
        };
        Ok(ordered?)
    }
}

/// When the database refuses, the transaction is over.
impl Client for Transaction<'_> {
    type Error = DatabaseError;

    async fn ask(
        &self,
        statement: &Statement,
        parameters: Parameters<'_>,
    ) -> Result<Answered, DatabaseError> {
        let turn = self.sending.lock().await;
        self.session.ask_in_turn(statement, parameters, turn).await
    }
}
