//! Transactions in plain SQL, at all isolation levels, in any order: a link that has ended never
//! lives again, and what is said to end links has ended them when it is committed.
//!
//! `LETTERBOX_TEST_INTERLEAVINGS` sets how many are tried. A failure names its seed, with which
//! `LETTERBOX_TEST_SEED` begins; who waits for whom, and for how long, is not in it.

use std::collections::{HashMap, HashSet, VecDeque};

use letterbox_common::{ids::UserId, states::MemberRole};
use letterbox_database::Role;
use letterbox_tests::World;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Error, SimpleQueryMessage};
use uuid::Uuid;

const INTERLEAVINGS: u64 = 50;
const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

/// A link that lives, and who owns its workflow.
type Alive = HashMap<String, (Uuid, Uuid)>;

/// What a statement ends, if it changes anything.
#[derive(Debug, Clone, Copy)]
enum Ends {
    Nothing,
    LinksOfWorkflow(Uuid),
    LinksOfOwner(Uuid),
}

#[derive(Debug, Clone)]
struct Statement {
    sql: String,
    ends: Ends,
}

/// The two users and two workflows that everything is about.
struct Scenery {
    users: [UserId; 2],
    workspace: Uuid,
    workflows: [Uuid; 2],
}

impl Scenery {
    /// One statement, or a few that belong together; most are about one user and one workflow.
    fn statements(&self, focus: (usize, usize), rng: &mut fastrand::Rng) -> Vec<Statement> {
        let of = |focus, rng: &mut fastrand::Rng| match rng.u32(..5) {
            0 => 1 - focus,
            _ => focus,
        };
        let user = Uuid::from_bytes(*self.users[of(focus.0, rng)].as_bytes());
        let workflow = self.workflows[of(focus.1, rng)];
        let (of_user, of_workflow) = (
            format!("WHERE user_id = '{user}'"),
            format!("WHERE workflow_id = '{workflow}'"),
        );
        let (members, workflows) = ("UPDATE members SET", "UPDATE workflows SET");
        let (owner, own) = (Ends::LinksOfOwner(user), Ends::LinksOfWorkflow(workflow));
        let made = Statement {
            sql: Self::link_made(workflow),
            ends: own,
        };
        let (sql, ends) = match rng.u32(..14) {
            0 => (format!("{members} role = 'viewer' {of_user}"), owner),
            1 => (format!("{members} deactivated_at = now() {of_user}"), owner),
            2 => (format!("DELETE FROM members {of_user}"), owner),
            3 | 4 => (self.right_given(user), Ends::Nothing),
            5 => (format!("{workflows} state = 'paused' {of_workflow}"), own),
            6 => (format!("{workflows} state = 'draft' {of_workflow}"), own),
            7 => (format!("{workflows} state = 'deployed' {of_workflow}"), own),
            8 => (
                format!("{workflows} live_release_id = live_release_id {of_workflow}"),
                own,
            ),
            9 => (
                format!("{workflows} owner_id = '{user}' {of_workflow} AND owner_id <> '{user}'"),
                own,
            ),
            10 => (
                format!(
                    "UPDATE form_links SET ended_at = now() {of_workflow} AND ended_at IS NULL"
                ),
                own,
            ),
            11 | 12 => {
                let sql = format!("{workflows} owner_id = '{user}' {of_workflow}");
                let ends = Ends::Nothing;
                return vec![Statement { sql, ends }, made];
            }
            _ => return vec![made],
        };
        vec![Statement { sql, ends }]
    }

    /// Gives a user the right to run, whatever has been taken.
    fn right_given(&self, user: Uuid) -> String {
        format!(
            "INSERT INTO members (workspace_id, user_id, role)
             VALUES ('{}', '{user}', 'editor')
             ON CONFLICT (workspace_id, user_id)
             DO UPDATE SET role = 'editor', deactivated_at = NULL",
            self.workspace
        )
    }

    fn link_made(workflow: Uuid) -> String {
        format!(
            "INSERT INTO form_links
                 (workspace_id, form_link_id, workflow_id, release_id, token_sha256)
             SELECT workspace_id, gen_random_uuid(), workflow_id, live_release_id,
                    sha256('{}') FROM workflows WHERE workflow_id = '{workflow}'",
            Uuid::new_v4()
        )
    }
}

/// The connection back, and how many rows were changed.
type Executed = (Client, Result<u64, Error>);

