//! The workspace of a command: the one that is named, else the one that was chosen for this shell
//! or this user, else the only one that there is.

use std::{fs, io, path::PathBuf};

use clap::Args;
use letterbox_common::ids::WorkspaceId;
use letterbox_operator::{Named, Operator};
use serde_json::json;

use crate::{Failure, Output, Result, file::FileError, output};

/// The option that names a workspace.
#[derive(Debug, Clone, Args)]
pub(crate) struct InWorkspace {
    /// The workspace [default: what 'letterbox use' has chosen, or the only one]
    #[arg(
        long,
        env = "LETTERBOX_WORKSPACE",
        hide_env_values = true,
        value_name = "WORKSPACE"
    )]
    workspace: Option<Named<WorkspaceId>>,
}

/// The arguments of `letterbox use`.
#[derive(Args)]
pub(crate) struct UseCommand {
    /// The workspace; without it, the chosen one is shown
    workspace: Option<Named<WorkspaceId>>,
    /// Choose none
    #[arg(long, conflicts_with = "workspace")]
    none: bool,
}

impl InWorkspace {
    /// The id of the workspace. A workspace chosen by default is printed.
    ///
    /// # Errors
    /// When none is named or chosen and there is not exactly one, or the database fails.
    pub(crate) async fn id(&self, operator: &Operator) -> Result<WorkspaceId> {
        let Some(chosen) = chosen()?.filter(|_| self.workspace.is_none()) else {
            let found = self.id_to_grant(operator).await;
            return found.map_err(|error| match error {
                Failure::NoWorkspaceToGrant => Failure::NoWorkspace,
                error => error,
            });
        };
        let workspaces = operator.workspaces().await?;
        let known = workspaces.iter().find(|one| one.workspace_id == chosen);
        // It was chosen for a user of this machine, perhaps while another database was named.
        let known = known.ok_or(Failure::ChosenElsewhere)?;
        output::workspace(&known.name);
        Ok(chosen)
    }

    /// As [`Self::id`], for an order that gives rights or a credential: what was chosen once does
    /// not count.
    pub(crate) async fn id_to_grant(&self, operator: &Operator) -> Result<WorkspaceId> {
        if let Some(named) = &self.workspace {
            return Ok(operator.id(named).await?);
        }
        match operator.workspaces().await?[..] {
            [ref only] => Ok(only.workspace_id),
            _ => Err(Failure::NoWorkspaceToGrant),
        }
    }
}

/// Chooses a workspace for the commands of this user, or shows it.
pub(crate) async fn choose(operator: &Operator, command: UseCommand) -> Result<Output> {
    let chosen = match command.workspace {
        Some(named) => {
            let id: WorkspaceId = operator.id(&named).await?;
            write(&format!("{id}\n"))?;
            Some(id)
        }
        None if command.none => {
            write("")?;
            None
        }
        None => chosen()?,
    };
    let mut workspaces = operator.workspaces().await?.into_iter();
    let known = workspaces.find(|one| Some(one.workspace_id) == chosen);
    let name = known.map(|one| one.name);
    Ok(Output::One(json!({ "workspace_id": chosen, "name": name })))
}

/// The workspace that `letterbox use` has chosen.
fn chosen() -> Result<Option<WorkspaceId>> {
    let Some(file) = file() else { return Ok(None) };
    match fs::read_to_string(&file) {
        Ok(text) if text.trim().is_empty() => Ok(None),
        Ok(text) => match text.trim().parse() {
            Ok(id) => Ok(Some(id)),
            Err(_) => {
                let cause = io::Error::other("holds no id of a workspace");
                Err(FileError::new(&file, cause).into())
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileError::new(&file, error).into()),
    }
}

fn write(text: &str) -> Result<()> {
    let file = file().ok_or(Failure::NoHome)?;
    let folder = file.parent().map_or(Ok(()), fs::create_dir_all);
    let written = folder.and_then(|()| fs::write(&file, text));
    Ok(written.map_err(|error| FileError::new(&file, error))?)
}

/// Where the choice is kept, by the XDG Base Directory Specification.
#[expect(
    clippy::disallowed_methods,
    reason = "what all programs of a user heed, not settings of this one"
)]
fn file() -> Option<PathBuf> {
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let home = || absolute(PathBuf::from(std::env::var_os("HOME")?));
    let folder = config
        .and_then(absolute)
        .or_else(|| Some(home()?.join(".config")))?;
    Some(folder.join("letterbox").join("workspace"))
}
