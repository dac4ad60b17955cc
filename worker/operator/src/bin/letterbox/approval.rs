//! `letterbox approval …`

use std::fmt::Write as _;

use clap::Subcommand;
use letterbox_common::ids::{ApprovalId, WorkspaceId};
use letterbox_operator::{ApprovalDetail, ApprovalRow, Named, WaitingApproval};

use crate::{
    Failure, Output, output,
    settings::CliSettings,
    story,
    times::{since, to_second},
};

#[derive(Subcommand)]
pub(crate) enum ApprovalCommand {
    /// List what waits for an answer, by workflow, the oldest first
    List {
        /// Only that of one workspace
        #[arg(long, value_name = "WORKSPACE_ID")]
        workspace: Option<Named<WorkspaceId>>,
        /// Most to list of each workflow
        #[arg(long, value_name = "N", default_value_t = 10)]
        limit: u32,
    },
    /// Show a question with everything that its answer depends on: what would be sent, what was
    /// submitted, what models were asked, and who may answer
    Show { approval_id: Named<ApprovalId> },
    /// Let a request be sent, as it is shown
    ///
    /// --by names who decides: an owner or editor of the workspace
    Approve { approval_id: Named<ApprovalId> },
    /// Let it not be sent; the run is over, unless an agent has called it
    ///
    /// --by names who decides: an owner or editor of the workspace
    Deny { approval_id: Named<ApprovalId> },
}

pub(crate) async fn run(settings: &CliSettings, verb: ApprovalCommand) -> Result<Output, Failure> {
    Ok(match verb {
        ApprovalCommand::List { workspace, limit } => {
            let operator = settings.operator().await?;
            let workspace = operator.id_of(workspace.as_ref()).await?;
            let waiting = operator.waiting_approvals(workspace, limit).await?;
            Output::Text {
                text: list(&waiting),
                value: output::value(&waiting),
            }
        }
        ApprovalCommand::Show { approval_id } => {
            let operator = settings.operator().await?;
            let approval = operator.approval(operator.id(&approval_id).await?).await?;
            Output::Text {
                text: show(&approval),
                value: output::value(&approval),
            }
        }
        ApprovalCommand::Approve { approval_id } => {
            let (operator, by) = settings.operator_by().await?;
            let approval = operator.id(&approval_id).await?;
            Output::one(&operator.approve(approval, by).await?)
        }
        ApprovalCommand::Deny { approval_id } => {
            let (operator, by) = settings.operator_by().await?;
            let approval = operator.id(&approval_id).await?;
            Output::one(&operator.deny(approval, by).await?)
        }
    })
}

/// A group for each workflow.
fn list(waiting: &[WaitingApproval]) -> String {
    if waiting.is_empty() {
        return "nothing waits for an answer".to_owned();
    }
    let groups = waiting.chunk_by(|one, other| one.workflow_id == other.workflow_id);
    let groups = groups.filter_map(|group| {
        let first = group.first()?;
        let mut text = format!(
            "{} of {}: {}{} waiting, the oldest for {}",
            story::word(&first.workflow_name),
            story::word(&first.workspace_name),
            if first.is_counted { "" } else { "more than " },
            first.waiting,
            since(first.row.created_at)
        );
        for one in group {
            let row = &one.row;
            let request = story::request(row.request.as_ref()).unwrap_or_default();
            let _ = write!(
                text,
                "\n  {}  {}  {}  {}",
                row.approval_id,
                since(row.created_at),
                story::word(&row.action_id),
                story::word(&request)
            );
        }
        let more = first.waiting - group.len() as i64;
        match (more, first.is_counted) {
            (0, true) => {}
            (more, true) => text += &format!("\n  and {more} more"),
            (_, false) => text += "\n  and many more",
        }
        Some(text)
    });
    groups.collect::<Vec<_>>().join("\n\n")
}

/// Everything that an answer depends on.
fn show(approval: &ApprovalDetail) -> String {
    let ApprovalRow {
        approval_id,
        run_id,
        action_id,
        state,
        created_at,
        expires_at,
        ..
    } = &approval.row;
    let state = match approval.is_open {
        true => "waits for an answer".to_owned(),
        false => state.to_string(),
    };
    let mut lines = vec![
        format!("{} {state}", story::word(action_id)),
        String::new(),
        format!("approval   {approval_id}"),
        format!(
            "workflow   {} of {}, as {}",
            story::word(&approval.workflow_name),
            story::word(&approval.workspace_name),
            story::word(&approval.owner_name)
        ),
        format!("run        {run_id}"),
        format!(
            "asked      {}, {} ago; until {}",
            to_second(*created_at),
            since(*created_at),
            to_second(*expires_at)
        ),
    ];
    let row = &approval.row;
    let why = story::taint(&row.untrusted, &row.steered_by);
    lines.extend(why.map(|why| format!("because    {why}")));
    lines.push(String::new());
    lines.push("would be sent".to_owned());
    lines.extend(story::whole_request(row.request.as_ref()));
    lines.push(String::new());
    lines.push(format!("submitted  {}", to_second(approval.received_at)));
    lines.extend(story::submitted(approval.input.as_ref()));
    let asked = approval.steered_through.iter().map(|one| {
        let outcome = one.outcome.as_deref().unwrap_or("-");
        let (id, kind, asks) = (&one.action_id, &one.action_type, &one.asks);
        format!("  {id} ({kind}): {asks} -> {outcome}")
    });
    let asked: Vec<_> = asked.collect();
    if !asked.is_empty() {
        lines.push(String::new());
        lines.push("on the way here".to_owned());
        lines.extend(asked);
    }
    let may = approval.may_answer.iter();
    let may = may.map(|member| format!("{} <{}>", member.name, member.email));
    let may = match may.collect::<Vec<_>>() {
        nobody if nobody.is_empty() => "nobody".to_owned(),
        members => members.join(", "),
    };
    lines.push(String::new());
    lines.push(format!("may answer {may}"));
    if approval.is_open {
        lines.push(format!(
            "           letterbox approval approve|deny {approval_id} --by USER"
        ));
    }
    lines.join("\n")
}
