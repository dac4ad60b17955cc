//! `letterbox audit …`

use clap::Subcommand;
use letterbox_common::ids::WorkspaceId;
use letterbox_operator::{AuditEntry, AuditFilter, Named};

use crate::{
    Output, Result, follow,
    settings::CliSettings,
    story::{long, word},
    times::to_second,
};

/// Characters of what is shown of a change.
const MAX_CHANGES: usize = 50;

#[derive(Subcommand)]
pub(crate) enum AuditCommand {
    /// List the newest orders, with what they changed
    List {
        /// Only those about one workspace
        #[arg(long)]
        workspace: Option<Named<WorkspaceId>>,
        #[command(flatten)]
        filter: AuditFilter,
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u32,
        /// Go on until interrupted: print new orders as they come
        #[arg(long, conflicts_with = "before")]
        follow: bool,
    },
}

pub(crate) async fn run(settings: &CliSettings, verb: AuditCommand) -> Result<Output> {
    let operator = &settings.operator().await?;
    let AuditCommand::List {
        workspace,
        filter,
        limit,
        follow,
    } = verb;
    let filter = AuditFilter {
        workspace: operator.id_in(None, workspace.as_ref()).await?,
        ..filter
    };
    if follow {
        let read = async |limit| operator.audit(&filter, limit).await;
        let known = |one: &AuditEntry| (one.entry.entry_id, ());
        return follow::follow(limit, settings.json, read, known, line).await;
    }
    let entries = operator.audit(&filter, limit).await?;
    let lines = match entries.is_empty() {
        true => "(none)".to_owned(),
        false => entries.iter().map(line).collect::<Vec<_>>().join("\n"),
    };
    Ok(Output::text(lines, &entries))
}

/// An entry on one line; `--json` shows all of it.
fn line(one: &AuditEntry) -> String {
    let entry = &one.entry;
    let by = entry.ordered_by.map(|by| by.to_string());
    let by = by.as_deref().and_then(|by| by.get(..8));
    let by = by.unwrap_or(&one.login);
    let members = entry.after.as_object().into_iter().flatten();
    let changed = members.map(|(name, value)| match value.as_str() {
        Some(text) => format!("{name}: {text}"),
        None => format!("{name}: {value}"),
    });
    let changed = changed.collect::<Vec<_>>().join(", ");
    let at = to_second(entry.ordered_at);
    let command = word(&entry.command);
    format!(
        "{:>6}  {at}  {:<8}  {command:<18}  {}",
        entry.entry_id,
        word(by),
        long(&changed, MAX_CHANGES)
    )
}
