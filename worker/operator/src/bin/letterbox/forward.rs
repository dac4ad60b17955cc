//! `letterbox signal forward`: signals as they come, posted to a program that is being written.

use std::time::{Duration, Instant};

use clap::Args;
use jiff::Timestamp;
use letterbox_common::ids::WebhookId;
use letterbox_operator::{Named, Operator, SignalDetail, moment};
use letterbox_trials::{Signer, Signing, forward};
use serde_json::json;
use url::Url;

use crate::{Failure, Output, in_workspace::InWorkspace, output, send::signer, story::word};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(500);
/// Signals that are read at once.
const PAGE: u32 = 100;

#[derive(Args)]
pub(crate) struct ForwardCommand {
    #[command(flatten)]
    workspace: InWorkspace,
    /// The program's address
    #[arg(long, value_name = "URL")]
    to: Url,
    /// Only signals of this webhook
    #[arg(long)]
    webhook: Option<Named<WebhookId>>,
    /// Also those stored since a time, such as 2026-01-31T08:00:00Z, yesterday or 1h
    #[arg(long, value_name = "TIME", value_parser = moment)]
    from: Option<Timestamp>,
    /// Stop after so many
    #[arg(long, value_name = "COUNT")]
    limit: Option<u32>,
    /// Sign each again, by the scheme given below and a secret for tests
    #[arg(long)]
    sign: bool,
    #[command(flatten)]
    signing: Signing,
}

/// Posts signals, one after the other in the order in which they were stored, until standard output
/// is closed. What the program answers is shown and changes nothing.
pub(crate) async fn run(
    operator: &Operator,
    command: ForwardCommand,
    json: bool,
) -> Result<Output, Failure> {
    let workspace = command.workspace.id(operator).await?;
    let webhook = operator
        .id_in(Some(workspace), command.webhook.as_ref())
        .await?;
    let is_signed = command.sign || command.signing.secret_file.is_some();
    let signer = is_signed.then(|| signer(&command.signing)).transpose()?;
    let mut cursor = operator.signal_cursor(workspace, command.from).await?;
    let mut left = command.limit.unwrap_or(u32::MAX);
    while left > 0 {
        let found = operator.signals_after(workspace, cursor, PAGE).await?;
        if found.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
        for (next, signal) in found {
            cursor = next;
            let is_wanted = webhook.is_none_or(|webhook| signal.row.webhook_id == webhook);
            if !is_wanted || left == 0 {
                continue;
            }
            left -= 1;
            let began = Instant::now();
            let answered = post(&command.to, signer.as_ref(), &signal).await;
            let milliseconds = began.elapsed().as_millis();
            let (status, error) = match answered {
                Ok(status) => (Some(status), None),
                Err(error) => (None, Some(error)),
            };
            let id = signal.row.signal_id;
            let is_read = if json {
                output::line(&json!({
                    "signal_id": id, "kind": signal.row.kind, "status": status, "error": error,
                    "milliseconds": milliseconds,
                }))
            } else {
                let status = status.map(|status| status.to_string());
                let told = status.or(error).unwrap_or_default();
                let webhook = word(&signal.row.webhook_name);
                let kind = signal.row.kind;
                output::text_line(&format!(
                    "{id}  {webhook}  {:<16}  {} in {milliseconds} ms",
                    kind.as_str(),
                    word(&told)
                ))
            };
            if !is_read {
                return Ok(Output::Nothing);
            }
        }
    }
    Ok(Output::Nothing)
}

/// Posts one signal as its tool has sent it; gives the status of the answer.
async fn post(to: &Url, signer: Option<&Signer>, signal: &SignalDetail) -> Result<u16, String> {
    let body = signal.body.as_deref().ok_or("its body was forgotten")?;
    let id = signal.row.signal_id;
    let headers = &signal.headers;
    let answer = forward(to.clone(), signer, id, body, headers).await;
    answer.map_err(|error| error.to_string())
}
