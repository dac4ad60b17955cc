//! `letterbox audit …`

use clap::Subcommand;
use jiff::Timestamp;
use letterbox_common::ids::WorkspaceId;
use letterbox_operator::{AuditFilter, Named, Operator};

use crate::{Failure, Output};

const COLUMNS: [&str; 8] = [
    "entry_id",
    "ordered_at",
    "ordered_by",
    "command",
    "subject",
    "subject_id",
    "before",
    "after",
];

#[derive(Subcommand)]
pub(crate) enum AuditCommand {
    /// List the newest orders, with what they changed
    List {
        /// Only those about one workspace
        #[arg(long)]
        workspace: Option<Named<WorkspaceId>>,
        /// Only those about the thing with this id
        #[arg(long, value_name = "ID")]
        subject: Option<String>,
        /// Only those since a time, such as 2026-01-31T08:00:00Z
        #[arg(long, value_name = "TIME")]
        since: Option<Timestamp>,
        /// Only those before this entry
        #[arg(long, value_name = "ENTRY_ID")]
        before: Option<i64>,
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u32,
    },
}

pub(crate) async fn run(operator: &Operator, verb: AuditCommand) -> Result<Output, Failure> {
    let AuditCommand::List {
        workspace,
        subject,
        since,
        before,
        limit,
    } = verb;
    let filter = AuditFilter {
        workspace: operator.id_of(workspace.as_ref()).await?,
        subject,
        since,
        before,
    };
    let entries = operator.audit(&filter, limit).await?;
    Ok(Output::many(&entries, &COLUMNS))
}
