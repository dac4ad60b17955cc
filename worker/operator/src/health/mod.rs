//! The health of an installation, as findings: what was looked at, how it is, and what mends it.
//! One file looks at one place; `status`, `doctor` and `check` are three questions over them.
//! Nothing here changes anything.

mod broker;
mod data;
mod database;
mod finding;
mod processes;
mod status;

use letterbox_broker::BrokerTarget;
use letterbox_database::Statement;

pub use self::{
    broker::examine_broker,
    data::Behind,
    finding::{Finding, Verdict},
    status::{BacklogKind, Deaf, Held, Part, Retrying, Status, Unconnected},
};
use crate::{KeyRings, Operator, Result};

pub(crate) static STATEMENTS: [&[&Statement]; 5] = [
    broker::STATEMENTS,
    data::STATEMENTS,
    database::STATEMENTS,
    processes::STATEMENTS,
    status::STATEMENTS,
];

impl Operator {
    /// Looks for what may be wrong with the installation, at the broker only if one is given:
    /// settings that lose what was accepted, rights that are too great, clocks that differ,
    /// processes and queues that are missing, settings that disagree.
    pub async fn doctor(&self, broker: Option<&BrokerTarget>) -> Result<Vec<Finding>> {
        let (takes_writes, mut found) = self.examine_database().await?;
        let processes = self.processes().await?;
        found.extend(self.examine_settings().await?);
        found.push(self.examine_policies().await?);
        found.extend(processes.found(takes_writes));
        let behind = data::subscriptions_behind(self, data::LATE_SECONDS).await?;
        found.push(Finding::of_list(
            "subscriptions",
            behind.into_iter().filter_map(|one| one.queue.or(one.url)),
            Verdict::Warning,
            "none is behind",
            "letterbox status says why",
        ));
        found.push(processes.retention());
        found.push(match broker {
            Some(broker) => broker::consumed(&self.queue_lengths(broker).await),
            None => Finding::unseen("queues", "set AMQP_URL"),
        });
        Ok(found)
    }

    /// Compares what is stored, of the last `hours` where everything would take too long; with
    /// `keys`, opens every sealed value, and with a broker, looks at its queues.
    pub async fn check(
        &self,
        hours: f64,
        keys: Option<&KeyRings>,
        broker: Option<&BrokerTarget>,
    ) -> Result<Vec<Finding>> {
        let mut found = self.compare(hours).await;
        found.push(match keys {
            None => Finding::unseen("secrets", "set the sealing keys to open all of them"),
            Some(keys) => data::secrets(&self.closed_values(keys).await?),
        });
        found.push(match broker {
            None => Finding::unseen("queues", "set AMQP_URL"),
            Some(broker) => broker::emptied(&self.queue_lengths(broker).await),
        });
        Ok(found)
    }
}
