//! `letterbox approval …`

use std::fmt::Write as _;

use clap::Subcommand;
use letterbox_common::ids::{ApprovalId, WorkspaceId};
use letterbox_operator::{ApprovalDetail, Named, SteeringAction, WaitingApproval, words};

use crate::{
    Output, Result,
    settings::CliSettings,
    story,
    times::{since, to_second},
};

#[derive(Subcommand)]
pub(crate) enum ApprovalCommand {
    /// List requests that wait for an answer, by workflow, oldest first
    List {
        /// Only those of one workspace
        #[arg(long, value_name = "WORKSPACE_ID")]
        workspace: Option<Named<WorkspaceId>>,
        /// Most to list of each workflow
        #[arg(long, value_name = "N", default_value_t = 10)]
        limit: u32,
    },
    /// Show a request with its context: the submission, the models that were asked, and who may
    /// answer
    Show { approval_id: Named<ApprovalId> },
    /// Approve a request exactly as it is shown
    ///
    /// --by names the user who decides: an owner or editor of the workspace
    Approve { approval_id: Named<ApprovalId> },
    /// Deny a request; this ends the run, unless an agent has made the call
    ///
    /// --by names the user who decides: an owner or editor of the workspace
    Deny { approval_id: Named<ApprovalId> },
}

pub(crate) async fn run(settings: &CliSettings, verb: ApprovalCommand) -> Result<Output> {
    Ok(match verb {
        ApprovalCommand::List { workspace, limit } => {
            let operator = settings.operator().await?;
            let workspace = operator.id_in(None, workspace.as_ref()).await?;
            let waiting = operator.waiting_approvals(workspace, limit).await?;
            Output::text(list(&waiting), &waiting)
        }
        ApprovalCommand::Show { approval_id } => {
            let operator = settings.operator().await?;
            let approval = operator.approval(operator.id(&approval_id).await?).await?;
            Output::text(show(&approval), &approval)
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
        return "no request waits for an answer".to_owned();
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
            let request = words::request(row.request.as_ref()).unwrap_or_default();
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

/// A request with its context.
fn show(approval: &ApprovalDetail) -> String {
    let row = &approval.row;
    let mut lines = head(approval);
    lines.extend([String::new(), "would be sent".to_owned()]);
    lines.extend(story::whole_request(row.request.as_ref()));
    let received_at = to_second(approval.received_at);
    lines.extend([String::new(), format!("submitted  {received_at}")]);
    lines.extend(story::submitted(approval.input.as_ref()));
    if !approval.steered_through.is_empty() {
        lines.extend([String::new(), "on the way here".to_owned()]);
        lines.extend(approval.steered_through.iter().map(asked));
    }
    lines.extend([String::new(), format!("may answer {}", answerers(approval))]);
    if approval.is_open {
        let id = row.approval_id;
        let commands = format!("letterbox approval approve|deny {id} --by USER");
        lines.push(format!("           {commands}"));
    }
    lines.join("\n")
}

/// The question: for which run, and why it is asked.
fn head(approval: &ApprovalDetail) -> Vec<String> {
    let row = &approval.row;
    let state = if approval.is_open {
        "waits for an answer".to_owned()
    } else {
        row.state.to_string()
    };
    let mut lines = vec![
        format!("{} {state}", story::word(&row.action_id)),
        String::new(),
        format!("approval   {}", row.approval_id),
        format!(
            "workflow   {} of {}, as {}",
            story::word(&approval.workflow_name),
            story::word(&approval.workspace_name),
            story::word(&approval.owner_name)
        ),
        format!("run        {}", row.run_id),
        format!(
            "asked      {}, {} ago; until {}",
            to_second(row.created_at),
            since(row.created_at),
            to_second(row.expires_at)
        ),
    ];
    let why = words::taint(&row.untrusted, &row.steered_by);
    lines.extend(why.map(|why| format!("because    {why}")));
    lines
}

fn asked(steering: &SteeringAction) -> String {
    let outcome = steering.outcome.as_deref().unwrap_or("-");
    let id = &steering.action_id;
    let kind = &steering.action_type;
    let asks = story::indented(&steering.asks);
    let outcome = story::indented(outcome);
    format!("  {} ({kind}): {asks} -> {outcome}", story::word(id))
}

fn answerers(approval: &ApprovalDetail) -> String {
    if approval.may_answer.is_empty() {
        return "no one".to_owned();
    }
    let members = approval.may_answer.iter();
    let members = members.map(|member| format!("{} <{}>", member.name, member.email));
    story::indented(&members.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_author_wrote_forges_no_line() {
        let text = "x\n\nwould be sent\n  GET https://harmless.example";
        let steering = SteeringAction {
            action_id: text.to_owned(),
            action_type: "ai.agent".to_owned(),
            asks: text.to_owned(),
            outcome: Some(text.to_owned()),
        };
        let shown = asked(&steering);
        let mut further = shown.lines().skip(1);
        assert!(further.all(|line| line.starts_with("    ")), "{shown}");
    }
}
