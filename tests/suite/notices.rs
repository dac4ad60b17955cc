//! People are told what waits and what went wrong: each thing once, in one letter for what comes
//! within a while, without a word of a stranger's. Links to sign in come the same way.

use letterbox_common::states::MemberRole;
use letterbox_database::Role;
use letterbox_tests::{
    Desk, Form, MailServer, Peer, Process, Reply, Visitor, World, assert_hides, assert_tells,
    eventually, page_of, payload, value,
};

const DESK: &str = "https://desk.example.com/";

/// A world whose worker tells what comes within a second.
struct Scene {
    world: World,
    mail: MailServer,
    form: Form,
    processes: [Process; 2],
}

impl Scene {
    async fn new(peer: &Peer) -> Self {
        let (world, mail) = (World::new().await, MailServer::start().await);
        let gateway = world.gateway().await;
        let settings = [
            ("LETTERBOX_SMTP_URL", mail.url.as_str()),
            ("LETTERBOX_SMTP_FROM", "Letterbox <letterbox@example.com>"),
            ("LETTERBOX_DESK_URL", DESK),
            ("LETTERBOX_NOTICE_SECONDS", "1"),
        ];
        let worker = world.worker_with(&settings).await;
        let form = world.sending_form(&gateway, peer).await;
        // Nobody is written to who has never been here.
        world.person(form.owner).await;
        Self {
            world,
            mail,
            form,
            processes: [gateway, worker],
        }
    }

    /// Has people told by e-mail of a question.
    async fn ask(&self) {
        let (world, form) = (&self.world, &self.form);
        world.order("workspace settings Test --notify-by-email on");
        world.decide(form.workspace, "approve").await;
        world.submit_until(form, "k", "waiting_approval", 1).await;
        self.await_mails(1).await;
    }

    async fn await_mails(&self, expected: usize) {
        let what = format!("{expected} letters");
        eventually(&what, async || self.mail.taken().len() >= expected).await;
    }

    /// Nothing is left to be told.
    async fn await_quiet(&self) {
        let open = "SELECT (SELECT count(*) FROM news)
            + (SELECT count(*) FROM letters WHERE sent_at IS NULL)";
        self.world.await_count("quiet", open, 0).await;
    }
}

/// A flood of questions is told in few letters, and each question once.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_questions_is_few_letters() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let scene = Scene::new(&peer).await;
    let (world, form) = (&scene.world, &scene.form);
    let set = world.order("workspace settings Test --notify-by-email on");
    assert_eq!(set["notify_by_email"], true);
    world.decide(form.workspace, "approve").await;
    let mut hostile = payload();
    hostile["message"] = "CANARY of a stranger".into();
    for number in 0..200 {
        if number % 20 == 0 {
            world.forget_hits().await;
        }
        let answer = form.submit(&format!("k{number}"), &hostile).await;
        answer.assert_accepted();
    }
    world.await_state("waiting_approval", 200).await;
    scene.await_mails(1).await;
    // Who looks is told without a pause.
    world.person(form.owner).await;
    scene.await_quiet().await;
    let span = "SELECT ceil(extract(epoch FROM max(made_at) - min(made_at)))::bigint FROM letters";
    let (letters, span) = (world.rows("letters").await, world.count(span).await);
    assert!(letters <= span + 1, "{letters} letters within {span} s");
    let questions = "SELECT sum((told ->> 'question')::integer) FROM letters";
    world.assert_count(questions, 200).await; // each once
    let taken = scene.mail.taken();
    assert_eq!(taken.len() as i64, letters);
    for mail in &taken {
        assert!(mail.to.ends_with("@example.com"), "{mail:?}");
        assert_tells(&mail.text, &[DESK, "for an answer", "Message-ID: <"]);
        assert_hides(&mail.text, &["CANARY"]);
    }
    // Who was told to be quiet is.
    world.order("workspace settings Test --notify-by-email off");
    world.forget_hits().await;
    form.assert_accepts("last").await;
    world.await_state("waiting_approval", 201).await;
    world.assert_rows("news", 0).await;
}

/// A question that is asked again, because its run is retried, is told again.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_is_asked_again_is_told() {
    let peer = Peer::start(|_, _| Reply::Status(400)).await;
    let scene = Scene::new(&peer).await;
    let (world, form) = (&scene.world, &scene.form);
    scene.ask().await;
    let asked = world.order("approval list")[0].clone();
    let told = |name: &str| asked[name].as_str().unwrap().to_owned();
    let (approval, run) = (told("approval_id"), told("run_id"));
    world.order(format!("approval approve {approval} --by {}", form.owner));
    world.await_state("failed", 1).await;
    world.order(format!("run retry {run}"));
    world.await_state("waiting_approval", 1).await;
    scene.await_quiet().await;
    let questions = world
        .count("SELECT sum((told ->> 'question')::integer) FROM letters")
        .await;
    assert_eq!(questions, 2);
}

