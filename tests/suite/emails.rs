//! E-mail that runs send.

use letterbox_operator::{AccountSecret, AccountSettings};
use letterbox_tests::{
    Authority, Form, Mail, MailServer, MailTls, Process, World, assert_tells, call,
    definition_with, eventually, payload, table,
};
use letterbox_workflow::Untrusted;
use serde_json::{Value, json};

/// A form whose owner's account `mail` is a mail server.
struct Mailing {
    world: World,
    gateway: Process,
    _worker: Process,
    server: MailServer,
    form: Form,
}

impl Mailing {
    async fn new(server: MailServer, settings: &[(&str, &str)], actions: Value) -> Self {
        let (world, gateway) = World::with_gateway().await;
        let worker = world.worker_with(settings).await;
        let plain = world.form(&gateway).await;
        let basic = AccountSecret::Basic(secret("ada:a:b"));
        connect(&world, &plain, "mail", &server.url, &basic).await;
        let form = world.redeployed(&gateway, &plain, actions).await;
        Self {
            world,
            gateway,
            _worker: worker,
            server,
            form,
        }
    }

    async fn mails(&self, count: usize) -> Vec<Mail> {
        let taken = async || self.server.taken().len() >= count;
        eventually("an e-mail arrives", taken).await;
        self.server.taken()
    }

    /// Asserts that a run of this action fails, as the nth one that does, and why.
    async fn assert_fails(&self, action: Value, values: Value, nth: i64, why: &str) -> Form {
        let (world, of) = (&self.world, &self.form);
        let form = world.redeployed(&self.gateway, of, json!([action])).await;
        form.assert_accepts_with("k", values).await;
        world.await_state("failed", nth).await;
        world.assert_failed(&form, why).await;
        form
    }
}

fn secret(text: &str) -> letterbox_common::sealing::Secret {
    letterbox_common::sealing::Secret::new(text.as_bytes().to_vec())
}

async fn connect(world: &World, of: &Form, name: &str, url: &str, secret: &AccountSecret) {
    let sender = Some("Bäckerei <shop@example.com>".to_owned());
    let account = AccountSettings {
        sender,
        ..AccountSettings::of(name, url.parse().unwrap())
    };
    world
        .connect_with(of.workspace, of.owner, &account, secret)
        .await;
}

/// An e-mail to the owner, with these members.
fn email(members: Value) -> Value {
    let mut action = json!({"id": "tell", "type": "email.send", "account": "mail",
        "to": ["owner@example.com"], "subject": "News"});
    for (name, value) in members.as_object().unwrap() {
        action[name] = value.clone();
    }
    action
}

/// The JSON of the README that begins so.
fn of_readme(begin: &str) -> Value {
    let readme = include_str!("../../worker/README.md");
    let blocks = readme.split("```json\n").skip(1);
    let mut blocks = blocks.filter_map(|block| block.split("```").next());
    let found = blocks.find(|block| block.starts_with(begin)).unwrap();
    serde_json::from_str(found).unwrap()
}

