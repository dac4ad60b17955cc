//! Tells the database that a process is alive and how it fares, for those who can't reach its admin
//! address: `letterbox status` asks here. With it goes the public half of the key to which others
//! seal what only this process opens.

use std::time::{Duration, Instant};

use letterbox_common::{
    process::{readiness::Readiness, settings::ToldSettings},
    sealing::Recipient,
    states::Program,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{Database, DatabaseError, Parameters, Statement};

/// Says that a process is alive, and how it fares.
const TELL: Statement = Statement {
    name: "tell_presence",
    sql: "SELECT tell_presence($1, $2, $3, $4, $5, $6, $7, $8)",
    is_of_desk: false,
};
/// Says that a process is no more.
const END: Statement = Statement {
    name: "end_presence",
    sql: "SELECT end_presence($1)",
    is_of_desk: false,
};
/// How often the readiness is looked at; a change is told at once.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a process is said to be alive.
const TELL_EVERY: Duration = Duration::from_secs(5);
const TIME_LIMIT: Duration = Duration::from_secs(3);

/// Tells it until `stop`, then that the process is no more. What fails is told again.
pub async fn tell(
    database: Database,
    program: Program,
    name: String,
    recipient: Recipient,
    settings: ToldSettings,
    readiness: Readiness,
    stop: CancellationToken,
) {
    let id = Uuid::now_v7();
    let key_id = recipient.key_id();
    let public_key = recipient.to_bytes();
    let settings = serde_json::json!(settings);
    let mut former = (false, None);
    let mut told: Option<Instant> = None;
    loop {
        let waiting = readiness.waiting();
        let degraded = readiness.degraded();
        let is_ready = waiting.is_empty();
        let reasons = waiting.iter().chain(&degraded);
        let reasons: Vec<_> = reasons
            .map(|(part, why)| format!("{part}: {why}"))
            .collect();
        let trouble = (!reasons.is_empty()).then(|| reasons.join(", "));
        let now = (is_ready, trouble);
        let is_new = now != former;
        if is_new || told.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
            let (is_ready, trouble) = &now;
            let parameters: Parameters<'_> = &[
                &id,
                &program,
                &name,
                is_ready,
                trouble,
                &key_id,
                &public_key,
                &settings,
            ];
            let telling = tokio::time::timeout(TIME_LIMIT, database.try_once(&TELL, parameters));
            let in_time = telling.await;
            let telling = in_time.unwrap_or_else(|_| Err(DatabaseError::silent()));
            former = now;
            if let (Err(error), true) = (&telling, is_new || told.is_some()) {
                tracing::warn!(%error, "can't tell the database that this process is alive");
            }
            told = telling.is_ok().then(Instant::now);
        }
        let pause = tokio::time::sleep(LOOK_EVERY);
        if stop.run_until_cancelled(pause).await.is_none() {
            break;
        }
    }
    // If this fails, it is taken for dead half a minute later.
    let _ = tokio::time::timeout(TIME_LIMIT, database.try_once(&END, &[&id])).await;
}
