//! `letterbox migrate`: the schema and, where a broker is given, exchanges and queues.

use letterbox_broker::{AMQP_URL, BrokerTarget, declare};
use letterbox_database::DatabaseTarget;
use serde_json::json;

use crate::{Failure, Output, Result};

pub(crate) async fn run() -> Result<Output> {
    let migrated = letterbox_operator::migrate(&DatabaseTarget::from_environment()?).await?;
    let has_broker = AMQP_URL.read()?.is_some();
    if has_broker {
        let declared = declare(&BrokerTarget::from_environment()?, "letterbox").await;
        declared.map_err(|error| Failure::Undeclared {
            version: migrated.version,
            error,
        })?;
    }
    Ok(Output::one(&json!({
        "version": migrated.version,
        "applied": migrated.applied,
        "queues_declared": has_broker,
    })))
}