/// A person who has never signed in gets nothing, and one who does not look is told in longer and
/// longer pauses, up to an hour: of everything, in the one letter that waits. Who looks is told at
/// once, and without a pause again.
#[tokio::test]
async fn who_does_not_look_is_told_in_longer_pauses() {
    let world = World::new().await;
    let operator = world.operator().await;
    let workspace = world.workspace("Test").await;
    let mut owners = Vec::new();
    for email in ["ada@example.com", "never@example.com"] {
        let owner = operator.invite(workspace, email, "Owner", MemberRole::Owner);
        owners.push(owner.await.unwrap().user_id);
    }
    let ada = owners[0];
    let person = world.person(ada).await;
    operator.notify(workspace, Some(true), None).await.unwrap();
    let worker = world.session(Role::Worker).await;
    let happens = async || {
        let news = format!(
            "INSERT INTO news (workspace_id, kind, subject_id, happened_at)
            VALUES ('{workspace}', 'failure', gen_random_uuid(), now() - interval '2 minutes')"
        );
        world.change(&news).await;
        let writing = worker.execute("SELECT write_letters(60)", &[]);
        writing.await.unwrap();
    };
    // As if each had been sent just now, and written long before.
    let sent =
        "UPDATE letters SET sent_at = now(), attempts = 1, made_at = now() - interval '1 day'";
    let pause = "SELECT round(extract(epoch FROM due_at - now()))::bigint FROM letters
        WHERE sent_at IS NULL";
    for expected in [0, 60, 120, 240, 480, 960, 1_920, 3_600, 3_600] {
        happens().await;
        let pause = world.count(pause).await;
        assert!((pause - expected).abs() < 5, "{pause} for {expected}");
        // What comes meanwhile is told with it.
        let long_ago = "UPDATE letters SET made_at = now() - interval '1 day'";
        world.change(long_ago).await;
        happens().await;
        let waiting =
            "SELECT sum((told ->> 'failure')::integer) FROM letters WHERE sent_at IS NULL";
        world.assert_count(waiting, 2).await;
        world.change(sent).await;
    }
    let never = format!("SELECT count(*) FROM letters WHERE user_id <> '{ada}'");
    world.assert_count(&never, 0).await;
    happens().await;
    let due = "SELECT count(*) FROM take_letters(10)";
    assert_eq!(value::<i64>(&worker, due).await, 0);
    // Looks: any order of a person's session begins with that.
    world.person(ada).await;
    assert_eq!(value::<i64>(&worker, due).await, 1);
    world.change(sent).await;
    happens().await;
    assert!(world.count(pause).await < 5);
    // Who is no member any more, or wants no mail, is not told what was written before.
    person.notify(workspace, Some(false), None).await.unwrap();
    assert_eq!(value::<i64>(&worker, due).await, 0);
}

/// What a mail server does not take is tried again, under the same id.
#[tokio::test(flavor = "multi_thread")]
async fn a_letter_is_tried_again() {
    let peer = Peer::start(|_, _| Reply::Status(400)).await;
    let scene = Scene::new(&peer).await;
    let world = &scene.world;
    world.order("workspace settings Test --notify-by-email on");
    scene.mail.answer("DATA", "451 later");
    world.submit_until(&scene.form, "k", "failed", 1).await;
    let failed = "SELECT count(*) FROM letters WHERE attempts = 1 AND error LIKE '%451%'";
    world.await_count("one attempt", failed, 1).await;
    scene.mail.answer("", "");
    world.change("UPDATE letters SET due_at = now()").await;
    scene.await_mails(1).await;
    scene.await_quiet().await;
    let taken = scene.mail.taken();
    assert_eq!(taken.len(), 1);
    assert!(taken[0].text.contains("1 run has failed"), "{taken:?}");
    let run = world.runs_of(&scene.form).await[0].run_id;
    let read = taken[0].read();
    assert!(read.contains(&format!("/runs/{run}")), "{read}");
    let id: String = world.value("SELECT letter_id::text FROM letters").await;
    assert_tells(
        &taken[0].text,
        &[&format!("Message-ID: <{id}@example.com>")],
    );
}