/// A transaction that is executed statement by statement.
struct Session {
    /// Not there while a statement waits for a lock.
    client: Option<Client>,
    pid: i32,
    running: Option<(Statement, JoinHandle<Executed>)>,
    script: VecDeque<Statement>,
    ended: Vec<Ends>,
}

impl Session {
    async fn open(world: &World) -> Self {
        let client = world.session(Role::Login).await;
        // Who waits in a circle is told soon.
        client
            .batch_execute("SET deadlock_timeout = '20ms'")
            .await
            .unwrap();
        let row = client.query_one("SELECT pg_backend_pid()", &[]).await;
        Self {
            pid: row.unwrap().get(0),
            client: Some(client),
            running: None,
            script: VecDeque::new(),
            ended: Vec::new(),
        }
    }

    fn begin(&mut self, scenery: &Scenery, focus: (usize, usize), rng: &mut fastrand::Rng) {
        let plain = |sql: String| Statement {
            sql,
            ends: Ends::Nothing,
        };
        let level = LEVELS[rng.usize(..3)];
        self.script = VecDeque::from([plain(format!("BEGIN ISOLATION LEVEL {level}"))]);
        if rng.u32(..4) > 0 {
            let look = "SELECT count(*) FROM form_links, members, workflows";
            self.script.push_back(plain(look.into()));
        }
        for _ in 0..rng.usize(1..=2) {
            self.script.extend(scenery.statements(focus, rng));
        }
        self.script.push_back(plain("COMMIT".into()));
        self.ended.clear();
    }

    /// Issues the next statement, or goes on with the one that waited; waits until it is done or
    /// waits for a lock. Gives what was ended, when that is committed.
    async fn step(&mut self, observer: &Client) -> Option<Vec<Ends>> {
        if self.running.is_none() {
            let (client, statement) = (self.client.take()?, self.script.pop_front()?);
            let sql = statement.sql.clone();
            let running = tokio::spawn(async move {
                let done = execute(&client, &sql).await;
                (client, done)
            });
            self.running = Some((statement, running));
        }
        let waits = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $1";
        while let Some((_, running)) = &self.running {
            if running.is_finished() {
                return self.finish().await;
            }
            let row = observer.query_one(waits, &[&self.pid]).await.unwrap();
            if row.get::<_, Option<bool>>(0) == Some(true) {
                return None;
            }
            tokio::task::yield_now().await;
        }
        None
    }

    fn is_blocked(&self) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|(_, running)| !running.is_finished())
    }

    fn is_over(&self) -> bool {
        self.running.is_none() && self.script.is_empty()
    }

    /// Takes in what a statement has done; gives what was ended, once it is committed.
    async fn finish(&mut self) -> Option<Vec<Ends>> {
        let (statement, running) = self.running.take().unwrap();
        let (client, done) = running.await.unwrap();
        let committed = match done {
            Ok(changed) => {
                if changed > 0 {
                    self.ended.push(statement.ends);
                }
                statement.sql == "COMMIT"
            }
            Err(_) => {
                client.batch_execute("ROLLBACK").await.unwrap();
                self.script.clear();
                false
            }
        };
        self.client = Some(client);
        committed.then(|| std::mem::take(&mut self.ended))
    }
}

/// How many rows a statement has changed.
async fn execute(client: &Client, sql: &str) -> Result<u64, Error> {
    let messages = client.simple_query(sql).await?;
    let changed = messages.iter().map(|message| match message {
        SimpleQueryMessage::CommandComplete(rows) => *rows,
        _ => 0,
    });
    Ok(changed.sum())
}

/// Everything that was seen so far.
struct Witness {
    client: Client,
    alive: Alive,
    dead: HashSet<String>,
    /// How many transactions were committed that should have ended something.
    committed: usize,
}

impl Witness {
    /// Looks which links live now; none may that was dead before.
    async fn look(&mut self, story: &str) {
        let live = "SELECT encode(l.token_sha256, 'hex'), l.workflow_id, w.owner_id
            FROM live_form_links l JOIN workflows w USING (workspace_id, workflow_id)";
        let rows = self.client.query(live, &[]).await.unwrap();
        let alive: Alive = rows
            .iter()
            .map(|row| (row.get(0), (row.get(1), row.get(2))))
            .collect();
        for token in alive.keys() {
            assert!(!self.dead.contains(token), "{story}: {token} lives again");
        }
        let ended = self
            .alive
            .keys()
            .filter(|token| !alive.contains_key(*token));
        self.dead.extend(ended.cloned());
        let workflows: HashSet<_> = alive.values().map(|(workflow, _)| workflow).collect();
        assert_eq!(workflows.len(), alive.len(), "{story}: two links of one");
        self.alive = alive;
    }

