//! How long an operator looks for a run, among ten thousand and among a million: the newest, those
//! that failed, those that wait, one by what was submitted to it, and by the beginning of its id.

use std::time::Instant;

use letterbox_common::{ids::RunId, states::RunState};
use letterbox_operator::{Named, Operator, RunFilter};
use letterbox_tests::{Form, payload};
use serde_json::json;

use crate::{
    arguments::Section,
    bench::Bench,
    figures::{P50, Round},
};

pub const FEW: &str = "10 thousand";
pub const MANY: &str = "a million";
pub const QUESTIONS: [&str; 5] = [
    "the newest 100",
    "100 that failed",
    "those under way",
    "one by what was submitted",
    "one by the beginning of its id",
];

const SECTION: Section = Section::Finding;
const SIZES: [(&str, i32); 2] = [(FEW, 10_000), (MANY, 1_000_000)];
/// How often each question is asked.
const TIMES: usize = 31;

/// Of a hundred runs one has failed; ten of all are under way. Each has values of its own.
const FILL: &str = "
WITH filled AS (
INSERT INTO runs (workspace_id, run_id, workflow_id, release_id, run_as, state, failure, input,
    received_at, created_at, finished_at, found_by)
SELECT workspace_id, md5(n::text || 'id')::uuid, workflow_id, release_id, run_as,
    CASE WHEN n % 100 = 0 THEN 'failed' WHEN n <= 10 THEN 'waiting_approval' ELSE 'succeeded' END,
    CASE WHEN n % 100 = 0 THEN 'answered with status 500' END, input, received_at, created_at,
    CASE WHEN n % 100 = 0 OR n > 10 THEN clock_timestamp() END,
    ARRAY[md5(n::text || 'a')::uuid, md5((n % 1000)::text || 'b')::uuid, md5('c')::uuid]
FROM (SELECT * FROM runs ORDER BY run_id LIMIT 1) AS like_it, generate_series($1::int, $2) AS n
RETURNING workspace_id, run_id, finished_at)
INSERT INTO active_runs (workspace_id, run_id, due_at, state)
SELECT workspace_id, run_id, now() + interval '1 day', 'scheduled'
FROM filled WHERE finished_at IS NULL";

/// A question, asked among so many runs.
pub fn among(question: &str, runs: &str) -> String {
    format!("{question} of {runs} runs")
}

pub async fn run(bench: &Bench, round: &mut Round) {
    let form = bench.world.form(&bench.gateway).await;
    let mut worker = bench.worker().await;
    let mut values = payload();
    values["email"] = json!("somebody@example.com");
    let accepted = form.submit("one", &values).await;
    assert_eq!(accepted.status, 200);
    bench.world.await_runs(1).await;
    worker.kill().await;
    let operator = bench.world.operator().await;
    let id = bench.world.run_of(&form).await.row.run_id;
    let one = id.to_string();
    let mut filled = 1;
    for (name, size) in SIZES {
        let database = &bench.world.database;
        let added = database.execute(FILL, &[&filled, &size]).await;
        added.expect(FILL);
        filled = size + 1;
        bench.sql("VACUUM (ANALYZE) runs").await;
        let beginning: Named<RunId> = one[..13].parse().expect("the beginning of an id");
        let filters = filters(&form);
        for (place, question) in QUESTIONS.iter().enumerate() {
            let took = match filters.get(place) {
                Some(filter) => times(async || list(&operator, filter).await).await,
                None => {
                    times(async || assert_eq!(operator.id(&beginning).await.ok(), Some(id))).await
                }
            };
            round.of(SECTION, among(question, name)).add(P50, took);
        }
    }
    bench.start_over().await;
}

fn filters(form: &Form) -> [RunFilter; 4] {
    let all = || RunFilter::of(form.workspace);
    let states = |states: &[RunState]| RunFilter {
        states: states.to_vec(),
        ..all()
    };
    let email = ("email".to_owned(), "somebody@example.com".to_owned());
    [
        all(),
        states(&[RunState::Failed]),
        states(&[
            RunState::Queued,
            RunState::Running,
            RunState::WaitingApproval,
        ]),
        RunFilter {
            field: Some(email),
            ..all()
        },
    ]
}

async fn list(operator: &Operator, filter: &RunFilter) {
    let found = operator.runs(filter, None, 100).await.expect("a list");
    assert!(!found.is_empty(), "{filter:?}");
}

/// The median time that something takes, in milliseconds.
async fn times(mut work: impl AsyncFnMut()) -> f64 {
    let mut took = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        let began = Instant::now();
        work().await;
        took.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    took.sort_by(f64::total_cmp);
    took[TIMES / 2]
}