/// Who sends links to sign in through a network in clear text is warned, as for the database.
#[tokio::test]
async fn mail_in_clear_text_is_warned_of() {
    let world = World::new().await;
    for (url, expected) in [
        ("smtp://mail.example", true),
        ("smtps://mail.example", false),
    ] {
        let settings = [
            ("LETTERBOX_SMTP_URL", url),
            ("LETTERBOX_SMTP_FROM", "a@example.com"),
        ];
        let worker = world.worker_with(&settings).await;
        let warning = "LETTERBOX_SMTP_URL: e-mail may be in clear text";
        let is_warned = worker.log().contains(warning);
        assert_eq!(is_warned, expected, "{url}");
    }
}

/// A refused credential is told once, through an account; a new credential may be refused anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_credential_is_told_once() {
    let chat = Peer::start(|_, _| Reply::Status(200)).await;
    let peer = Peer::start(|_, _| Reply::Status(401)).await;
    let scene = Scene::new(&peer).await;
    let (world, form) = (&scene.world, &scene.form);
    let chat_account = world.connect_for(form, "chat", &chat.url).await;
    let id = chat_account.account_id;
    world.order(format!("workspace settings Test --notify-account {id}"));
    let told = async |expected: usize, words: &str| {
        let received = chat.await_received(expected).await;
        let last = received.last().unwrap();
        let text = last.json()["text"].as_str().unwrap().to_owned();
        assert!(text.contains(words) && text.contains(DESK), "{text}");
        scene.await_quiet().await;
    };
    form.assert_accepts("k").await;
    told(1, "1 account has refused its credential").await;
    form.assert_accepts("l").await;
    told(2, "1 run has failed").await;
    let again = chat.received()[1].json()["text"].to_string();
    assert!(!again.contains("refused"), "told once: {again}");
    let accounts = world.order("account list --workspace Test");
    let mut all = accounts.as_array().unwrap().iter();
    assert!(all.any(|one| one["name"] == "crm" && one["is_refused"] == true));
    let fresh = letterbox_tests::command_file("fresh", "another-token");
    let rotated = format!("account rotate crm --bearer-file {fresh}");
    assert_eq!(world.order(rotated)["is_refused"], false);
    form.assert_accepts("m").await;
    told(3, "refused its credential").await;
}

/// A question that nobody has answered in time is told, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_expires_is_told() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let scene = Scene::new(&peer).await;
    let (world, form) = (&scene.world, &scene.form);
    scene.ask().await;
    for sooner in [
        "UPDATE approvals SET expires_at = now() - interval '1 second'",
        "UPDATE active_runs SET due_at = clock_timestamp()",
    ] {
        world.change(sooner).await;
    }
    world.await_state("denied", 1).await;
    world.change("UPDATE runs SET state = 'failed'").await;
    scene.await_mails(2).await;
    let told = &scene.mail.taken()[1].text;
    assert_tells(told, &["1 question has got no answer in time"]);
    // A letter without a failure names no failed run.
    world.submit_until(form, "l", "waiting_approval", 1).await;
    scene.await_mails(3).await;
    assert_hides(&scene.mail.taken()[2].text, &["/runs/"]);
}

/// A webhook that loses events is told, once a day; not for what a stranger sends to one that has
/// never been used, and with no word of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_loses_events_is_told() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let scene = Scene::new(&peer).await;
    let (world, form) = (&scene.world, &scene.form);
    world.order("workspace settings Test --notify-by-email on");
    let [gateway, _] = &scene.processes;
    let webhook = world.webhook_in(gateway, form.workspace).await;
    let large = "x".repeat(65_537);
    assert_eq!(webhook.send(large).await.status, 413);
    world.await_rows("webhook_refusals", 1).await;
    world.assert_rows("news", 0).await;
    assert_eq!(webhook.send("CANARY {").await.status, 400);
    scene.await_mails(1).await;
    assert_eq!(webhook.send("CANARY [").await.status, 400);
    world.await_rows("webhook_refusals", 3).await;
    scene.await_quiet().await;
    let [mail] = &scene.mail.taken()[..] else {
        panic!("one letter")
    };
    assert_tells(&mail.text, &[DESK, "1 webhook loses events"]);
    assert_hides(&mail.text, &["CANARY"]);
    let status = world.order("status");
    assert_eq!(status["deaf"][0]["reason"], "not_json");
    assert_hides(&status.to_string(), &["CANARY"]);
    let [_, worker] = &scene.processes;
    let is_counted = async || worker.metric("letterbox_deaf_webhooks").await == 1.0;
    eventually("the metric tells it", is_counted).await;
}

