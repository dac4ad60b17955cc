//! Tells the database that a process is alive and how it fares, for those who can't reach its admin
//! address: `letterbox status` asks here. With it goes the public half of the key to which others
//! seal what only this process opens.

use std::time::{Duration, Instant};

use letterbox_common::{
    process::{readiness::Readiness, settings::ToldSettings},
    sealing::Recipient,
    states::Program,
};
use tokio_postgres::types::ToSql;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    Database, DatabaseError,
    transaction::{Call, Session},
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
    let mut present = Present {
        id: Uuid::now_v7(),
        program,
        name,
        recipient,
        settings: serde_json::json!(settings),
        is_ready: false,
        trouble: None,
    };
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
        let is_new = (is_ready, &trouble) != (present.is_ready, &present.trouble);
        if is_new || told.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
            (present.is_ready, present.trouble) = (is_ready, trouble);
            let telling = tokio::time::timeout(TIME_LIMIT, database.attempt(&present));
            let telling = telling
                .await
                .unwrap_or_else(|_| Err(DatabaseError::silent()));
            if let (Err(error), true) = (&telling, is_new || told.is_some()) {
                tracing::warn!(%error, "can't tell the database that this process is alive");
            }
            told = telling.is_ok().then(Instant::now);
        }
        if stop
            .run_until_cancelled(tokio::time::sleep(LOOK_EVERY))
            .await
            .is_none()
        {
            break;
        }
    }
    // If this fails, it is taken for dead half a minute later.
    let _ = tokio::time::timeout(TIME_LIMIT, database.attempt(&Gone(present.id))).await;
}

struct Present {
    id: Uuid,
    program: Program,
    name: String,
    recipient: Recipient,
    settings: serde_json::Value,
    is_ready: bool,
    trouble: Option<String>,
}

impl Call for Present {
    type Output = ();

    async fn call(&self, Session { client, .. }: Session<'_>) -> Result<(), DatabaseError> {
        let statement = "SELECT tell_presence($1, $2, $3, $4, $5, $6, $7, $8)";
        let statement = client.prepare_cached(statement).await?;
        let key_id = self.recipient.key_id();
        let public_key = self.recipient.to_bytes();
        let parameters: [&(dyn ToSql + Sync); 8] = [
            &self.id,
            &self.program,
            &self.name,
            &self.is_ready,
            &self.trouble,
            &key_id,
            &public_key,
            &self.settings,
        ];
        client.query(&statement, &parameters).await?;
        Ok(())
    }
}

/// The process with this id has stopped.
struct Gone(Uuid);

impl Call for Gone {
    type Output = ();

    async fn call(&self, Session { client, .. }: Session<'_>) -> Result<(), DatabaseError> {
        client.query("SELECT end_presence($1)", &[&self.0]).await?;
        Ok(())
    }
}
