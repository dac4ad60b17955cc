//! `letterbox demo`: the demo workspace, and the files that tell programs and shells where
//! everything is.
//!
//! `demo.json` is also its own memory: what it says of an earlier demo is kept as long as it
//! exists. Both files hold secrets and are readable by their owner only.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::{Path, PathBuf},
};

use clap::Args;
use letterbox_broker::AMQP_URL;
use letterbox_common::{
    Token,
    process::secret_setting::SecretText,
    sealing::{ACCOUNT_KEYS, SealedColumn, WEBHOOK_KEYS, keys_of},
};
use letterbox_database::DATABASE_URL;
use letterbox_operator::Demo;
use serde_json::{Value, json};
use url::Url;

use crate::{
    Output, Result,
    dashboard::DASHBOARD_URL,
    file,
    settings::{CliSettings, key_rings},
};

#[derive(Args)]
pub(crate) struct DemoCommand {
    /// Folder of demo.json and env
    #[arg(long, value_name = "FOLDER")]
    folder: PathBuf,
    /// The definition that the demo's workflow deploys
    #[arg(long, value_name = "FILE")]
    definition: PathBuf,
    /// The address that the demo's actions call
    #[arg(long, value_name = "URL")]
    receiver_url: Url,
    /// The gateway's admin address, noted for programs
    #[arg(long, value_name = "URL")]
    gateway_admin_url: Url,
    /// The worker's admin address, noted for programs
    #[arg(long, value_name = "URL")]
    worker_admin_url: Url,
    /// The desk's admin address, noted for programs
    #[arg(long, value_name = "URL")]
    desk_admin_url: Url,
    /// A process, noted for programs, as NAME=PID; an empty PID is one that is not ours
    #[arg(long = "pid", value_name = "NAME=PID", value_parser = parse_pid)]
    pids: Vec<(String, Option<u32>)>,
}

fn parse_pid(text: &str) -> Result<(String, Option<u32>), &'static str> {
    let (name, pid) = text.split_once('=').ok_or("must be NAME=PID")?;
    match pid {
        "" => Ok((name.to_owned(), None)),
        pid => Ok((
            name.to_owned(),
            Some(pid.parse().map_err(|_| "PID must be a number")?),
        )),
    }
}

pub(crate) async fn run(settings: &CliSettings, command: DemoCommand) -> Result<Output> {
    let path = command.folder.join("demo.json");
    let definition = file::read_text(&command.definition)?;
    let before = remembered(&path);
    let operator = settings.operator().await?;
    let keys = key_rings()?;
    let ensuring = operator.ensure_demo(&keys, before, &definition, &command.receiver_url);
    let demo = ensuring.await?;

    let mut environment = Environment::from([
        (DATABASE_URL.name, DATABASE_URL.require()?),
        (AMQP_URL.name, AMQP_URL.require()?),
        (WEBHOOK_KEYS.name, keys_of(SealedColumn::WebhookSecret)?),
        (ACCOUNT_KEYS.name, keys_of(SealedColumn::AccountCredential)?),
    ]);
    let addresses = [
        ("LETTERBOX_BASE_URL", settings.addresses.base()),
        ("LETTERBOX_APP_URL", settings.addresses.app()),
        ("LETTERBOX_DESK_URL", settings.addresses.desk()),
    ];
    environment.extend(addresses.map(|(name, url)| (name, url.to_owned().into())));
    environment.extend(DASHBOARD_URL.read()?.map(|url| (DASHBOARD_URL.name, url)));
    let description = describe(settings, &command, &demo, &environment);
    file::write_private(&command.folder.join("env"), &shell_exports(&environment))?;
    file::write_private(&path, &format!("{description:#}\n"))?;
    let link = operator.make_sign_in_link(demo.owner_id).await?;
    let dashboard = dashboard(environment.get(DASHBOARD_URL.name));
    let guide = guide(settings, &dashboard, &demo, &link.token);
    Ok(Output::text(guide, &description))
}

/// The variables that name the servers and the sealing keys, without the dashboard where the broker
/// is not ours.
type Environment = BTreeMap<&'static str, SecretText>;

/// The demo of an earlier call, if it can be read.
fn remembered(path: &Path) -> Option<Demo> {
    serde_json::from_str(&file::read_text(path).ok()?).ok()
}

