//! `letterbox apply`: workspaces as files say.

use std::path::{Path, PathBuf};

use clap::Args;
use letterbox_broker::BrokerTarget;
use letterbox_common::{
    ids::WorkspaceId,
    sealing::{SealedColumn, Secret},
};
use letterbox_operator::{Applied, Document, Named, Operator, SecretFrom, Set, Step, Verb, escape};
use serde_json::{Value, json};

use crate::{
    Failure, Output,
    broker_login::Logins,
    confirm::ask,
    file,
    settings::{CliSettings, sealing},
};

#[derive(Args)]
pub(crate) struct ApplyCommand {
    /// Files of documents, as JSON or, where the name ends with .toml, as TOML; - reads JSON from
    /// standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The workspace of all documents [default: the one that a document names, made if it is new]
    #[arg(long, value_name = "WORKSPACE")]
    workspace: Option<Named<WorkspaceId>>,
    /// Only show what would be done
    #[arg(long)]
    plan: bool,
    /// Delete what the files do not name, of those kinds of which they name something
    #[arg(long)]
    prune: bool,
    /// Do not ask for confirmation
    #[arg(long, conflicts_with = "plan")]
    yes: bool,
}

pub(crate) async fn run(settings: &CliSettings, command: ApplyCommand) -> Result<Output, Failure> {
    let operator = settings.operator().await?;
    let workspace = operator.id_of(command.workspace.as_ref()).await?;
    let sets = read(&command.files, workspace)?;
    let keys = sealing(&operator, SealedColumn::WebhookSecret).await?;
    let mut plans = Vec::new();
    for set in &sets {
        let planning = operator.plan(&*keys, &secret, set, command.prune);
        plans.push(planning.await?);
    }
    let steps: Vec<&Step> = plans.iter().flat_map(|plan| &plan.steps).collect();
    if command.plan || steps.is_empty() {
        return Ok(told(&steps, false, &[]));
    }
    if !command.yes {
        ask(text(&steps))?;
    }
    // Before anything is done: a missing setting is no reason to leave half of it.
    let broker = match plans.iter().any(Applied::needs_broker) {
        true => Some(BrokerTarget::from_environment()?),
        false => None,
    };
    let mut webhooks = Vec::new();
    for (set, plan) in sets.iter().zip(&plans) {
        let applying = operator.apply(&*keys, &secret, set, command.prune, &plan.steps);
        let applied = applying.await?;
        webhooks.extend(applied.webhooks.iter().map(|made| {
            json!({
                "name": made.name,
                "webhook_id": made.address.webhook,
                "workspace_id": made.address.workspace,
                "url": settings.addresses.webhook_url(made.address),
                "secret": made.secret.as_ref().map(|secret| {
                    String::from_utf8_lossy(secret.expose()).into_owned()
                }),
            })
        }));
        if let Some(broker) = &broker {
            at_broker(&operator, broker, &applied).await?;
        }
    }
    Ok(told(&steps, true, &webhooks))
}

/// What databases know nothing of: queues, and logins that nobody needs any more.
async fn at_broker(
    operator: &Operator,
    broker: &BrokerTarget,
    applied: &Applied,
) -> Result<(), Failure> {
    for login in applied.useless_logins() {
        Logins::from_environment()?.delete(login).await?;
    }
    operator.apply_at_broker(broker, applied).await?;
    Ok(())
}

/// The documents of each workspace.
fn read(files: &[PathBuf], workspace: Option<WorkspaceId>) -> Result<Vec<Set>, Failure> {
    let mut sets = Vec::new();
    let mut set = Set {
        workspace,
        documents: Vec::new(),
    };
    for file in files {
        let misread = |why| Failure::Documents(file.clone(), why);
        let value = value_of(file, &file::read_text(file)?).map_err(misread)?;
        for document in Document::read(value).map_err(misread)? {
            let begins = matches!(document, Document::Workspace(_)) && workspace.is_none();
            if begins && !set.documents.is_empty() {
                sets.push(std::mem::take(&mut set));
            }
            set.documents.push(document);
        }
    }
    sets.push(set);
    Ok(sets)
}

fn value_of(file: &Path, text: &str) -> Result<Value, String> {
    if file
        .extension()
        .is_some_and(|extension| extension == "toml")
    {
        let mut value: Value = toml::from_str(text).map_err(|error| error.to_string())?;
        // TOML has no list at its top.
        return Ok(match value.get_mut("documents") {
            Some(documents) => documents.take(),
            None => value,
        });
    }
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// The secret of a new webhook.
fn secret(from: &SecretFrom) -> Result<Secret, String> {
    let bytes = match from {
        SecretFrom::File(name) => {
            let read = file::read(Path::new(name)).map_err(|error| error.to_string())?;
            read.trim_ascii().to_vec()
        }
        SecretFrom::Environment(name) => {
            let text = variable(name).ok_or_else(|| format!("the variable {name} is not set"))?;
            text.into_bytes()
        }
        SecretFrom::Later => Vec::new(),
    };
    Ok(Secret::new(bytes))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a name that a document gives, no setting of this program"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn told(steps: &[&Step], is_applied: bool, webhooks: &[Value]) -> Output {
    let mut shown = text(steps);
    for webhook in webhooks {
        let of = |name: &str| webhook[name].as_str().unwrap_or("(not shown)").to_owned();
        let (name, url, secret) = (escape::line(&of("name")), of("url"), of("secret"));
        shown += &format!("\nwebhook {name}: {url}\n  secret, shown this once: {secret}");
    }
    let value = json!({ "steps": steps, "is_applied": is_applied, "webhooks": webhooks });
    Output::text(shown, &value)
}

/// The plan, for people: one line a step, and below it what it ends.
fn text(steps: &[&Step]) -> String {
    if steps.is_empty() {
        return "Everything is so already.".to_owned();
    }
    let mut lines = Vec::new();
    let mut workspace = "";
    for step in steps {
        if step.workspace != workspace {
            workspace = &step.workspace;
            lines.push(escape::line(workspace).to_string());
        }
        let verb = match step.verb {
            Verb::Create => "create",
            Verb::Change => "change",
            Verb::Delete => "DELETE",
        };
        let name = escape::line(&step.name);
        lines.push(
            format!("  {verb} {} {name}", step.kind)
                .trim_end()
                .to_owned(),
        );
        let changes = step
            .changes
            .iter()
            .map(|change| format!("      {}", escape::line(change)));
        lines.extend(changes);
        let ends = step.ends.iter();
        lines.extend(ends.map(|ends| format!("      ENDS {ends}, for everybody who has it")));
        let warnings = step.warnings.iter();
        lines.extend(warnings.map(|warning| format!("      note: {}", escape::line(warning))));
    }
    lines.join("\n")
}