/// The README's form: its owner gets each answer, and the submitter a confirmation once a person
/// agrees, or once the policy says that nobody need be asked.
#[tokio::test]
async fn each_answer_is_mailed_and_confirmed() {
    let scene = Mailing::new(MailServer::start().await, &[], json!([])).await;
    let (world, plain) = (&scene.world, &scene.form);
    let example = of_readme(r#"{"form": {"title": "Order""#).to_string();
    let form = world.form_of(&scene.gateway, plain.workspace, plain.owner, &example);
    let form = form.await;
    let order =
        json!({"name": "Ada", "email": "ada@example.com", "order": "2 <b>loaves</b>\n1 roll"});
    form.submit("k", &order).await.assert_accepted();

    let told = &scene.mails(1).await[0];
    assert_eq!(told.to, "shop@example.com");
    let run = &world.run_of(&form).await;
    let key = run.actions[0].idempotency_key;
    let text = told.read();
    for part in [
        "From: =?utf-8?b?QsOkY2tlcmVp?= <shop@example.com>",
        "To: shop@example.com",
        "Reply-To: ada@example.com",
        "Subject: Order from Ada",
        &format!("Message-ID: <{key}@example.com>"),
        "Auto-Submitted: auto-generated",
        "Name: Ada\r\nE-mail: ada@example.com\r\nWhat would you like?: 2 <b>loaves</b>\r\n  1 roll",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }

    // A stranger says whom the second one reaches: a person is asked.
    world.await_state("waiting_approval", 1).await;
    let waiting = &world.waiting(form.workspace).await[0];
    assert_eq!(
        waiting.untrusted,
        [Untrusted::Data, Untrusted::Control, Untrusted::Recipient]
    );
    let operator = world.operator().await;
    let approving = operator.approve(waiting.approval_id, form.owner).await;
    approving.unwrap();
    let confirmed = &scene.mails(2).await[1];
    assert_eq!(confirmed.to, "ada@example.com");
    let html = "<p>Thank you, Ada. We have:</p><table>\r\n\
        <tr><th align=\"left\">Name</th><td>Ada</td></tr>";
    let text = confirmed.read();
    assert_tells(&text, &[html, "2 &lt;b&gt;loaves&lt;&#x2f;b&gt;<br>1 roll"]);

    world
        .set_policy(
            form.workspace,
            of_readme(r#"{"rules": [{"when": {"action": "email.send""#),
        )
        .await;
    form.submit("l", &order).await.assert_accepted();
    scene.mails(4).await;
    world.await_state("succeeded", 2).await;
    let login = &scene.server.logins()[0];
    assert_eq!(login, "AUTH PLAIN AGFkYQBhOmI="); // \0ada\0a:b
}

/// A value stays where it is inserted.
#[tokio::test]
async fn a_value_is_no_header_and_no_further_recipient() {
    let scene = Mailing::new(MailServer::start().await, &[], json!([])).await;
    scene.world.decide(scene.form.workspace, "allow").await;
    let broken = json!({"message": "Hi\r\nBcc: spy@example.com"});
    for (nth, message) in (1..).zip([
        "a@example.com, spy@example.com",
        "a@example.com\r\nBcc: spy@example.com",
        "Ada <a@example.com>",
        "a@example.com> SIZE=1",
        "nobody",
        // The form wants a text that is not blank.
        " \u{a0}x",
    ]) {
        let values = json!({"message": message});
        let action = email(json!({"to": ["a@example.com", "{{ form.message }}", "b@example.com"]}));
        scene
            .assert_fails(action, values, nth, "a recipient is no e-mail address")
            .await;
    }
    assert_eq!(scene.server.taken(), []);
    // In a text it is text, also where it looks like the end of the e-mail; in the subject it is a
    // space; and whoever can't be answered is not.
    let members = json!({"subject": "{{ form.message }} =?utf-8?b?SGk=?=",
        "reply_to": "{{ form.message }}", "text": "{{ form.message }}\n.\nQUIT\r.\rQUIT",
        "to": ["owner@example.com", "second@example.com"]});
    let form = scene
        .world
        .redeployed(&scene.gateway, &scene.form, json!([email(members)]))
        .await;
    form.assert_accepts_with("k", broken).await;
    let taken = scene.mails(1).await;
    assert_eq!(taken[0].to, "owner@example.com,second@example.com");
    for part in [
        "To: owner@example.com, second@example.com",
        "Subject: Hi  Bcc: spy@example.com = ?utf-8?b?SGk= ?=",
        "\r\n\r\nHi\r\nBcc: spy@example.com\r\n..\r\nQUIT=0D.=0DQUIT",
    ] {
        assert!(taken[0].text.contains(part), "{part}: {}", taken[0].text);
    }
    assert!(!taken[0].text.contains("Reply-To"));
}

/// What the server does not take now is tried again under the same id; what it refuses is not, and
/// the owner reads its words.
#[tokio::test]
async fn a_mail_server_is_understood() {
    let scene = Mailing::new(MailServer::start().await, &[], json!([email(json!({}))])).await;
    scene
        .server
        .answer("DATA", "451 4.7.1 Greylisted, come again");
    scene.form.assert_accepts("k").await;
    let world = &scene.world;
    let failed = "SELECT count(*) FROM run_actions WHERE attempts > 0 AND error LIKE \
                  'the mail server answered 451 4.7.1'";
    world.await_count("one attempt", failed, 1).await;
    scene.server.answer("", "");
    world.await_state("succeeded", 1).await;
    assert_eq!(scene.server.taken().len(), 1);

    // The server's word for a command, why it failed, and what its owner reads of the word.
    let refusals = table(
        "RCPT | 550 5.1.1 Nobody\u{7} here | answered 550 5.1.1 | 5.1.1 Nobody  here
        RCPT | 550 No | the mail server answered 550 | No
        AUTH | 535 5.7.8 Wrong | refuses the account's password or token 5.7.8 | Wrong
        AUTH | 554 5.7.1 Blocked | the mail server answered 554 5.7.1 | Blocked
        AUTH | 500 5.5.1 What? \"AUTH PLAIN AGFkYQBhOmI=\" | the mail server answered 500 | [hidden]
        MAIL | 501 that was a:b | the mail server answered 501 | [hidden]
        EHLO | 250 plain | the mail server offers no way to sign in that is known |",
    );
    for (nth, [command, answer, why, told]) in (1..).zip(refusals) {
        scene.server.answer(command, answer);
        let form = scene.assert_fails(email(json!({})), payload(), nth, why);
        let form = form.await;
        // Its words are told where answers are, and to those who may see them.
        let run = world.run_of(&form).await;
        let failed = run.actions[0].failed_with.as_ref();
        let words = failed.map(|one| one.body.clone()).unwrap_or_default();
        assert!(
            words.contains(told) && words.is_empty() == told.is_empty(),
            "{words}"
        );
        let everything = serde_json::to_string(&run).unwrap();
        assert!(!everything.contains("AGFkYQBhOmI="), "{everything}");
    }
    // What nobody understands was not sent, and is tried again.
    for [command, answer, why] in table(
        "DATA | 250 what | the mail server answered 250 in place of 354
         MAIL | what     | this is no mail server: it gives no code",
    ) {
        scene.server.answer(command, answer);
        let actions = json!([email(json!({}))]);
        let form = world.redeployed(&scene.gateway, &scene.form, actions).await;
        form.assert_accepts("k").await;
        let told = format!("run_actions WHERE unanswered = 0 AND error LIKE '{why}%'");
        world.await_rows(&told, 1).await;
    }
    assert_eq!(scene.server.taken().len(), 1);
}

/// One that says too much is left before it fills the memory, and one that says nothing after its
/// time.
#[tokio::test]
async fn a_mail_server_can_not_fill_the_memory() {
    let settings = [("LETTERBOX_RETRY_MILLISECONDS", "1")];
    let scene = Mailing::new(MailServer::start().await, &settings, json!([])).await;
    scene
        .world
        .order("workspace settings Test --retry-attempts 1");
    let flood = "250-".to_owned() + &"x".repeat(300 << 10);
    scene.server.answer("EHLO", &flood);
    let why = "the mail server says too much";
    scene
        .assert_fails(email(json!({})), payload(), 1, why)
        .await;
}

/// The guard of other requests holds: no private address, no other port, nothing in clear text.
#[tokio::test]
async fn e_mail_leaves_for_the_open_internet_only() {
    let settings = [("LETTERBOX_EGRESS_ALLOW", "")];
    let scene = Mailing::new(MailServer::start().await, &settings, json!([])).await;
    let (world, form) = (&scene.world, &scene.form);
    let private = "the host's address is private";
    let failing = scene.assert_fails(email(json!({})), payload(), 1, private);
    failing.await;
    let port = "public mail servers are reached on port 465 or 587 only";
    for (nth, (url, why)) in (2..).zip([
        ("smtp://[::1]:587", private),
        ("smtps://10.0.0.1", private),
        ("smtp://localhost:587", private),
        ("smtp://1.1.1.1:25", port),
        ("smtps://1.1.1.1:443", port),
    ]) {
        let name = format!("mail-{nth}");
        connect(world, form, &name, url, &AccountSecret::None).await;
        let action = email(json!({"account": name}));
        scene.assert_fails(action, payload(), nth, why).await;
    }
    assert_eq!(scene.server.logins(), [""; 0]);
}

/// A password goes to a server that proves who it is, and to no other.
#[tokio::test(flavor = "multi_thread")]
async fn a_mail_server_proves_who_it_is() {
    let (known, unknown) = (Authority::default(), Authority::default());
    let roots = known.file();
    let settings = [
        ("SSL_CERT_FILE", roots.to_str().unwrap()),
        ("LETTERBOX_EGRESS_ALLOW", "127.0.0.1,::1"),
        ("LETTERBOX_RETRY_MILLISECONDS", "1"),
    ];
    let good = MailServer::start_with(MailTls::FromTheStart(known.acceptor("localhost"))).await;
    let scene = Mailing::new(good.clone(), &settings, json!([email(json!({}))])).await;
    let (world, form) = (&scene.world, &scene.form);
    world.submit_until(form, "k", "succeeded", 1).await;
    assert_eq!(good.taken().len(), 1);
    let starttls = MailServer::start_with(MailTls::Starttls(known.acceptor("localhost"))).await;
    let basic = AccountSecret::Basic(secret("ada:secret"));
    connect(world, form, "starttls", &starttls.url, &basic).await;
    let actions = json!([email(json!({"account": "starttls"}))]);
    let second = world.redeployed(&scene.gateway, form, actions).await;
    second.assert_accepts("k").await;
    world.await_state("succeeded", 2).await;
    assert_eq!((starttls.taken().len(), starttls.logins().len()), (1, 1));

    for (nth, tls) in (1..).zip([
        MailTls::FromTheStart(unknown.acceptor("localhost")),
        MailTls::FromTheStart(known.acceptor("other.example")),
        MailTls::Starttls(unknown.acceptor("localhost")),
        MailTls::Starttls(known.acceptor("other.example")),
    ]) {
        let server = MailServer::start_with(tls).await;
        let name = format!("mail-{nth}");
        connect(world, form, &name, &server.url, &basic).await;
        let action = email(json!({"account": name}));
        let failing = scene.assert_fails(action, payload(), nth, "certificate");
        failing.await;
        assert_eq!(server.logins(), [""; 0]);
    }
}

/// Accounts that send e-mail do that alone, and say so when a workflow is deployed.
#[tokio::test]
async fn a_mail_server_takes_no_other_request() {
    let server = MailServer::start().await;
    let scene = Mailing::new(server, &[], json!([])).await;
    let (world, form) = (&scene.world, &scene.form);
    world
        .connect(form.workspace, form.owner, "crm", "http://127.0.0.1:9")
        .await;
    let mut request = call("send", "GET", "/");
    request["account"] = "mail".into();
    let why = "the account \"mail\" sends e-mail and nothing else: only email.send can call it";
    scene.assert_fails(request.clone(), payload(), 1, why).await;
    let action = email(json!({"account": "crm"}));
    let why = "the account \"crm\" is no mail server: email.send can't call it";
    scene.assert_fails(action.clone(), payload(), 2, why).await;

    let definition = definition_with(json!([request, action]));
    let operator = world.operator().await;
    let deployed = operator
        .deploy(form.workflow, Some(&definition))
        .await
        .unwrap();
    let warnings = deployed.warnings.join("\n");
    for part in [
        "the account \"mail\" is a mail server: only email.send can use it",
        "the account \"crm\" is no mail server: email.send will fail",
    ] {
        assert!(warnings.contains(part), "{warnings}");
    }
}
