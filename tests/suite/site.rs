//! A gateway that browsers reach, with the links of its forms.

use letterbox_tests::{DEFINITION, Form, Front, Process, Proxy, World};
use serde_json::Value;

/// A world with a gateway whose base URL is where browsers reach it.
pub struct Site {
    pub world: World,
    pub gateway: Process,
    way: Proxy,
}

impl Site {
    pub async fn new() -> Self {
        Self::of(World::new().await, &[]).await
    }

    /// The same, with a worker.
    pub async fn with_worker() -> (Self, Process) {
        let site = Self::new().await;
        let worker = site.world.worker().await;
        (site, worker)
    }

    /// Of a world, with settings of the gateway beside the usual ones.
    pub async fn of(world: World, settings: &[(&str, &str)]) -> Self {
        let front = Front::bind().await;
        let base = format!("http://{}", front.address());
        let mut all = vec![
            ("LETTERBOX_BASE_URL", base.as_str()),
            // An outage of the broker is one of the service.
            ("LETTERBOX_SPILL_MESSAGES", "0"),
        ];
        all.extend(settings);
        let gateway = world.gateway_with(&all).await;
        let way = front.lead_to(gateway.public_address());
        Self {
            world,
            gateway,
            way,
        }
    }

    /// A deployed form with a field of every type.
    pub async fn form(&self) -> Form {
        self.world.form(&self.gateway).await
    }

    /// A deployed form with this definition.
    pub async fn form_of(&self, definition: &Value) -> Form {
        let plain = self.form().await;
        let (workspace, owner) = (plain.workspace, plain.owner);
        let text = definition.to_string();
        let forming = self.world.form_of(&self.gateway, workspace, owner, &text);
        forming.await
    }

    /// A deployed form with a field of every type, and this beside it.
    pub async fn form_with(&self, member: &str, value: Value) -> Form {
        let mut definition: Value = serde_json::from_str(DEFINITION).unwrap();
        definition[member] = value;
        self.form_of(&definition).await
    }

    /// Where a browser finds a form.
    pub fn link(&self, form: &Form) -> String {
        self.url(&format!("/forms?token={}", form.token))
    }

    /// Where a browser finds what is at a path.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.way.url)
    }

    /// What became of the submissions, oldest first.
    pub async fn inputs(&self) -> Vec<String> {
        let inputs = "SELECT input FROM runs ORDER BY run_id";
        let rows = self.world.database.query(inputs, &[]).await.unwrap();
        let text = |row: &tokio_postgres::Row| String::from_utf8(row.get(0)).unwrap();
        rows.iter().map(text).collect()
    }
}
