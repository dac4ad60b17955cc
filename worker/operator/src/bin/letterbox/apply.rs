//! `letterbox apply`: workspaces as files say.

use std::{
    collections::BTreeSet,
    path::{Component, Path, PathBuf},
};

use clap::Args;
use letterbox_broker::{AMQP_URL, BrokerTarget};
use letterbox_common::{
    ids::WorkspaceId,
    sealing::{SealedColumn, Secret, key_ring},
};
use letterbox_operator::{Document, Named, Operator, Plan, SecretFrom, Set, Step, Verb, escape};
use serde_json::{Value, json};

use crate::{
    Failure, Output, Result, confirm::ask, dashboard::Dashboard, file, settings::CliSettings,
    subscription, webhook,
};

/// Begins the names of the variables in which a document's secrets are.
const PREFIX: &str = "LETTERBOX_SECRET_";

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

pub(crate) async fn run(settings: &CliSettings, command: ApplyCommand) -> Result<Output> {
    let operator = settings.operator().await?;
    let workspace = operator.id_in(None, command.workspace.as_ref()).await?;
    let sets = read(&command.files, workspace)?;
    let keys = key_ring(SealedColumn::WebhookSecret)?;
    let mut plans: Vec<Plan<'_>> = Vec::new();
    for set in &sets {
        plans.push(operator.plan(&secret, set, command.prune).await?);
    }
    let steps: Vec<&Step> = plans.iter().flat_map(|plan| &plan.steps).collect();
    if command.plan {
        return Ok(told(&steps, false, &[], &[]));
    }
    // Where all is so already, only queues may be missing: nothing can be lost.
    if !command.yes && !steps.is_empty() {
        ask(text(&steps))?;
    }
    // Before anything is done: what can be found out now is no reason to leave half of it.
    let broker = broker_of(&operator, &sets, &plans).await?;
    let mut webhooks = Vec::new();
    let mut subscriptions = Vec::new();
    let mut failure = None;
    for (set, plan) in sets.iter().zip(&plans) {
        for login in plan.useless_logins() {
            // A login that is left behind could read what it should not.
            Dashboard::from_environment()?.delete_login(login).await?;
        }
        let applying = operator.apply(&keys, &secret, set, command.prune, &plan.steps);
        let applied = match applying.await {
            Ok(applied) => applied,
            Err(error) => {
                failure = Some(error);
                break;
            }
        };
        let made = applied.webhooks.iter();
        webhooks.extend(made.map(|new| webhook::shown(settings, new)));
        let made = applied.subscriptions.iter();
        subscriptions.extend(made.map(|(row, secret)| subscription::shown(row, Some(secret))));
        if let Some(broker) = &broker
            && let Err(error) = applied.settle_at_broker(broker).await
        {
            failure = Some(error);
        }
        if let Err(error) = operator.apply_to_search(&applied).await {
            failure = Some(error);
        }
    }
    let told = told(&steps, failure.is_none(), &webhooks, &subscriptions);
    match failure {
        None => Ok(told),
        Some(error) => {
            // Secrets are shown this once, whatever has failed afterwards.
            if !webhooks.is_empty() || !subscriptions.is_empty() {
                told.print(settings.json);
            }
            Err(error.into())
        }
    }
}

