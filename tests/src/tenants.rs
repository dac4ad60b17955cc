//! What an operator makes for a test: workspaces and their members, with webhooks, forms, accounts.

use letterbox_common::{
    ids::{AccountId, ApprovalId, UserId, WebhookId, WorkflowId, WorkspaceId},
    sealing::{KeyRing, Secret},
    states::MemberRole,
};
use letterbox_operator::{
    AccountRow, AccountSecret, AccountSettings, Move, NewWebhook, WebhookSettings,
    WorkspaceSettings,
};
use serde_json::Value;
use uuid::Uuid;

use crate::{DEFINITION, Form, Process, Webhook, World, definition_with};

/// What every connected account of the tests shows.
pub const CREDENTIAL: &str = "canary-credential";

impl World {
    pub async fn workspace(&self, name: &str) -> WorkspaceId {
        let operator = self.operator().await;
        let created = operator.create_workspace(name, None).await;
        created.unwrap().workspace_id
    }

    /// A user, whose address is `NAME@example.com`.
    pub async fn user(&self, name: &str) -> UserId {
        let operator = self.operator().await;
        let email = format!("{name}@example.com");
        operator.create_user(&email, name).await.unwrap().user_id
    }

    /// A new user in a workspace.
    pub async fn member(&self, workspace: WorkspaceId, name: &str, role: MemberRole) -> UserId {
        let user = self.user(name).await;
        self.set_role(workspace, user, role).await;
        user
    }

    /// Gives a user a role in a workspace, by which it answers no questions.
    pub async fn set_role(&self, workspace: WorkspaceId, user: UserId, role: MemberRole) {
        let operator = self.operator().await;
        let setting = operator.set_member(workspace, user, role, false);
        setting.await.unwrap();
    }

    /// Gives a form's owner another role.
    pub async fn set_owner_role(&self, form: &Form, role: MemberRole) {
        self.set_role(form.workspace, form.owner, role).await;
    }

    /// A webhook in a workspace of its own, on `gateway`.
    pub async fn webhook(&self, gateway: &Process) -> Webhook {
        let workspace = self.workspace("Test").await;
        self.webhook_in(gateway, workspace).await
    }

    /// A webhook that no gateway has seen yet.
    pub async fn create_webhook(&self, workspace: WorkspaceId, name: &str) -> NewWebhook {
        let keys: KeyRing = self.webhook_keys.parse().unwrap();
        let (operator, settings) = (self.operator().await, WebhookSettings::of(name));
        let creating = operator.create_webhook(&keys, workspace, &settings, None);
        creating.await.unwrap()
    }

    /// A webhook in a workspace that exists.
    pub async fn webhook_in(&self, gateway: &Process, workspace: WorkspaceId) -> Webhook {
        self.named_webhook(gateway, workspace, "tool").await
    }

    /// The same, under a name of its own.
    pub async fn named_webhook(
        &self,
        gateway: &Process,
        workspace: WorkspaceId,
        name: &str,
    ) -> Webhook {
        let created = self.create_webhook(workspace, name).await;
        let secret = created.secret_text().unwrap();
        Webhook::new(&gateway.public_url(), created.address, secret)
    }

    pub async fn delete_webhook(&self, webhook: WebhookId) {
        let operator = self.operator().await;
        operator.delete_webhook(webhook).await.unwrap();
    }

    /// A deployed workflow in a workspace of its own, whose form is on `gateway`.
    pub async fn form(&self, gateway: &Process) -> Form {
        let workspace = self.workspace("Test").await;
        let email = format!("{}@example.com", Uuid::new_v4());
        let owner = self.operator().await.create_user(&email, "Owner").await;
        let owner = owner.unwrap().user_id;
        self.set_role(workspace, owner, MemberRole::Owner).await;
        self.form_in(gateway, workspace, owner).await
    }

    /// A deployed workflow in a workspace that exists, under a member of it.
    pub async fn form_in(&self, gateway: &Process, workspace: WorkspaceId, user: UserId) -> Form {
        self.form_of(gateway, workspace, user, DEFINITION).await
    }

    /// The form of a deployed workflow with this definition.
    pub async fn form_of(
        &self,
        gateway: &Process,
        workspace: WorkspaceId,
        user: UserId,
        definition: &str,
    ) -> Form {
        let problems = crate::problems_of_definition(definition);
        assert_eq!(problems, [""; 0], "what is deployed fits its schema");
        let operator = self.operator().await;
        let workflow = operator
            .create_workflow(workspace, user, "Contact", definition)
            .await
            .unwrap()
            .workflow_id;
        operator.deploy(workflow, None).await.unwrap();
        let link = operator
            .create_form_link(workflow, Default::default())
            .await
            .unwrap();
        Form::new(
            &gateway.public_url(),
            workspace,
            user,
            workflow,
            link.token.expose(),
        )
    }

