//! `letterbox doctor`: what may be wrong with an installation, and what mends it.

use std::time::Duration;

use letterbox_operator::{Finding, Verdict, examine_broker};
use letterbox_trials::{TrialError, client, describe};

use crate::{
    Output, Result,
    dashboard::{DASHBOARD_URL, Dashboard, DashboardError},
    output,
    settings::{CliSettings, broker},
};

/// How long the base URL may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn run(settings: &CliSettings) -> Result<Output> {
    let operator = settings.operator().await?;
    let broker = broker()?;
    let mut found = operator.doctor(broker.as_ref()).await?;
    match DASHBOARD_URL.read()? {
        Some(_) if broker.is_some() => {
            found.extend(ask_dashboard(&Dashboard::from_environment()?).await?);
        }
        _ => found.push(Finding::unseen(
            "broker",
            "set LETTERBOX_DASHBOARD_URL and AMQP_URL: only the dashboard tells of alarms, limits, \
             members and users",
        )),
    }
    found.push(ask_base_url(settings.addresses.base()).await?);
    Ok(output(&found))
}

/// Findings, and the exit code of the worst.
pub(crate) fn output(found: &[Finding]) -> Output {
    let worst = found.iter().map(|one| one.verdict).max();
    let code = match worst {
        None | Some(Verdict::Fine) => 0,
        Some(Verdict::Warning) => output::LOOK,
        Some(Verdict::Failure) => 1,
    };
    Output::status(text(found), &found, code)
}

async fn ask_dashboard(dashboard: &Dashboard) -> Result<Vec<Finding>, DashboardError> {
    let nodes = dashboard.read("nodes").await?;
    let queues = dashboard.read_of_host("queues").await?;
    let users = dashboard.read("users").await?;
    let flags = dashboard.read("feature-flags").await?;
    Ok(examine_broker(&nodes, &queues, &users, &flags))
}

/// Whether a gateway answers at the base URL, as it answers whoever has no token.
async fn ask_base_url(base: &str) -> Result<Finding, TrialError> {
    let url = format!("{base}/public/workflow-forms/forms?token=none");
    let asked = client(TIMEOUT)?.get(url).send().await;
    let answered = match asked {
        Ok(answer) => answer.text().await.map_err(|error| describe(&error)),
        Err(error) => Err(describe(&error)),
    };
    let unknown = "workflow_public_form_unavailable";
    let is_gateway = answered.as_ref().is_ok_and(|text| text.contains(unknown));
    Ok(Finding::new(
        "base URL",
        is_gateway,
        Verdict::Warning,
        match answered {
            _ if is_gateway => "a gateway answers there".to_owned(),
            Ok(_) => "something answers there that is no gateway".to_owned(),
            Err(error) => error,
        },
        "set LETTERBOX_BASE_URL to where senders reach the gateways, or mend the way there",
    ))
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
        let mend = one.mend.map(|mend| format!("  => {mend}"));
        let mend = mend.unwrap_or_default();
        format!("{word:<8} {:<20} {detail}{mend}", one.about)
    });
    lines.collect::<Vec<_>>().join("\n")
}