/// `demo.json`: everything that a program needs to use the demo or to join its stack.
fn describe(
    settings: &CliSettings,
    command: &DemoCommand,
    demo: &Demo,
    environment: &Environment,
) -> Value {
    let variables = environment.iter();
    let variables = variables.map(|(name, value)| (*name, value.expose()));
    let variables: BTreeMap<_, _> = variables.collect();
    let pids: BTreeMap<_, _> = command.pids.iter().cloned().collect();
    let mut description = json!({
        "base_url": settings.addresses.base(),
        "app_url": settings.addresses.app(),
        "gateway_admin_url": trimmed(&command.gateway_admin_url),
        "worker_admin_url": trimmed(&command.worker_admin_url),
        "desk_url": settings.addresses.desk(),
        "desk_admin_url": trimmed(&command.desk_admin_url),
        "database_url": variables.get(DATABASE_URL.name),
        "amqp_url": variables.get(AMQP_URL.name),
        "rabbitmq_dashboard_url": variables.get(DASHBOARD_URL.name),
        "form_url": demo.form_token.as_ref().map(|token| settings.addresses.form_url(token)),
        "webhook_url": settings.addresses.webhook_url(demo.webhook_address()),
        "pids": pids,
        "env": variables,
    });
    if let (Value::Object(all), Value::Object(ids)) = (&mut description, json!(demo)) {
        all.extend(ids);
    }
    description
}

fn trimmed(url: &Url) -> &str {
    url.as_str().trim_end_matches('/')
}

/// `env`: for a shell to source.
fn shell_exports(environment: &Environment) -> String {
    let mut text = String::new();
    for (name, value) in environment {
        let quoted = value.expose().replace('\'', r"'\''");
        // Writing to a string does not fail.
        let _ = writeln!(text, "export {name}='{quoted}'");
    }
    text
}

/// Where RabbitMQ's dashboard is, with the login apart: its login form takes none from an address.
fn dashboard(url: Option<&SecretText>) -> String {
    let Some(mut url) = url.and_then(|url| Url::parse(url.expose()).ok()) else {
        return "(that of the given RabbitMQ)".to_owned();
    };
    let user = url.username().to_owned();
    let password = url.password().unwrap_or_default().to_owned();
    // An address with a host can be without a login.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    format!("{url}, user {user}, password {password}")
}

/// The next steps, for people.
fn guide(settings: &CliSettings, dashboard: &str, demo: &Demo, link: &Token) -> String {
    let base = settings.addresses.base();
    let token = demo.form_token.as_deref().unwrap_or("(none)");
    let form = demo.form_token.as_ref();
    let form = form.map(|token| settings.addresses.form_url(token));
    let form = form.unwrap_or_else(|| "(its workflow is not deployed)".to_owned());
    let webhook = settings.addresses.webhook_url(demo.webhook_address());
    let Demo {
        owner_id,
        webhook_secret: secret,
        ..
    } = demo;
    let sign_in = settings.addresses.sign_in_url(link.expose());
    format!(
        r#"
Letterbox is up.

  Form        {form}
  Webhook     {webhook}
  Secret      {secret}
  Dashboard   {dashboard}
  Desk        {sign_in}
              (signs in the demo's owner, once, within ten minutes)
  Logs        .local/gateway.log, .local/worker.log; .local/receiver.log: what the form's runs sent

Open the form in a browser, or submit it from here:

  curl -i '{base}/public/workflow-forms/forms/submit' -H 'Content-Type: application/json' \
    -d '{{"token":"{token}","idempotencyKey":"'$(cat /proc/sys/kernel/random/uuid)'",
         "payload":{{"name":"Ada","email":"ada@example.com","terms":true}}}}'

Send an event:

  BODY='{{"type":"proposal.won","entity":"Acme","sourceTool":"demo","eventId":"'$(date +%s%N)'",
         "amount":{{"value":1250.50,"currency":"EUR"}}}}'
  curl -i '{webhook}' -H 'Content-Type: application/json' -d "$BODY" \
    -H "X-Service-Signature: $(printf %s "$BODY" |
        openssl dgst -sha256 -hmac '{secret}' -r | cut -d' ' -f1)"

See what became of them:

  . .local/env
  target/release/letterbox run list --workspace Demo        # and: run show RUN_ID
  target/release/letterbox signal list --workspace Demo

With a message in the form, the demo's agent works on it, too, and asks before it leaves a note:
answer in the desk, or with

  target/release/letterbox approval list                    # and: approval show APPROVAL_ID
  target/release/letterbox approval approve APPROVAL_ID --by {owner_id}
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_survive_any_character() {
        let text = shell_exports(&[("A", r#"a'b "$(c)" \"#.to_owned().into())].into());
        assert_eq!(text, "export A='a'\\''b \"$(c)\" \\'\n");
    }

    #[test]
    fn the_dashboard_is_named_with_its_login_apart() {
        let url = SecretText::from("http://letterbox:0f9a@127.0.0.1:15672/".to_owned());
        assert_eq!(
            dashboard(Some(&url)),
            "http://127.0.0.1:15672/, user letterbox, password 0f9a"
        );
        assert_eq!(dashboard(None), "(that of the given RabbitMQ)");
    }

    #[test]
    fn pids_may_be_unknown() {
        assert_eq!(
            parse_pid("gateway=12"),
            Ok(("gateway".to_owned(), Some(12)))
        );
        assert_eq!(parse_pid("rabbitmq="), Ok(("rabbitmq".to_owned(), None)));
        assert!(parse_pid("gateway").is_err() && parse_pid("gateway=x").is_err());
    }
}