    /// Another form of the owner of one, whose workflow has these actions.
    pub async fn redeployed(&self, gateway: &Process, of: &Form, actions: Value) -> Form {
        let definition = definition_with(actions);
        self.form_of(gateway, of.workspace, of.owner, &definition)
            .await
    }

    pub async fn set_allowance(&self, workspace: WorkspaceId, runs: Option<u32>) {
        let operator = self.operator().await;
        let wanted = WorkspaceSettings {
            run_allowance: Some(runs),
            ..Default::default()
        };
        operator.set_settings(workspace, &wanted).await.unwrap();
    }

    /// Deploys a workflow once more, by which its link ends.
    pub async fn redeploy(&self, workflow: WorkflowId) {
        let operator = self.operator().await;
        operator.deploy(workflow, None).await.unwrap();
    }

    pub async fn move_workflow(&self, workflow: WorkflowId, to: Move) {
        let operator = self.operator().await;
        operator.move_workflow(workflow, to).await.unwrap();
    }

    pub async fn approve(&self, question: ApprovalId, by: UserId) {
        let operator = self.operator().await;
        operator.approve(question, by).await.unwrap();
    }

    pub async fn deny(&self, question: ApprovalId, by: UserId) {
        let operator = self.operator().await;
        operator.deny(question, by).await.unwrap();
    }

    pub async fn remove_member(&self, workspace: WorkspaceId, user: UserId) {
        let operator = self.operator().await;
        operator.remove_member(workspace, user).await.unwrap();
    }

    pub async fn disconnect(&self, account: AccountId) {
        let operator = self.operator().await;
        operator.disconnect_account(account).await.unwrap();
    }

    /// Connects another account under the name of the only one in a form's workspace.
    pub async fn replace_account(&self, form: &Form, base_url: &str) {
        let operator = self.operator().await;
        let former = operator.accounts(form.workspace).await.unwrap().remove(0);
        self.disconnect(former.account_id).await;
        self.connect_for(form, &former.name, base_url).await;
    }

    /// Connects an account of a form's owner.
    pub async fn connect_for(&self, form: &Form, name: &str, base_url: &str) -> AccountRow {
        self.connect(form.workspace, form.owner, name, base_url)
            .await
    }

    /// Connects an account of a user.
    pub async fn connect(
        &self,
        workspace: WorkspaceId,
        user: UserId,
        name: &str,
        base_url: &str,
    ) -> AccountRow {
        let account = AccountSettings::of(name, base_url.parse().unwrap());
        let secret = AccountSecret::Bearer(Secret::new(CREDENTIAL.into()));
        self.connect_with(workspace, user, &account, &secret).await
    }

    /// Connects an account of a user, with these settings.
    pub async fn connect_with(
        &self,
        workspace: WorkspaceId,
        user: UserId,
        account: &AccountSettings,
        secret: &AccountSecret,
    ) -> AccountRow {
        let operator = self.operator().await;
        let keys: KeyRing = self.account_keys.parse().unwrap();
        let connecting = operator.connect_account(&keys, workspace, user, account, secret);
        connecting.await.unwrap()
    }

    /// Connects an account of a user that waits until its owner lets Letterbox in at `url`.
    pub async fn connect_by_grant(
        &self,
        workspace: WorkspaceId,
        user: UserId,
        name: &str,
        url: &str,
    ) -> AccountRow {
        let url: url::Url = url.parse().unwrap();
        let account = AccountSettings {
            token_url: Some(url.join("/token").unwrap()),
            authorize_url: Some(url.join("/authorize").unwrap()),
            client_id: Some("letterbox".to_owned()),
            scope: Some("read write".to_owned()),
            ..AccountSettings::of(name, url.clone())
        };
        let secret = AccountSecret::Client(None);
        self.connect_with(workspace, user, &account, &secret).await
    }

    /// The same form under a new link, which ends the one before.
    pub async fn relink(&self, form: &Form) -> Form {
        let operator = self.operator().await;
        let creating = operator.create_form_link(form.workflow, Default::default());
        form.with_token(creating.await.unwrap().token.expose())
    }
}
