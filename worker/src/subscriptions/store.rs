//! The statements over subscriptions.

use jiff::Timestamp;
use letterbox_common::{
    ids::{DeliveryId, WebhookId, WorkspaceId},
    states::SignalKind,
    webhook::KeptHeaders,
};
use letterbox_database::{FromRow, Row, RowError, statements};
use uuid::Uuid;

statements! {
    /// Leases subscriptions that have something to publish, and that nobody has, for $2 seconds:
    /// those to URLs, of which a workspace has eight at most, or to queues, also by whether they
    /// fail. What was set further ahead than it can be is from before the clock was set back.
    pub(super) fn take_subscriptions(
        most: i64, seconds: f64, to_urls: bool, is_failing: Option<bool>,
    ) -> Vec<Leased> = "
WITH wanted AS (
    SELECT s.workspace_id, s.subscription_id, row_number() OVER (
        PARTITION BY s.workspace_id ORDER BY s.due_at, s.target) + (
        SELECT count(*) FROM subscriptions o WHERE o.workspace_id = s.workspace_id
            AND o.url IS NOT NULL AND NOT lease_is_over(o.leased_until, $2)) AS number
    FROM subscriptions s
    WHERE s.paused_at IS NULL
      AND (s.url IS NOT NULL) = $3
      AND ($4::boolean IS NULL OR (s.failing_since IS NOT NULL) = $4)
      AND lease_is_over(s.due_at, 30)
      AND (s.leased_until IS NULL OR lease_is_over(s.leased_until, $2))
      AND EXISTS (SELECT FROM signals g WHERE g.workspace_id = s.workspace_id
          AND g.position >= s.position AND (g.position, g.signal_id) > (s.position, s.signal_id)
          AND g.position < (SELECT settled_position()))
), due AS (
    SELECT s.workspace_id, s.subscription_id
    FROM wanted w JOIN subscriptions s USING (workspace_id, subscription_id)
    WHERE (w.number <= 8 OR NOT $3)
      AND (s.leased_until IS NULL OR lease_is_over(s.leased_until, $2))
    ORDER BY s.due_at, s.target LIMIT $1 FOR NO KEY UPDATE OF s SKIP LOCKED
)
UPDATE subscriptions s
SET leased_by = gen_random_uuid(),
    leased_until = clock_timestamp() + $2::float8 * interval '1 second'
FROM due WHERE s.workspace_id = due.workspace_id AND s.subscription_id = due.subscription_id
RETURNING s.workspace_id AS workspace, s.subscription_id AS id, s.target,
    coalesce(s.secret_sealed, '') AS secret_sealed,
    CASE WHEN s.failing_since IS NULL THEN s.in_flight ELSE 1 END AS in_flight, s.position,
    s.signal_id AS signal, s.leased_by AS by, s.conditions";

    /// The next signals of a subscription; nothing if another worker has the lease.
    pub(super) fn read_subscription(
        workspace: WorkspaceId, subscription: Uuid, worker: Uuid, most: i32, most_bytes: i64,
    ) -> Vec<NextSubscription> = "
SELECT position, signal_id AS signal, is_wanted, webhook_id AS webhook, webhook_name, kind,
    generic_reason, entity, source_tool, amount_value, amount_currency, event_id, event_type,
    request_id, received_at, stored_at, headers, body
FROM read_subscription($1, $2, $3, $4, $5)";

    /// Moves a cursor from where it was read, and keeps the lease for $9 seconds; no row if another
    /// worker has moved it, or an operator.
    pub(super) fn move_cursor(
        workspace: WorkspaceId, subscription: Uuid, worker: Uuid, from_position: i64,
        from_signal: DeliveryId, to_position: i64, to_signal: DeliveryId, published: i64,
        seconds: f64,
    ) -> u64 = "
UPDATE subscriptions SET position = $6, signal_id = $7, published = published + $8,
    leased_until = clock_timestamp() + $9::float8 * interval '1 second', failure = NULL,
    failing_since = NULL, received = NULL
WHERE workspace_id = $1 AND subscription_id = $2 AND leased_by = $3
  AND (position, signal_id) = ($4, $5)";

    /// Gives a subscription back. What failed is tried again after a second, or a quarter of the
    /// time for which it has failed, at most 30 seconds.
    pub(super) fn release_subscription(
        workspace: WorkspaceId, subscription: Uuid, worker: Uuid, failure: Option<&str>,
        received: Option<&str>,
    ) = "
UPDATE subscriptions SET leased_by = NULL, leased_until = NULL, failure = $4, received = $5,
    failing_since = CASE WHEN $4::text IS NOT NULL
        THEN coalesce(failing_since, clock_timestamp()) END,
    due_at = clock_timestamp() + CASE WHEN $4::text IS NULL THEN interval '0'
        ELSE greatest(interval '1 second', least(interval '30 seconds',
            (clock_timestamp() - coalesce(failing_since, clock_timestamp())) / 4)) END
WHERE workspace_id = $1 AND subscription_id = $2 AND leased_by = $3";
}

/// The place in a workspace's signals up to which a subscription has looked at them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub(super) struct SubscriptionCursor {
    pub(super) position: i64,
    pub(super) signal: DeliveryId,
}

/// A subscription that this worker has leased.
#[derive(Debug, Clone, FromRow)]
pub(super) struct Leased {
    pub(super) workspace: WorkspaceId,
    pub(super) id: Uuid,
    /// The queue or the URL.
    pub(super) target: String,
    /// With what is signed that is posted to a URL.
    pub(super) secret_sealed: Vec<u8>,
    /// Only signals whose bodies these hold for.
    pub(super) conditions: Vec<String>,
    /// Requests that may wait for their answers: one while it fails.
    pub(super) in_flight: i32,
    #[row(flatten)]
    pub(super) cursor: SubscriptionCursor,
    /// The lease: another one, also of this worker, has another.
    pub(super) by: Uuid,
}

/// The next signal of a subscription.
#[derive(FromRow)]
pub(super) struct NextSubscription {
    /// Where it is.
    #[row(flatten)]
    pub(super) cursor: SubscriptionCursor,
    /// What is to be published; `None` if the subscription does not want it.
    #[row(from = wanted)]
    pub(super) wanted: Option<WantedSignals>,
}

/// A signal that is to be published.
#[derive(FromRow)]
pub(super) struct WantedSignals {
    pub(super) webhook: WebhookId,
    pub(super) webhook_name: String,
    pub(super) kind: SignalKind,
    pub(super) received_at: Timestamp,
    pub(super) stored_at: Timestamp,
    /// What else is known of it, by column.
    #[row(from = fields)]
    pub(super) fields: Vec<(&'static str, String)>,
    #[row(with = KeptHeaders::parse)]
    pub(super) headers: KeptHeaders,
    /// `None` if it was forgotten.
    pub(super) body: Option<Vec<u8>>,
}

/// Columns of a signal that may be null.
const OPTIONAL: [&str; 8] = [
    "generic_reason",
    "entity",
    "source_tool",
    "amount_value",
    "amount_currency",
    "event_id",
    "event_type",
    "request_id",
];

fn wanted(row: &Row) -> Result<Option<WantedSignals>, RowError> {
    let is_wanted: bool = row.try_get("is_wanted")?;
    is_wanted.then(|| WantedSignals::from_row(row)).transpose()
}

fn fields(row: &Row) -> Result<Vec<(&'static str, String)>, RowError> {
    let mut fields = Vec::new();
    for column in OPTIONAL {
        let value: Option<String> = row.try_get(column)?;
        fields.extend(value.map(|value| (column, value)));
    }
    Ok(fields)
}
