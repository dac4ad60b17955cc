//! `letterbox ready`: asks a gateway or a worker whether it can do its work, for health checks of
//! containers, where nothing else can ask.

use std::time::Duration;

use letterbox_trials::{TrialError, client};
use serde_json::Value;
use url::Url;

use crate::{Failure, Output, Result};

const TIMEOUT: Duration = Duration::from_secs(2);

/// Asks the process whose admin address this is.
pub(crate) async fn run(admin: &Url) -> Result<Output> {
    let asked = admin.join("/readyz").map_err(|_| Failure::NoAddress)?;
    let (status, text) = ask(asked).await?;
    if status != 200 {
        return Err(Failure::NotReady(text));
    }
    let told = serde_json::from_str::<Value>(&text).map_err(|_| Failure::NoAddress)?;
    Ok(Output::Json(told))
}

async fn ask(url: Url) -> Result<(u16, String), TrialError> {
    let answer = client(TIMEOUT)?.get(url).send().await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}
