//! A submitter: whoever holds a form's link.

use std::sync::atomic::{AtomicU32, Ordering};

use letterbox_common::ids::{UserId, WorkflowId, WorkspaceId};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{Answer, Process, http_client, marks::mark};

/// A workflow with a field of every type.
pub const DEFINITION: &str = r#"{
    "form": {
        "title": "Contact us",
        "description": "We answer within a day.",
        "fields": [
            {"key": "name", "label": "Your name", "type": "text", "required": true,
                "placeholder": "Ada Lovelace"},
            {"key": "email", "label": "E-mail address", "type": "email", "required": true},
            {"key": "message", "label": "Message", "type": "textarea", "required": false},
            {"key": "seats", "label": "Seats", "type": "number", "required": false},
            {"key": "terms", "label": "I accept the terms", "type": "checkbox", "required": true}
        ]
    },
    "actions": []
}"#;

/// [`DEFINITION`] with these actions.
pub fn definition_with(actions: Value) -> String {
    let mut definition: Value = serde_json::from_str(DEFINITION).unwrap();
    definition["actions"] = actions;
    definition.to_string()
}

/// A payload that fits [`DEFINITION`].
pub fn payload() -> Value {
    json!({"name": "Ada", "email": "ada@example.com", "message": "Hello\nthere", "seats": 3,
        "terms": true})
}

/// A form as the holder of its link knows it, and, for the test, what is behind it.
#[derive(Clone)]
pub struct Form {
    pub workspace: WorkspaceId,
    pub owner: UserId,
    pub workflow: WorkflowId,
    pub token: String,
    base: String,
    /// The address that requests come from; a new one for each where there is none.
    client: Option<String>,
    http: reqwest::Client,
}

impl Form {
    pub fn new(
        gateway: &str,
        workspace: WorkspaceId,
        owner: UserId,
        workflow: WorkflowId,
        token: &str,
    ) -> Self {
        mark(token);
        let (base, token) = (gateway.to_owned(), token.to_owned());
        Self {
            workspace,
            owner,
            workflow,
            token,
            base,
            client: None,
            http: http_client(),
        }
    }

    /// The same form behind another gateway.
    pub fn at(&self, gateway: &Process) -> Self {
        self.behind(&gateway.public_url())
    }

    /// The same form at another address.
    pub fn behind(&self, gateway: &str) -> Self {
        Self {
            base: gateway.to_owned(),
            ..self.clone()
        }
    }

    /// The same form, from one address only.
    pub fn from(&self, client: &str) -> Self {
        Self {
            client: Some(client.to_owned()),
            ..self.clone()
        }
    }

    /// The same form through another token.
    pub fn with_token(&self, token: &str) -> Self {
        mark(token);
        Self {
            token: token.to_owned(),
            ..self.clone()
        }
    }

    pub fn read_url(&self) -> String {
        format!("{}/public/workflow-forms/forms", self.base)
    }

    pub fn submit_url(&self) -> String {
        format!("{}/public/workflow-forms/forms/submit", self.base)
    }

    pub fn page_url(&self) -> String {
        format!("{}/forms?token={}", self.base, self.token)
    }

    /// A request that is not yet sent.
    pub fn request(&self, method: reqwest::Method, url: &str) -> reqwest::RequestBuilder {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let client = self.client.clone().unwrap_or_else(|| {
            let [a, b, c, d] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
            format!("{}.{b}.{c}.{d}", 100 + a)
        });
        self.http
            .request(method, url)
            .header("x-forwarded-for", client)
    }

    pub async fn read(&self) -> Answer {
        let request = self
            .request(reqwest::Method::GET, &self.read_url())
            .query(&[("token", &self.token)]);
        Answer::to(request).await
    }

    /// A payload under a key, which is not yet posted.
    pub fn submission(&self, key: &str, payload: &Value) -> reqwest::RequestBuilder {
        let body = json!({"token": self.token, "idempotencyKey": key, "payload": payload});
        self.posting(body.to_string())
    }

    /// Posts a payload under a key.
    pub async fn submit(&self, key: &str, payload: &Value) -> Answer {
        Answer::to(self.submission(key, payload)).await
    }

    fn posting(&self, body: impl Into<reqwest::Body>) -> reqwest::RequestBuilder {
        let request = self.request(reqwest::Method::POST, &self.submit_url());
        let request = request.header("content-type", "application/json");
        request.body(body)
    }

    /// Begins to post a payload under a key.
    pub fn begin(&self, key: &str, payload: Value) -> JoinHandle<Answer> {
        let (form, key) = (self.clone(), key.to_owned());
        tokio::spawn(async move { form.submit(&key, &payload).await })
    }

    /// Posts any body.
    pub async fn post(&self, body: impl Into<reqwest::Body>) -> Answer {
        Answer::to(self.posting(body)).await
    }

    /// Asserts that a submission is accepted.
    pub async fn assert_accepts(&self, key: &str) {
        self.submit(key, &payload()).await.assert_accepted();
    }

    /// Asserts that a submission is accepted with these instead of some of the usual values.
    pub async fn assert_accepts_with(&self, key: &str, values: Value) {
        let mut payload = payload();
        for (name, value) in values.as_object().unwrap() {
            payload[name] = value.clone();
        }
        self.submit(key, &payload).await.assert_accepted();
    }

    /// Asserts that the link lives.
    pub async fn assert_lives(&self) {
        assert_eq!(self.read().await.status, 200);
    }

    /// Asserts that neither door knows the link.
    pub async fn assert_dead(&self) {
        for answer in [self.read().await, self.submit("dead", &payload()).await] {
            assert_eq!(
                (answer.status, answer.body.as_str()),
                (404, UNAVAILABLE),
                "{answer:?}"
            );
        }
    }
}

const UNAVAILABLE: &str = concat!(
    r#"{"error":{"code":"workflow_public_form_unavailable","#,
    r#""message":"This form is not available"}}"#,
);
