//! Forty thousand forms with their links, made by a few statements: one workflow is made as usual,
//! the others after it.

use letterbox_common::form::FormToken;
use letterbox_tests::Form;
use uuid::Uuid;

use crate::{bench::Bench, form_requests::Tokens};

/// So many that none is used more often in a measurement than it may be.
const LINKS: usize = 40_000;

const WORKFLOWS: &str = "
INSERT INTO workflows (workspace_id, workflow_id, owner_id, name)
SELECT w.workspace_id, made.id, w.owner_id, w.name
FROM workflows w, unnest($2::uuid[]) AS made (id) WHERE w.workflow_id = $1";

const RELEASES: &str = "
INSERT INTO releases (workspace_id, workflow_id, release_id, number, form, actions)
SELECT r.workspace_id, made.id, gen_random_uuid(), r.number, r.form, r.actions
FROM releases r, unnest($2::uuid[]) AS made (id) WHERE r.workflow_id = $1";

const DEPLOYED: &str = "
UPDATE workflows w SET state = 'deployed', live_release_id = r.release_id
FROM releases r WHERE r.workspace_id = w.workspace_id AND r.workflow_id = w.workflow_id
AND w.workflow_id = ANY ($1::uuid[])";

const FORM_LINKS: &str = "
INSERT INTO form_links (workspace_id, form_link_id, workflow_id, release_id, token_sha256)
SELECT w.workspace_id, gen_random_uuid(), w.workflow_id, w.live_release_id, made.sha256
FROM unnest($1::uuid[], $2::bytea[]) AS made (id, sha256)
JOIN workflows w ON w.workflow_id = made.id";

/// Makes them; their tokens.
pub async fn create(bench: &Bench) -> Tokens {
    let form: Form = bench.world.form(&bench.gateway).await;
    let template = Uuid::from_bytes(*form.workflow.as_bytes());
    let workflows: Vec<Uuid> = (0..LINKS).map(|_| Uuid::new_v4()).collect();
    let tokens = (0..LINKS).map(|_| FormToken::generate().expect("random bytes"));
    let tokens: Vec<FormToken> = tokens.collect();
    let hashes: Vec<Vec<u8>> = tokens
        .iter()
        .map(|token| token.hash().as_bytes().to_vec())
        .collect();
    let database = &bench.world.database;
    for statement in [WORKFLOWS, RELEASES] {
        let made = database.execute(statement, &[&template, &workflows]).await;
        assert_eq!(made.expect(statement), LINKS as u64);
    }
    database
        .execute(DEPLOYED, &[&workflows])
        .await
        .expect(DEPLOYED);
    let made = database.execute(FORM_LINKS, &[&workflows, &hashes]).await;
    assert_eq!(made.expect(FORM_LINKS), LINKS as u64);
    bench
        .sql("VACUUM (ANALYZE) workflows, releases, form_links")
        .await;
    tokens
        .iter()
        .map(|token| token.expose().to_owned())
        .collect()
}
