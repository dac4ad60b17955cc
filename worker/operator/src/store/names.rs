//! What a name, an e-mail address or the beginning of an id stands for.

use std::fmt;

use letterbox_common::ids::WorkspaceId;
use letterbox_database::{Database, DatabaseError, Statement, statements};
use tokio_postgres::types::FromSqlOwned;
use uuid::Uuid;

/// More than this many are not looked at: it is not clear which one is meant.
const MOST: usize = 5;

/// $1 is what was written, $2 and $3 the first and the last id that begin so, $4 the workspace that
/// is looked in.
macro_rules! named {
    ($shown:literal, $from:literal, $name:literal, $id:literal) => {
        concat!(
            "SELECT ",
            $id,
            " AS id, ",
            $shown,
            " AS shown FROM ",
            $from,
            " WHERE (",
            $name,
            " OR ",
            $id,
            " BETWEEN $2 AND $3) AND ($4::uuid IS NULL OR w.workspace_id = $4)
ORDER BY id LIMIT 6"
        )
    };
}

statements! {
    /// Workspaces, by name.
    WORKSPACES_NAMED = workspaces_named
        named!("w.name", "workspaces w", "w.name = $1", "w.workspace_id");

    /// Users, by e-mail address.
    USERS_NAMED = users_named
        named!("u.email", "users u LEFT JOIN workspaces w ON w.workspace_id = $4",
            "lower(u.email) = lower($1)", "u.user_id");

    /// Workflows, by the name of one that is not deleted.
    WORKFLOWS_NAMED = workflows_named
        named!("f.name", "workspaces w JOIN workflows f USING (workspace_id)",
            "(f.name = $1 AND f.state <> 'deleted')", "f.workflow_id");

    /// Webhooks, by the name of one that is not deleted.
    WEBHOOKS_NAMED = webhooks_named
        named!("h.name", "workspaces w JOIN webhooks h USING (workspace_id)",
            "(h.name = $1 AND h.deleted_at IS NULL)", "h.webhook_id");

    /// Accounts, by the name of one that is connected.
    ACCOUNTS_NAMED = accounts_named
        named!("a.name", "workspaces w JOIN connected_accounts a USING (workspace_id)",
            "(a.name = $1 AND a.disconnected_at IS NULL)", "a.account_id");

    /// Runs; they have no names.
    RUNS_NAMED = runs_named
        named!("r.state", "workspaces w JOIN runs r USING (workspace_id)", "$1 = ''", "r.run_id");

    /// Approvals; they have no names.
    APPROVALS_NAMED = approvals_named
        named!("p.action_id", "workspaces w JOIN approvals p USING (workspace_id)", "$1 = ''",
            "p.approval_id");

    /// Signals; they have no names.
    SIGNALS_NAMED = signals_named
        named!("s.kind", "workspaces w JOIN signals s USING (workspace_id)", "$1 = ''",
            "s.signal_id");
}

/// A kind of thing that can be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noun {
    /// By its name
    Workspace,
    /// By the e-mail address
    User,
    /// By its name, unless it is deleted
    Workflow,
    /// By its name, unless it is deleted
    Webhook,
    /// By its name, while it is connected
    Account,
    /// By its id only
    Run,
    /// By its id only
    Approval,
    /// By its id only
    Signal,
}

impl fmt::Display for Noun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Workspace => "workspace",
            Self::User => "user",
            Self::Workflow => "workflow",
            Self::Webhook => "webhook",
            Self::Account => "account",
            Self::Run => "run",
            Self::Approval => "approval",
            Self::Signal => "signal",
        })
    }
}

impl Noun {
    fn statement(self) -> &'static Statement {
        match self {
            Self::Workspace => &WORKSPACES_NAMED,
            Self::User => &USERS_NAMED,
            Self::Workflow => &WORKFLOWS_NAMED,
            Self::Webhook => &WEBHOOKS_NAMED,
            Self::Account => &ACCOUNTS_NAMED,
            Self::Run => &RUNS_NAMED,
            Self::Approval => &APPROVALS_NAMED,
            Self::Signal => &SIGNALS_NAMED,
        }
    }
}

/// Something that may be meant.
pub(crate) struct NamedThing<I> {
    pub(crate) id: I,
    /// For people, to tell it from others.
    pub(crate) shown: String,
}

/// What `text` may stand for in a workspace, or in all: what is called so, and what has an id
/// between these. A few of them, where there are many.
pub(crate) async fn named<I: FromSqlOwned>(
    database: &Database,
    noun: Noun,
    text: &str,
    ids: Option<(Uuid, Uuid)>,
    workspace: Option<WorkspaceId>,
) -> Result<Vec<NamedThing<I>>, DatabaseError> {
    let (first, last) = ids.unzip();
    let rows = database
        .query(noun.statement(), &[&text, &first, &last, &workspace])
        .await?;
    let things = rows.iter().take(MOST).map(|row| {
        Ok(NamedThing {
            id: row.try_get("id")?,
            shown: row.try_get("shown")?,
        })
    });
    things.collect()
}
