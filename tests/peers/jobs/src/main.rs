//! Brings jobs of one request each to their end with a job runner of others:
//! `letterbox-bench-jobs RUNNER NUMBER URL`, on the empty database of `DATABASE_URL`. Says when the
//! jobs are there, and begins when it is told; says when the first request is sent, and when all
//! are done as the database has it.
//!
//! `awa` runs as it is made, but for how much it does at once. `graphile_worker` fetches jobs in
//! batches: otherwise it finds those that are there before only as often as it looks, once a
//! second. `graphile_worker_in_batches` also completes them in batches, as its authors recommend
//! for throughput.

use std::{
    env,
    error::Error,
    io::stdin,
    sync::{
        LazyLock,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use awa::{
    Client, InsertOpts, JobArgs, JobError, JobResult, QueueConfig, insert_many_copy_from_pool,
    migrations, model::insert::params_with,
};
use graphile_worker::{
    IntoTaskHandlerResult, LocalQueueConfig, TaskHandler, WorkerContext, WorkerOptions,
};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, postgres::PgPoolOptions};
use tokio::time::{sleep, timeout};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// As many as a worker of Letterbox executes at once.
const AT_ONCE: usize = 64;
const POOL: u32 = 20;
const PATIENCE: Duration = Duration::from_secs(300);
const SHORTLY: Duration = Duration::from_millis(5);
const PAUSE: Duration = Duration::from_millis(10);
const QUEUE: &str = "post";

static CLIENT: LazyLock<reqwest::Client> = LazyLock::new(reqwest::Client::new);
static POSTED: AtomicI64 = AtomicI64::new(0);

async fn post(url: &str) -> reqwest::Result<()> {
    if POSTED.fetch_add(1, Relaxed) == 0 {
        println!("begun");
    }
    let request = CLIENT.post(url).header("content-type", "application/json");
    let response = request.body(r#"{"name":"Ada"}"#).send().await?;
    response.error_for_status()?.bytes().await?;
    Ok(())
}

#[derive(Serialize, Deserialize, JobArgs)]
struct Post {
    url: String,
}

impl TaskHandler for Post {
    const IDENTIFIER: &'static str = "post";

    async fn run(self, _: WorkerContext) -> impl IntoTaskHandlerResult {
        post(&self.url).await.map_err(|error| error.to_string())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [runner, number, url] = arguments.as_slice() else {
        return Err("usage: letterbox-bench-jobs RUNNER NUMBER URL".into());
    };
    let number: i64 = number.parse()?;
    let database = PgPoolOptions::new().max_connections(POOL);
    let database = database.connect(&env::var("DATABASE_URL")?).await?;
    let running = async {
        match runner.as_str() {
            "awa" => awa(&database, number, url).await,
            "graphile_worker" => graphile_worker(&database, number, url, false).await,
            "graphile_worker_in_batches" => graphile_worker(&database, number, url, true).await,
            _ => Err(format!("no runner {runner}").into()),
        }
    };
    timeout(PATIENCE, running).await?
}

async fn graphile_worker(
    database: &PgPool,
    number: i64,
    url: &str,
    in_batches: bool,
) -> Result<()> {
    let mut options = WorkerOptions::default();
    if in_batches {
        options = options.complete_job_batch_delay(SHORTLY);
    }
    let worker = options
        .database_url(&env::var("DATABASE_URL")?)
        .max_pg_conn(POOL)
        .concurrency(AT_ONCE)
        .local_queue(LocalQueueConfig::default().with_size(4 * AT_ONCE))
        .define_job::<Post>()
        .init()
        .await?;
    let insert = "SELECT count(graphile_worker.add_job('post', json_build_object('url', $1::text)))
                  FROM generate_series(1, $2)";
    let inserted = sqlx::query(insert).bind(url).bind(number);
    inserted.execute(database).await?;
    begin(database).await?;
    tokio::spawn(async move { worker.run().await });
    ended(
        database,
        "SELECT count(*) FROM graphile_worker._private_jobs",
        number,
        0,
    )
    .await
}

async fn awa(database: &PgPool, number: i64, url: &str) -> Result<()> {
    migrations::run(database).await?;
    let queue = || InsertOpts {
        queue: QUEUE.to_owned(),
        ..InsertOpts::default()
    };
    let job = Post {
        url: url.to_owned(),
    };
    let jobs = (0..number).map(|_| params_with(&job, queue()));
    let jobs = jobs.collect::<std::result::Result<Vec<_>, _>>()?;
    for jobs in jobs.chunks(1_000) {
        insert_many_copy_from_pool(database, jobs).await?;
    }
    let config = QueueConfig {
        max_workers: AT_ONCE.try_into()?,
        ..QueueConfig::default()
    };
    let client = Client::builder(database.clone())
        .queue(QUEUE, config)
        .register::<Post, _, _>(|job: Post, _| async move {
            let posted = post(&job.url).await;
            posted.map_err(JobError::retryable)?;
            Ok(JobResult::Completed)
        })
        .build()?;
    begin(database).await?;
    client.start().await?;
    let done = "SELECT count(*) FROM awa.jobs WHERE state = 'completed'";
    ended(database, done, number, number).await
}

/// Says that the jobs are there, and waits for a line.
async fn begin(database: &PgPool) -> Result<()> {
    sqlx::query("VACUUM ANALYZE").execute(database).await?;
    println!("ready");
    tokio::task::spawn_blocking(|| stdin().read_line(&mut String::new())).await??;
    Ok(())
}

async fn ended(database: &PgPool, query: &str, number: i64, wanted: i64) -> Result<()> {
    // Until then the database is not asked.
    while POSTED.load(Relaxed) < number {
        sleep(PAUSE).await;
    }
    while sqlx::query_scalar::<_, i64>(query)
        .fetch_one(database)
        .await?
        != wanted
    {
        sleep(PAUSE).await;
    }
    println!("done");
    Ok(())
}