/// The broker, where something is to be done there; asked what may keep that from being done.
async fn broker_of(
    operator: &Operator,
    sets: &[Set],
    plans: &[Plan<'_>],
) -> Result<Option<BrokerTarget>> {
    let is_needed = plans.iter().any(Plan::needs_broker);
    let is_of_use = sets.iter().any(Set::names_queues) && AMQP_URL.read()?.is_some();
    if !is_needed && !is_of_use {
        return Ok(None);
    }
    let broker = BrokerTarget::from_environment()?;
    for plan in plans {
        for queue in plan.new_queues() {
            operator.need_new_queue(&broker, queue).await?;
        }
        if plan.useless_logins().next().is_some() {
            Dashboard::from_environment()?;
        }
    }
    Ok(Some(broker))
}

/// The documents of each workspace.
fn read(files: &[PathBuf], workspace: Option<WorkspaceId>) -> Result<Vec<Set>> {
    let mut sets = Vec::new();
    let mut names = BTreeSet::new();
    let mut set = Set {
        workspace,
        documents: Vec::new(),
    };
    for file in files {
        let misread = |why| Failure::Documents(file.clone(), why);
        let text = file::read_text(file)?;
        for mut document in documents_of(file, &text).map_err(misread)? {
            find_secret(file, &mut document).map_err(misread)?;
            let begins = matches!(document, Document::Workspace(_)) && workspace.is_none();
            if begins && !names.insert(document.name().to_owned()) {
                let name = document.name();
                let why = format!("another document is about the workspace {name:?}");
                return Err(misread(why));
            }
            if begins && !set.documents.is_empty() {
                sets.push(std::mem::take(&mut set));
            }
            set.documents.push(document);
        }
    }
    sets.push(set);
    Ok(sets)
}

fn documents_of(file: &Path, text: &str) -> Result<Vec<Document>, String> {
    if file.extension().is_none_or(|extension| extension != "toml") {
        return Document::parse(text);
    }
    let mut value: Value = toml::from_str(text).map_err(|error| error.to_string())?;
    // TOML has no list at its top.
    let listed = value.get_mut("documents").map(Value::take);
    if listed.is_none() && value["document"].is_array() {
        return Err("write [[documents]], not [[document]]".to_owned());
    }
    match (listed, value.as_object().map_or(0, |members| members.len())) {
        (Some(documents), 1) => Document::read(documents),
        (Some(_), _) => Err("there is something beside [[documents]]".to_owned()),
        (None, _) => Document::read(value),
    }
}

/// Finds the secret that a document names: in a file beside it, or in a variable set for this. A
/// document's author must not be able to read anything else.
fn find_secret(file: &Path, document: &mut Document) -> Result<(), String> {
    let Document::Webhook(webhook) = document else {
        return Ok(());
    };
    match &mut webhook.secret {
        Some(SecretFrom::File(name)) => {
            let path = beside(file, name);
            let told = format!("the secret {name:?} is in no file beside the document");
            *name = path.ok_or(format!(
                "{told}: give a name without .. and without a / before it"
            ))?;
            Ok(())
        }
        Some(SecretFrom::Environment(name)) if !name.starts_with(PREFIX) => Err(format!(
            "the variable {name:?} is not for secrets of documents: give it a name that begins \
             with {PREFIX}"
        )),
        _ => Ok(()),
    }
}

/// The path of a file that is beside another, or below; `None` if the name leads elsewhere.
fn beside(file: &Path, name: &str) -> Option<String> {
    let parts = || Path::new(name).components();
    let folder = file.parent().unwrap_or(file).join(".");
    let path = folder.join(name);
    // A link may lead elsewhere. What is not there is found out when it is read.
    let leads_out = match (folder.canonicalize(), path.canonicalize()) {
        (Ok(folder), Ok(path)) => !path.starts_with(folder),
        _ => false,
    };
    let is_plain = parts().all(|part| matches!(part, Component::Normal(_)));
    (is_plain && !leads_out).then(|| path.to_string_lossy().into_owned())
}

/// The secret of a new webhook.
fn secret(from: &SecretFrom) -> Result<Secret, String> {
    match from {
        SecretFrom::File(name) => {
            file::read_secret(Path::new(name)).map_err(|error| error.to_string())
        }
        SecretFrom::Environment(name) => {
            let text = variable(name).ok_or_else(|| format!("the variable {name} is not set"))?;
            Ok(Secret::new(text.into_bytes()))
        }
        SecretFrom::Later => Ok(Secret::new(Vec::new())),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a name that a document gives, no setting of this program"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn told(steps: &[&Step], is_applied: bool, webhooks: &[Value], subscriptions: &[Value]) -> Output {
    let mut shown = text(steps);
    for webhook in webhooks {
        let of = |name: &str| webhook[name].as_str().unwrap_or("(not shown)").to_owned();
        let name = escape::line(&of("name"));
        let url = of("url");
        let secret = of("secret");
        shown += &format!("\nwebhook {name}: {url}\n  secret, shown this once: {secret}");
    }
    for one in subscriptions {
        let url = one["url"].as_str().unwrap_or_default();
        let secret = one["secret"].as_str().unwrap_or_default();
        shown += &format!("\nsubscription: {url}\n  secret, shown this once: {secret}");
    }
    let value = json!({
        "steps": steps, "is_applied": is_applied, "webhooks": webhooks,
        "subscriptions": subscriptions,
    });
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
        let line = format!("  {verb} {} {name}", step.kind);
        lines.push(line.trim_end().to_owned());
        let changes = step.changes.iter();
        lines.extend(changes.map(|change| format!("      {}", escape::line(change))));
        let ends = step.ends.iter();
        lines.extend(ends.map(|ends| format!("      ENDS {ends}, for everybody who has it")));
        let warnings = step.warnings.iter();
        lines.extend(warnings.map(|warning| format!("      note: {}", escape::line(warning))));
    }
    lines.join("\n")
}