/// A link that ends because its owner may not run any more is told; one that somebody ends is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_nobody_has_ended_is_told() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let scene = Scene::new(&peer).await;
    let (world, form) = (&scene.world, &scene.form);
    world.order("workspace settings Test --notify-by-email on");
    let boss = world.member(form.workspace, "boss", MemberRole::Owner);
    world.person(boss.await).await;
    world.relink(form).await;
    world.assert_rows("news", 0).await; // the former link was ended
    world.set_owner_role(form, MemberRole::Viewer).await;
    scene.await_mails(1).await;
    scene.await_quiet().await;
    let taken = scene.mail.taken();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].to, "boss@example.com");
    assert!(taken[0].text.contains("ended, because"), "{taken:?}");
}

/// Whom an owner makes a member is told so, once; nobody else is told of anything by that letter.
#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_comes_by_e_mail() {
    let (world, mail) = (World::new().await, MailServer::start().await);
    let offers = [("LETTERBOX_SIGN_IN_BY_EMAIL", "true")];
    let desk = Desk::start_with(&world, &offers).await;
    let workspace = world.workspace("Bakery").await;
    let owner = world.member(workspace, "ada", MemberRole::Owner).await;
    let owner = desk.visitor(&world, owner).await;
    let workspace = workspace.to_string();
    let invite = async |email: &str| {
        let given = [
            ("workspace", workspace.as_str()),
            ("email", email),
            ("role", "viewer"),
        ];
        let invited = owner.order("/people", &given).await;
        owner
            .page(invited.headers()["location"].to_str().unwrap())
            .await
    };
    // No worker could send it.
    assert_tells(&invite("eve@example.com").await, &["Nothing was sent"]);
    world.assert_rows("letters", 0).await;
    let people = format!("/people?workspace={workspace}");
    assert_tells(&owner.page(&people).await, &["sends no e-mail now"]);
    let settings = [
        ("LETTERBOX_SMTP_URL", mail.url.as_str()),
        ("LETTERBOX_SMTP_FROM", "letterbox@example.com"),
        ("LETTERBOX_DESK_URL", &desk.url),
    ];
    let _worker = world.worker_with(&settings).await;
    let is_there = "SELECT count(*) FROM processes WHERE program = 'worker'";
    world.await_count("a worker", is_there, 1).await;
    assert_tells(&invite("bob@example.com").await, &["an e-mail on its way"]);
    assert_hides(&owner.page(&people).await, &["sends no e-mail now"]);
    eventually("a mail", async || mail.taken().len() == 1).await;
    let taken = mail.taken();
    assert_eq!(taken[0].to, "bob@example.com");
    assert_tells(&taken[0].text, &["Bakery", "made you a member", &desk.url]);
    assert_tells(&invite("bob@example.com").await, &["told them so before"]);
    world.assert_rows("letters", 1).await;
    // Not without end.
    for number in 0..20 {
        let told = invite(&format!("n{number}@example.com")).await;
        assert_eq!(told.contains("on its way"), number < 19, "{number}");
    }
    world.assert_rows("letters", 20).await;
    // Only owners invite.
    let bob = desk.visitor(&world, "bob@example.com").await;
    let given = [
        ("workspace", workspace.as_str()),
        ("email", "x@example.com"),
        ("role", "viewer"),
    ];
    assert!(
        bob.order("/people", &given)
            .await
            .status()
            .is_client_error()
    );
    world.assert_rows("letters", 20).await;
}

