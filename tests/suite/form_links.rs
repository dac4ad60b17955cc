//! Contract, section 3: the life of a form link. Each move is checked by the very next read and
//! submit.

use futures_util::future::join_all;
use letterbox_common::{form::FormToken, states::MemberRole};
use letterbox_operator::{Move, Operator};
use letterbox_tests::{DEFINITION, Form, World};

/// What an owner can order that ends a link.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    NewerLink,
    Deploy(Option<&'static str>),
    Move(Move),
    Remove,
    /// Sets the owner's role, and whether they are deactivated.
    Set(MemberRole, bool),
}

const ORDERS: [Order; 10] = [
    Order::NewerLink,
    Order::Deploy(None),
    Order::Deploy(Some(DEFINITION)),
    Order::Move(Move::Activate),
    Order::Move(Move::Pause),
    Order::Move(Move::Draft),
    Order::Move(Move::Delete),
    Order::Remove,
    Order::Set(MemberRole::Viewer, false),
    Order::Set(MemberRole::Owner, true),
];

impl Order {
    async fn run(self, world: &World, form: &Form) {
        let (workspace, workflow, owner) = (form.workspace, form.workflow, form.owner);
        let operator = world.operator().await;
        match self {
            Self::NewerLink => drop(world.relink(form).await),
            Self::Deploy(definition) => drop(operator.deploy(workflow, definition).await.unwrap()),
            Self::Move(to) => world.move_workflow(workflow, to).await,
            Self::Remove => world.remove_member(workspace, owner).await,
            Self::Set(role, is_deactivated) => {
                let setting = operator.set_member(workspace, owner, role, is_deactivated);
                setting.await.unwrap();
            }
        }
    }
}

/// Brings the workflow and its owner back to where a link is possible; false where that can't be.
async fn restore(world: &World, form: &Form) -> bool {
    world.set_owner_role(form, MemberRole::Owner).await;
    let operator = world.operator().await;
    operator.deploy(form.workflow, None).await.is_ok()
}

/// A gateway keeps what releases say: of each tenant its own, also where somebody has made one with
/// the id of another's.
#[tokio::test]
async fn a_form_is_that_of_its_own_release() {
    let (world, gateway, _worker) = World::with_both().await;
    let (form, other) = (world.form(&gateway).await, world.form(&gateway).await);
    let token = FormToken::generate().unwrap();
    let hash = hex::encode(token.hash().as_bytes());
    let (its, id) = (other.workflow, form.workflow);
    world
        .change(&format!(
            "INSERT INTO releases (workspace_id, workflow_id, release_id, number, form, actions)
            SELECT o.workspace_id, o.workflow_id, f.live_release_id, 99,
                '{{\"title\": \"Foreign\", \"fields\": []}}', '[]'
            FROM workflows o, workflows f WHERE o.workflow_id = '{its}' AND f.workflow_id = '{id}';
            UPDATE workflows o SET live_release_id = f.live_release_id FROM workflows f
            WHERE o.workflow_id = '{its}' AND f.workflow_id = '{id}';
            INSERT INTO form_links (workspace_id, form_link_id, workflow_id, release_id,
                token_sha256)
            SELECT workspace_id, gen_random_uuid(), workflow_id, live_release_id, '\\x{hash}'
            FROM workflows WHERE workflow_id = '{its}'"
        ))
        .await;
    let mut foreign = other.clone();
    foreign.token = token.expose().to_owned();
    for _ in 0..2 {
        assert!(foreign.read().await.body.contains("Foreign"));
        assert!(!form.read().await.body.contains("Foreign"));
    }
    form.assert_accepts("k").await;
}

#[tokio::test]
async fn every_command_ends_the_link_for_good() {
    let world = World::new().await;
    let gateways = [world.gateway().await, world.gateway().await];
    for order in ORDERS {
        let form = world.form(&gateways[0]).await;
        for gateway in &gateways {
            form.at(gateway).assert_lives().await;
        }
        order.run(&world, &form).await;
        for gateway in &gateways {
            form.at(gateway).assert_dead().await;
        }
        let restored = restore(&world, &form).await;
        assert_eq!(restored, order != Order::Move(Move::Delete), "{order:?}");
        form.assert_dead().await;
        if restored {
            let fresh = world.relink(&form).await;
            fresh.assert_lives().await;
            fresh.assert_accepts("k").await;
            form.assert_dead().await;
        }
    }
}

