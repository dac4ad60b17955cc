//! The statement that admits all requests of one moment.

pub(super) mod definitions;
pub(super) mod sweep;

use std::{collections::BTreeMap, time::Duration};

use letterbox_common::{form::TokenHash, ids::ReleaseId};
use letterbox_database::{Database, DatabaseError, FromRow, Row, RowError, statements};

use self::definitions::Definitions;
use super::{
    live_form::{LiveForm, LiveRelease},
    subject::Subject,
};
use letterbox_common::batcher::LookUp;
use letterbox_common::process::client_address::ClientAddress;

statements! {
    /// For every request, in order: the release of its live form, and when the limits that refuse
    /// it would let it pass. Only an open token counts; client and token are places of keys in $1.
    /// Rows are placed side by side instead of joined, because the gateway's sessions have no hash
    /// joins.
    fn admit(
        keys: &[Vec<u8>], limits: &[i32], clients: &[Option<i32>], tokens: &[Option<i32>],
        tokens_sha256: &[Option<&[u8]>], closed_too: &[bool],
    ) -> Vec<Admitted> = "
WITH asked AS MATERIALIZED (
    SELECT asked.ordinal, asked.client, asked.token, coalesce(l.is_open, false) AS is_open,
           l.workspace_id, l.workflow_id, l.release_id
    FROM unnest($3::int[], $4::int[], $5::bytea[], $6::bool[])
         WITH ORDINALITY AS asked (client, token, token_sha256, closed_too, ordinal)
    LEFT JOIN live_links l
        ON l.token_sha256 = asked.token_sha256 AND (l.is_open OR asked.closed_too)
)
SELECT is_open, workspace, workflow, release, client_next_in, token_next_in
FROM ROWS FROM (
    unnest(ARRAY(SELECT is_open FROM asked ORDER BY ordinal),
           ARRAY(SELECT workspace_id FROM asked ORDER BY ordinal),
           ARRAY(SELECT workflow_id FROM asked ORDER BY ordinal),
           ARRAY(SELECT release_id FROM asked ORDER BY ordinal)),
    count_requests($1::bytea[], $2::int[],
        ARRAY(SELECT client FROM asked ORDER BY ordinal),
        ARRAY(SELECT CASE WHEN is_open THEN token END FROM asked ORDER BY ordinal))
) AS admitted (is_open, workspace, workflow, release, client_next_in, token_next_in)";
}

/// The question of one request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Admittance {
    /// Find the form and count.
    Count {
        client: ClientAddress,
        token: Option<TokenHash>,
        /// Find the form even if it is closed.
        closed_too: bool,
    },
    /// Only say whether the token is open.
    Find { token: Option<TokenHash> },
}

impl Admittance {
    fn token(&self) -> Option<&TokenHash> {
        match self {
            Self::Count { token, .. } | Self::Find { token } => token.as_ref(),
        }
    }

    fn closed_too(self) -> bool {
        match self {
            Self::Count { closed_too, .. } => closed_too,
            Self::Find { .. } => false,
        }
    }

    /// The subjects that it may count against: its client and its token.
    fn subjects(self) -> [Option<Subject>; 2] {
        match self {
            Self::Count { client, token, .. } => {
                [Some(Subject::Client(client)), token.map(Subject::Token)]
            }
            Self::Find { .. } => [None, None],
        }
    }
}

/// The row of one request, which has counted if neither limit refuses it.
#[derive(FromRow)]
struct Admitted {
    is_open: bool,
    #[row(from = release)]
    release: Option<LiveRelease>,
    #[row(with = next_in)]
    client_next_in: Option<Duration>,
    #[row(with = next_in)]
    token_next_in: Option<Duration>,
}

/// The answer to one request, which has counted if neither limit refuses it.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) is_open: bool,
    /// The form of a live token, if the request counts.
    pub(super) form: Option<LiveForm>,
    /// When the limit of the client would let it pass, if it does not now.
    pub(super) client_next_in: Option<Duration>,
    /// When the limit of the token would let it pass, if it does not now.
    pub(super) token_next_in: Option<Duration>,
}

/// Admits requests.
pub(super) struct Requests {
    database: Database,
    definitions: Definitions,
}

impl Requests {
    pub(super) fn new(database: Database) -> Self {
        Self {
            database,
            definitions: Definitions::default(),
        }
    }

    /// The answers to requests, with the definitions of their forms. Where one must be read and
    /// that fails, the requests have counted.
    async fn answers(
        &self,
        requests: &[Admittance],
        admitted: Vec<Admitted>,
    ) -> Result<Vec<Answer>, DatabaseError> {
        let releases = requests.iter().zip(&admitted).filter_map(|(request, row)| {
            let is_counted = matches!(request, Admittance::Count { .. });
            let (token, release) = request.token().zip(row.release)?;
            is_counted.then_some((release, &token.as_bytes()[..]))
        });
        let definitions = self.definitions.find(&self.database, releases).await?;
        let answer = |row: Admitted| {
            let form = row.release.and_then(|release| {
                let definition = definitions.get(&release)?.clone();
                Some(LiveForm {
                    release,
                    definition,
                })
            });
            Answer {
                is_open: row.is_open,
                form,
                client_next_in: row.client_next_in,
                token_next_in: row.token_next_in,
            }
        };
        Ok(admitted.into_iter().map(answer).collect())
    }
}

impl LookUp for Requests {
    type Item = Admittance;
    type Output = Answer;

    async fn look_up(&self, requests: Vec<Admittance>) -> Option<Vec<Answer>> {
        // Sorted, so that two batches can't deadlock.
        let subjects = requests.iter().flat_map(|request| request.subjects());
        let limits = subjects.flatten().map(|one| (one.key(), one.limit()));
        let limits: BTreeMap<Vec<u8>, i32> = limits.collect();
        let (keys, limits): (Vec<_>, Vec<_>) = limits.into_iter().unzip();
        let place = |subject: Subject| {
            let found = keys.binary_search(&subject.key());
            found.ok().map(|index| index as i32 + 1)
        };
        let places = requests.iter().map(|request| {
            let [client, token] = request.subjects();
            (client.and_then(place), token.and_then(place))
        });
        let (clients, tokens): (Vec<_>, Vec<_>) = places.unzip();
        let hashes = requests.iter().map(Admittance::token);
        let hashes = hashes.map(|token| token.map(|token| &token.as_bytes()[..]));
        let hashes: Vec<Option<&[u8]>> = hashes.collect();
        let closed_too = requests.iter().map(|request| request.closed_too());
        let closed_too: Vec<bool> = closed_too.collect();
        let database = &self.database;
        let admitted = admit(
            database,
            &keys,
            &limits,
            &clients,
            &tokens,
            &hashes,
            &closed_too,
        );
        self.answers(&requests, admitted.await.ok()?).await.ok()
    }
}

fn release(row: &Row) -> Result<Option<LiveRelease>, RowError> {
    let release: Option<ReleaseId> = row.try_get("release")?;
    release.map(|_| LiveRelease::from_row(row)).transpose()
}

fn next_in(seconds: Option<f64>) -> Option<Duration> {
    // Negative only if the server's clock was set back meanwhile.
    seconds.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default())
}
