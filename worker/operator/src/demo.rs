//! The demo workspace: made once, and repaired if something of it is gone.

use letterbox_common::{
    ids::{FormLinkId, UserId, WebhookId, WorkflowId, WorkspaceId},
    sealing::KeyRing,
    states::{MemberRole, WorkflowState},
    webhook::{WebhookAddress, generate_secret},
};
use serde::{Deserialize, Serialize};
use url::Url;
use uuid::Uuid;

use crate::{
    AccountRow, AccountSecret, AccountSettings, Closing, KeyRings, Operator, OperatorError, Reason,
    Result, WebhookSettings,
};

/// The account that the demo's actions call.
const ACCOUNT: &str = "demo receiver";

/// The parts of a demo, with the secrets that are shown once: the caller remembers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demo {
    /// The demo workspace.
    pub workspace_id: WorkspaceId,
    /// The member who owns the workflow and its connected account.
    pub owner_id: UserId,
    /// The workflow that the form starts.
    pub workflow_id: WorkflowId,
    /// `None`, like the token, if the workflow was not deployed when the demo was made.
    pub form_link_id: Option<FormLinkId>,
    /// The token of the link, which is shown only when the link is made.
    pub form_token: Option<String>,
    /// The webhook that takes the demo's events.
    pub webhook_id: WebhookId,
    /// The text that its events are signed with.
    pub webhook_secret: String,
}

impl Demo {
    /// The address of the demo's webhook.
    pub fn webhook_address(&self) -> WebhookAddress {
        WebhookAddress {
            workspace: self.workspace_id,
            webhook: self.webhook_id,
        }
    }
}

/// What was asked for; `None` if there is no such thing any more.
fn still<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(OperatorError::Refused(Reason::NotFound(_))) => Ok(None),
        found => found.map(Some),
    }
}

impl Operator {
    /// The demo as it was `before`, with everything replaced that no longer exists. `definition` is
    /// deployed by its workflow, `receiver` is called by its actions.
    pub async fn ensure_demo(
        &self,
        keys: &KeyRings,
        before: Option<Demo>,
        definition: &str,
        receiver: &Url,
    ) -> Result<Demo> {
        let before = match before {
            Some(before) if self.is_member(before.workspace_id, before.owner_id).await? => {
                Some(before)
            }
            _ => None,
        };
        let (workspace, owner) = match &before {
            Some(before) => (before.workspace_id, before.owner_id),
            None => self.create_demo_workspace().await?,
        };
        let (webhook_id, webhook_secret) = self
            .ensure_demo_webhook(&keys.webhooks, workspace, before.as_ref())
            .await?;
        self.ensure_demo_account(&keys.accounts, workspace, owner, receiver)
            .await?;
        let workflow_id = self
            .ensure_demo_workflow(workspace, owner, before.as_ref(), definition)
            .await?;
        let (form_link_id, form_token) =
            self.ensure_demo_link(workflow_id, before.as_ref()).await?;
        Ok(Demo {
            workspace_id: workspace,
            owner_id: owner,
            workflow_id,
            form_link_id,
            form_token,
            webhook_id,
            webhook_secret,
        })
    }

    async fn is_member(&self, workspace: WorkspaceId, user: UserId) -> Result<bool> {
        let members = still(self.members(workspace).await)?.unwrap_or_default();
        Ok(members.iter().any(|member| member.user_id == user))
    }

    async fn create_demo_workspace(&self) -> Result<(WorkspaceId, UserId)> {
        let workspace = self.create_workspace("Demo", None).await?.workspace_id;
        let email = format!("demo-{}@letterbox.example", Uuid::new_v4().simple());
        let owner = self.create_user(&email, "Demo Owner").await?.user_id;
        self.set_member(workspace, owner, MemberRole::Owner, false)
            .await?;
        Ok((workspace, owner))
    }

    async fn ensure_demo_webhook(
        &self,
        keys: &KeyRing,
        workspace: WorkspaceId,
        before: Option<&Demo>,
    ) -> Result<(WebhookId, String)> {
        if let Some(before) = before
            && let Some(webhook) = still(self.webhook(before.webhook_id).await)?
            && webhook.deleted_at.is_none()
        {
            return Ok((before.webhook_id, before.webhook_secret.clone()));
        }
        let settings = WebhookSettings::of("Demo tool");
        let creating = self.create_webhook(keys, workspace, &settings, None);
        let created = creating.await?;
        let secret = created.secret_text().unwrap_or_default();
        Ok((created.address.webhook, secret))
    }

    /// The receiver may have another port than the last time.
    async fn ensure_demo_account(
        &self,
        keys: &KeyRing,
        workspace: WorkspaceId,
        user: UserId,
        receiver: &Url,
    ) -> Result<()> {
        let accounts = self.accounts(workspace).await?;
        let is_it = |one: &&AccountRow| one.disconnected_at.is_none() && one.name == ACCOUNT;
        if let Some(account) = accounts.iter().find(is_it) {
            if account.base_url == receiver.as_str() {
                return Ok(());
            }
            self.disconnect_account(account.account_id).await?;
        }
        let token = generate_secret()?;
        let account = AccountSettings::of(ACCOUNT, receiver.clone());
        let secret = AccountSecret::Bearer(token);
        let connecting = self.connect_account(keys, workspace, user, &account, &secret);
        connecting.await.map(drop)
    }

    async fn ensure_demo_workflow(
        &self,
        workspace: WorkspaceId,
        owner: UserId,
        before: Option<&Demo>,
        definition: &str,
    ) -> Result<WorkflowId> {
        if let Some(before) = before
            && let Some(workflow) = still(self.workflow(before.workflow_id).await)?
            && workflow.row.state != WorkflowState::Deleted
        {
            return Ok(before.workflow_id);
        }
        let creating = self.create_workflow(workspace, owner, "Demo requests", definition);
        let workflow = creating.await?.workflow_id;
        self.deploy(workflow, None).await?;
        Ok(workflow)
    }

    /// A link that has died is replaced, unless the owner has taken the form away.
    async fn ensure_demo_link(
        &self,
        workflow: WorkflowId,
        before: Option<&Demo>,
    ) -> Result<(Option<FormLinkId>, Option<String>)> {
        let now = self.workflow(workflow).await?;
        let (link, token) = match before {
            Some(before) => (before.form_link_id, before.form_token.clone()),
            None => (None, None),
        };
        let is_live = link.is_some() && link == now.form_link_id;
        if is_live || now.row.state != WorkflowState::Deployed {
            return Ok((link, token));
        }
        let created = self.create_form_link(workflow, Closing::default()).await?;
        Ok((Some(created.link), Some(created.token.expose().to_owned())))
    }
}
