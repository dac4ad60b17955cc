//! What every call of the database gets: bounded retries, a time limit, a connection that is fit
//! for the next one, and a transaction that commits as a whole or not at all.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use letterbox_common::states::RunState;
use letterbox_database::{
    Client, Database, DatabaseError, DatabaseSettings, Fault, Role, Statement, Transaction, Work,
    ask,
};
use letterbox_tests::World;
use tokio::{sync::Barrier, try_join};

const fn statement(sql: &'static str) -> Statement {
    Statement {
        name: "test",
        sql,
        is_of_desk: false,
    }
}

static LOCK: Statement = statement("UPDATE numbers SET value = value + 1 WHERE number = $1");
static INSERT: Statement = statement("INSERT INTO numbers VALUES ($1, 0)");
static COUNT: Statement = statement("SELECT count(*) AS numbers FROM numbers");
static SLEEP: Statement = statement("SELECT pg_sleep(60)");
static DIVIDE: Statement = statement("SELECT 1 / $1::int");
static ONE: Statement = statement("SELECT 1");
static CONFLICT: Statement = statement("SELECT refuse()");
static UNKNOWN_WORD: Statement = statement("SELECT 'dreaming'::text AS state");

/// A database with two rows, and one connection to it.
async fn database(world: &World, role: Role) -> Database {
    let schema = "
        CREATE TABLE numbers (number int PRIMARY KEY, value int NOT NULL);
        INSERT INTO numbers VALUES (1, 0), (2, 0);
        CREATE FUNCTION refuse() RETURNS void LANGUAGE plpgsql AS
            $$BEGIN RAISE EXCEPTION 'once more' USING ERRCODE = 'serialization_failure'; END$$";
    world.change(schema).await;
    connect(world, role)
}

fn connect(world: &World, role: Role) -> Database {
    let target = world.database_url.parse().unwrap();
    Database::new(&target, &DatabaseSettings::SINGLE, role, "test").unwrap()
}

async fn count(database: &Database) -> i64 {
    ask::<(i64,), _>(database, &COUNT, &[]).await.unwrap().0
}

/// Locks two rows in this order. On its first try it waits between them for the other one.
struct LockBoth<'b> {
    order: [i32; 2],
    both_hold_one: &'b Barrier,
    tries: &'b AtomicUsize,
    is_first: AtomicUsize,
}

impl Work for LockBoth<'_> {
    type Output = ();

    async fn run(&self, transaction: &Transaction<'_>) -> Result<Option<()>, DatabaseError> {
        self.tries.fetch_add(1, Ordering::SeqCst);
        let [first, second] = self.order;
        transaction.ask(&LOCK, &[&first]).await?;
        if self.is_first.fetch_add(1, Ordering::SeqCst) == 0 {
            self.both_hold_one.wait().await;
        }
        transaction.ask(&LOCK, &[&second]).await?;
        Ok(Some(()))
    }
}

#[tokio::test]
async fn a_deadlock_is_resolved_by_trying_again() {
    let world = World::new().await;
    let here = database(&world, Role::Login).await;
    let there = connect(&world, Role::Login);
    let (both_hold_one, tries) = (Barrier::new(2), AtomicUsize::new(0));
    let lock = |order| LockBoth {
        order,
        both_hold_one: &both_hold_one,
        tries: &tries,
        is_first: AtomicUsize::new(0),
    };
    let (up, down) = (lock([1, 2]), lock([2, 1]));
    let (up, down) = tokio::join!(
        here.transaction("up", &up),
        there.transaction("down", &down)
    );
    assert!(matches!((up, down), (Ok(Some(())), Ok(Some(())))));
    assert_eq!(tries.load(Ordering::SeqCst), 3); // one of them was tried again
    let sum = "SELECT sum(value) FROM numbers";
    world.assert_count(sum, 4).await;
}

/// Fails with a serialization failure every time.
struct Refused(AtomicUsize);

impl Work for Refused {
    type Output = ();

    async fn run(&self, transaction: &Transaction<'_>) -> Result<Option<()>, DatabaseError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        transaction.ask(&INSERT, &[&3]).await?;
        transaction.ask(&CONFLICT, &[]).await?;
        Ok(Some(()))
    }
}

#[tokio::test]
async fn tries_are_bounded_and_leave_nothing() {
    let world = World::new().await;
    let database = database(&world, Role::Login).await;
    let work = Refused(AtomicUsize::new(0));
    let error = database.transaction("refused", &work).await.unwrap_err();
    assert_eq!(error.code.unwrap().code(), "40001");
    assert_eq!(error.fault, Fault::Transient);
    assert_eq!(work.0.load(Ordering::SeqCst), 5);
    assert_eq!(count(&database).await, 2);
}

/// Inserts, and then does not commit.
struct Undecided;

impl Work for Undecided {
    type Output = ();

    async fn run(&self, transaction: &Transaction<'_>) -> Result<Option<()>, DatabaseError> {
        transaction.ask(&INSERT, &[&3]).await?;
        Ok(None)
    }
}

/// Inserts before and after a statement that fails, without waiting between them.
struct Pipeline;

impl Work for Pipeline {
    type Output = ();

    async fn run(&self, transaction: &Transaction<'_>) -> Result<Option<()>, DatabaseError> {
        try_join!(
            biased;
            transaction.ask(&INSERT, &[&3]),
            transaction.ask(&DIVIDE, &[&0]),
            transaction.ask(&INSERT, &[&4]),
        )?;
        Ok(Some(()))
    }
}

#[tokio::test]
async fn what_is_not_committed_is_rolled_back() {
    let world = World::new().await;
    let database = database(&world, Role::Login).await;
    let undecided = database.transaction("undecided", &Undecided).await;
    assert!(matches!(undecided, Ok(None)));
    assert_eq!(count(&database).await, 2);

    let error = database.transaction("pipeline", &Pipeline).await;
    let error = error.unwrap_err();
    assert_eq!(error.code.unwrap().code(), "22012"); // the first error is told
    assert_eq!(error.fault, Fault::Permanent);
    assert_eq!(count(&database).await, 2);
}

/// A call that nobody waits for any more, and one that takes too long, take their connection with
/// them: the pool's only place is free for the next call.
#[tokio::test]
async fn a_call_that_is_given_up_does_not_keep_its_connection() {
    let world = World::new().await;
    let database = database(&world, Role::Login).await;
    let waiting = tokio::time::timeout(Duration::from_millis(200), database.ask(&SLEEP, &[]));
    assert!(waiting.await.is_err());
    assert_eq!(count(&database).await, 2);

    let hurried = connect(&world, Role::Gateway);
    let error = hurried.ask(&SLEEP, &[]).await.unwrap_err();
    assert_eq!(error.fault, Fault::Transient);
    let rows = hurried.ask(&ONE, &[]).await.unwrap();
    assert_eq!(rows.rows.len(), 1);
}

/// A row of a newer schema must not be taken for a mistake that no retry can mend.
#[tokio::test]
async fn a_word_that_this_program_does_not_know_is_transient() {
    let world = World::new().await;
    let database = database(&world, Role::Login).await;
    let row = &database.ask(&UNKNOWN_WORD, &[]).await.unwrap().rows[0];
    let error = row.try_get::<_, RunState>("state").unwrap_err();
    assert_eq!(DatabaseError::from(error).fault, Fault::Transient);
    let error = database.ask(&LOCK, &[&"one"]).await.unwrap_err();
    assert_eq!(error.fault, Fault::Permanent, "it can't be encoded");
}