    /// Of what lived before and was ended, nothing lives.
    fn check(&mut self, before: &Alive, ended: &[Ends], story: &str) {
        let something = ended.iter().any(|ends| !matches!(ends, Ends::Nothing));
        self.committed += usize::from(something);
        for (token, (workflow, owner)) in before {
            let is_ended = ended.iter().any(|ends| match ends {
                Ends::Nothing => false,
                Ends::LinksOfWorkflow(ended) => ended == workflow,
                Ends::LinksOfOwner(ended) => ended == owner,
            });
            assert!(
                !is_ended || !self.alive.contains_key(token),
                "{story}: {token} outlives {ended:?}"
            );
        }
    }
}

/// One interleaving of two or three transactions.
async fn interleave(
    sessions: &mut [Session],
    scenery: &Scenery,
    observer: &Client,
    witness: &mut Witness,
    seed: u64,
) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let number = rng.usize(2..=sessions.len());
    let focus = (rng.usize(..2), rng.usize(..2));
    let sessions = &mut sessions[..number];
    sessions
        .iter_mut()
        .for_each(|session| session.begin(scenery, focus, &mut rng));
    let scripts: Vec<Vec<_>> = sessions
        .iter()
        .map(|session| session.script.iter().map(|one| one.sql.clone()).collect())
        .collect();
    let mut story = format!("seed {seed}, {scripts:#?}, in the order");
    loop {
        let ready: Vec<usize> = (0..number)
            .filter(|n| !sessions[*n].is_over() && !sessions[*n].is_blocked())
            .collect();
        let Some(next) = rng.choice(ready) else {
            if sessions.iter().all(Session::is_over) {
                return;
            }
            // All wait for each other, until one is told so.
            tokio::task::yield_now().await;
            continue;
        };
        story.push_str(&format!(" {next}"));
        let before = witness.alive.clone();
        let ended = sessions[next].step(observer).await;
        witness.look(&story).await;
        if let Some(ended) = ended {
            witness.check(&before, &ended, &story);
        }
    }
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|given| given.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_interleaving_revives_a_link() {
    let (world, gateway) = World::with_gateway().await;
    let operator = world.operator().await;
    let form = world.form(&gateway).await;
    let other = operator.create_user("b@example.com", "B").await.unwrap();
    world
        .set_role(form.workspace, other.user_id, MemberRole::Editor)
        .await;
    let second = world.form_in(&gateway, form.workspace, other.user_id).await;
    let scenery = Scenery {
        users: [form.owner, other.user_id],
        workspace: Uuid::from_bytes(*form.workspace.as_bytes()),
        workflows: [form.workflow, second.workflow].map(|id| Uuid::from_bytes(*id.as_bytes())),
    };
    let mut sessions = [
        Session::open(&world).await,
        Session::open(&world).await,
        Session::open(&world).await,
    ];
    let observer = world.session(Role::Login).await;
    let mut witness = Witness {
        client: world.session(Role::Login).await,
        alive: Alive::new(),
        dead: HashSet::new(),
        committed: 0,
    };
    let first = from_environment("LETTERBOX_TEST_SEED").unwrap_or_else(|| fastrand::u64(..));
    let number = from_environment("LETTERBOX_TEST_INTERLEAVINGS").unwrap_or(INTERLEAVINGS);
    for seed in (0..number).map(|n| first.wrapping_add(n)) {
        // Who gets the right back gets no link back. Then all have a link again.
        for user in scenery.users {
            let user = Uuid::from_bytes(*user.as_bytes());
            execute(&observer, &scenery.right_given(user))
                .await
                .unwrap();
            witness.look(&format!("before seed {seed}")).await;
        }
        for workflow in scenery.workflows {
            let deployed =
                format!("UPDATE workflows SET state = 'deployed' WHERE workflow_id = '{workflow}'");
            execute(&observer, &deployed).await.unwrap();
            witness.look(&format!("before seed {seed}")).await;
            execute(&observer, &Scenery::link_made(workflow))
                .await
                .unwrap();
        }
        witness.look(&format!("before seed {seed}")).await;
        assert_eq!(witness.alive.len(), 2, "before seed {seed}");
        interleave(&mut sessions, &scenery, &observer, &mut witness, seed).await;
    }
    let committed = witness.committed as u64;
    assert!(committed > number / 2, "{committed} of {number} and more");
}