#[tokio::test]
async fn plain_sql_ends_the_link_too() {
    let (world, gateway) = World::with_gateway().await;
    let moves = [
        "UPDATE workflows SET state = 'paused'",
        "UPDATE workflows SET state = 'draft'",
        "UPDATE workflows SET state = 'deployed'",
        "UPDATE workflows SET state = 'paused'; UPDATE workflows SET state = 'deployed'",
        "UPDATE workflows SET live_release_id = live_release_id",
        "UPDATE members SET role = 'viewer'",
        "UPDATE members SET deactivated_at = now()",
        "UPDATE members SET role = 'viewer'; UPDATE members SET role = 'owner'",
        "DELETE FROM members",
        "UPDATE form_links SET ended_at = now() WHERE ended_at IS NULL",
        "DELETE FROM form_links",
        "UPDATE workflows SET state = 'deleted'",
    ];
    for change in moves {
        let form = world.form(&gateway).await;
        form.assert_lives().await;
        world.change(change).await;
        form.assert_dead().await;
        restore(&world, &form).await;
        form.assert_dead().await;
    }

    // A new owner, who may run.
    let (world, _gateway, form) = World::with_form().await;
    let other = world
        .member(form.workspace, "other", MemberRole::Runner)
        .await;
    let given = format!("UPDATE workflows SET owner_id = '{other}'");
    world.change(&given).await;
    form.assert_dead().await;
}

#[tokio::test]
async fn other_changes_leave_the_link_alone() {
    let (world, gateway, form) = World::with_form().await;
    let neighbour = world.form_in(&gateway, form.workspace, form.owner).await;
    world.set_owner_role(&form, MemberRole::Runner).await;
    world.set_allowance(form.workspace, Some(0)).await;
    world.change("UPDATE workflows SET name = 'Other'").await;
    world.move_workflow(neighbour.workflow, Move::Pause).await;
    let stranger = world.member(form.workspace, "s", MemberRole::Viewer).await;
    world.remove_member(form.workspace, stranger).await;
    form.assert_lives().await;
    neighbour.assert_dead().await;
}

/// What the database never lets happen, whoever asks.
#[tokio::test]
async fn the_database_refuses_what_would_revive_a_link() {
    let (world, _gateway, form) = World::with_form().await;
    world.redeploy(form.workflow).await;
    let again =
        "INSERT INTO form_links (workspace_id, form_link_id, workflow_id, release_id, token_sha256)
        SELECT l.workspace_id, gen_random_uuid(), l.workflow_id, w.live_release_id, ";
    let from = " FROM form_links l JOIN workflows w USING (workspace_id, workflow_id)";
    let refused = [
        "UPDATE form_links SET ended_at = NULL".to_owned(),
        "UPDATE form_links SET token_sha256 = sha256('x')".into(),
        format!("{again} l.token_sha256 {from}"),
        "UPDATE releases SET form = '{}'".into(),
        "TRUNCATE members".into(),
        "UPDATE workflows SET state = 'deleted'; UPDATE workflows SET state = 'deployed'".into(),
        format!("UPDATE workflows SET state = 'paused'; {again} sha256('new') {from}"),
        format!("UPDATE members SET role = 'viewer'; {again} sha256('new') {from}"),
        format!(
            "{again} sha256('new') {from};
            UPDATE form_links SET ended_at = NULL WHERE token_sha256 <> sha256('new')"
        ),
    ];
    for statement in refused {
        let refused = world.database.batch_execute(&statement).await;
        let error = refused.expect_err(&statement);
        let code = error.code().unwrap().code();
        assert!(["23001", "23505"].contains(&code), "{statement}: {code}");
        form.assert_dead().await;
    }
}

/// Links are made while the workflow and its owner move: whatever the order, none lives that should
/// not.
#[tokio::test(flavor = "multi_thread")]
async fn no_link_outlives_a_concurrent_move() {
    let (world, _gateway, form) = World::with_form().await;
    let workflow = form.workflow;
    let live = "SELECT count(*) FROM form_links WHERE ended_at IS NULL";
    for round in 0..12 {
        let makers = (0..4).map(|_| {
            let target = world.database_url.parse().unwrap();
            tokio::spawn(async move {
                let operator = Operator::connect(&target).await.unwrap();
                let made = operator.create_form_link(workflow, Default::default());
                // May be refused, must not fail otherwise.
                if let Err(error) = made.await {
                    let told = error.to_string();
                    let reasons = ["not deployed", "may not run"];
                    assert!(reasons.iter().any(|one| told.contains(one)), "{told}");
                }
            })
        });
        let makers: Vec<_> = makers.collect();
        let moves = [
            Order::Move(Move::Pause),
            Order::Set(MemberRole::Viewer, false),
            Order::Remove,
        ];
        moves[round % 3].run(&world, &form).await;
        for maker in join_all(makers).await {
            maker.unwrap();
        }
        assert_eq!(world.count(live).await, 0, "round {round}");
        restore(&world, &form).await;
    }
}

#[tokio::test]
async fn tokens_are_stored_as_their_hash_only() {
    let (world, _gateway, form) = World::with_form().await;
    assert_eq!(form.token.len(), 64, "256 bits as hexadecimal digits");
    let holds = "SELECT count(*) FROM form_links WHERE token_sha256 = sha256($1)";
    let token = form.token.as_bytes();
    let found = world.database.query_one(holds, &[&token]).await.unwrap();
    assert_eq!(found.get::<_, i64>(0), 1);
    let tables =
        "SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public'";
    for table in world.column::<String>(tables).await {
        let holds = format!("{table} t WHERE t::text LIKE '%{}%'", form.token);
        world.assert_rows(&holds, 0).await;
    }
}
