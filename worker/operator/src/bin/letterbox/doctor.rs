//! `letterbox doctor`: what may be wrong with an installation, and what mends it.

use letterbox_broker::{AMQP_URL, BrokerTarget};
use letterbox_operator::{Finding, Operator, Verdict, examine_broker};

use crate::{
    Failure, Output,
    dashboard::{Dashboard, DashboardError},
    output,
    settings::DASHBOARD_URL,
};

pub(crate) async fn run(operator: &Operator) -> Result<Output, Failure> {
    let broker = match AMQP_URL.read()? {
        Some(_) => Some(BrokerTarget::from_environment()?),
        None => None,
    };
    let mut found = operator.doctor(broker.as_ref()).await?;
    if broker.is_some() && DASHBOARD_URL.read()?.is_some() {
        found.extend(ask_dashboard(&Dashboard::from_environment()?).await?);
    }
    Ok(output(&found))
}

/// Findings, and the exit code of the worst.
pub(crate) fn output(found: &[Finding]) -> Output {
    let worst = found.iter().map(|one| one.verdict).max();
    Output::Status {
        text: text(found),
        value: output::value(&found),
        code: match worst {
            None | Some(Verdict::Fine) => 0,
            Some(Verdict::Warning) => output::LOOK,
            Some(Verdict::Failure) => 1,
        },
    }
}

async fn ask_dashboard(dashboard: &Dashboard) -> Result<Vec<Finding>, DashboardError> {
    let nodes = dashboard.read("nodes").await?;
    let queues = dashboard.read_of_host("queues").await?;
    let users = dashboard.read("users").await?;
    Ok(examine_broker(&nodes, &queues, &users))
}

/// One line for each, the worst first; what is wrong with its mend.
fn text(found: &[Finding]) -> String {
    let mut sorted: Vec<_> = found.iter().collect();
    sorted.sort_by_key(|one| std::cmp::Reverse(one.verdict));
    let lines = sorted.into_iter().map(|one| {
        let word = match one.verdict {
            Verdict::Fine => "fine",
            Verdict::Warning => "WARNING",
            Verdict::Failure => "FAILURE",
        };
        let detail = one.detail.replace('\n', " ");
        let mend = one
            .mend
            .map(|mend| format!("  => {mend}"))
            .unwrap_or_default();
        format!("{word:<8} {:<20} {detail}{mend}", one.about)
    });
    lines.collect::<Vec<_>>().join("\n")
}