/// Whoever asks for a link sees the same page, whether the address is known; only who is known
/// gets one, and not without end.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_to_sign_in_comes_by_e_mail() {
    let (world, mail) = (World::new().await, MailServer::start().await);
    let offers = [("LETTERBOX_SIGN_IN_BY_EMAIL", "true")];
    let desk = Desk::start_with(&world, &offers).await;
    let settings = [
        ("LETTERBOX_SMTP_URL", mail.url.as_str()),
        ("LETTERBOX_SMTP_FROM", "letterbox@example.com"),
        ("LETTERBOX_DESK_URL", &desk.url),
    ];
    let _worker = world.worker_with(&settings).await;
    world.order("user create --email Ada@example.com --name Ada");
    let mut ada = Visitor::new(&desk.url);
    ada.assert_shows("/sign-in", "Your e-mail address").await;
    let asked = ada.send("/sign-in/link", &[("email", "nobody@example.com")]);
    ada.keep(&asked.await);
    let ask = async |address: &str| {
        let page = page_of(ada.send("/sign-in/link", &[("email", address)]).await, 200).await;
        world.await_rows("sign_in_requests", 0).await;
        page
    };
    let known = ask("ada@example.com ").await;
    assert_eq!(ask("nobody@example.com").await, known);
    assert_eq!(ask("not an address").await, known);
    eventually("a mail", async || mail.taken().len() == 1).await;
    for _ in 0..5 {
        assert_eq!(ask("ADA@example.com").await, known);
    }
    world.assert_rows("sign_in_links", 3).await; // not without end
    // A client that asks for everybody keeps nobody else waiting.
    let flood = "BEGIN;
        SELECT ask_sign_in_link(n || '@example.com', ('2001:db8::' || n)::inet, sha256('b'))
            FROM generate_series(1, 99) n;
        SELECT ask_sign_in_link('ada@example.com', '192.0.2.7', sha256('b'))";
    world.change(flood).await;
    world.assert_rows("sign_in_requests", 11).await;
    world.change("ROLLBACK").await;
    eventually("all mails", async || mail.taken().len() == 3).await;
    let mails = mail.taken();
    for mail in &mails {
        assert_eq!(mail.to, "Ada@example.com");
    }
    let token = mails[0].token();
    // Another browser than the one that has asked must know for whom.
    let mut other = Visitor::new(&desk.url);
    let elsewhere = other.page(&format!("/sign-in?token={token}")).await;
    assert_tells(&elsewhere, &["in another browser"]);
    assert_hides(&elsewhere, &["Ada@"]);
    let here = ada.page(&format!("/sign-in?token={token}")).await;
    assert_tells(&here, &["<button>Sign in as Ada@example.com</button>"]);
    for (given, told) in [
        ("", "in another browser"),
        ("eve@example.com", "not sent to eve@"),
    ] {
        let form = [("token", token.as_str()), ("email", given)];
        let refused = other.send("/sign-in", &form).await;
        assert!(!refused.headers().contains_key("set-cookie"), "{given}");
        assert!(refused.text().await.unwrap().contains(told), "{given}");
    }
    let form = [("token", token.as_str()), ("email", " ada@EXAMPLE.com")];
    other.keep(&other.send("/sign-in", &form).await);
    other.assert_shows("/", "Nothing waits for you").await;
    let token = mails[1].token();
    ada.keep(&ada.send("/sign-in", &[("token", &token)]).await);
    ada.assert_shows("/", "Nothing waits for you").await;
    let signed_in = "audit_log WHERE command = 'sign in'";
    assert!(world.rows(signed_in).await > 0);
}

/// Who looks at their notices may keep them locked: others are told all the same.
#[tokio::test(flavor = "multi_thread")]
async fn locked_letters_hold_up_their_own_people_only() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let scene = Scene::new(&peer).await;
    let (world, locked) = (&scene.world, &scene.form);
    let gateway = world.gateway().await;
    let other = world.sending_form(&gateway, &peer).await;
    world.person(other.owner).await;
    let (workspace, owner) = (locked.workspace, locked.owner);
    let waiting = format!(
        "INSERT INTO letters (workspace_id, user_id, told, made_at, due_at)
        SELECT '{workspace}', '{owner}', jsonb_build_object('question', 1), now() - age,
            now() + interval '1 day'
        FROM unnest(ARRAY['31 days', '2 days']::interval[]) AS age"
    );
    world.change(&waiting).await;
    let tell = "UPDATE workspaces SET notify_by_email = true";
    world.change(tell).await;
    let lock = world.session(Role::Login).await;
    let order = "BEGIN; SELECT FROM letters FOR UPDATE";
    lock.batch_execute(order).await.unwrap();
    let news = format!(
        "INSERT INTO news (workspace_id, kind, subject_id)
        SELECT unnest(ARRAY['{workspace}', '{}']::uuid[]), 'question', gen_random_uuid()",
        other.workspace
    );
    world.change(&news).await;
    let of_other = format!(
        "SELECT count(*) FROM letters WHERE workspace_id = '{}' AND sent_at IS NOT NULL",
        other.workspace
    );
    world.await_count("the other is told", &of_other, 1).await;
    drop(lock);
    let old = "SELECT count(*) FROM letters WHERE made_at < now() - interval '30 days'";
    world.await_count("the old letter is gone", old, 0).await;
}
