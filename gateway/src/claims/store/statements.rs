//! The statements behind claims, alike for each kind of door. Each serves a whole batch.

use letterbox_common::{
    form::TokenHash,
    ids::{DeliveryId, RunId, WebhookId},
};
use letterbox_database::{Statement, statements};

use crate::claims::key::Door;

statements! {
    /// Claims bodies that have no row yet, opens the batches that they go into, and returns the ids
    /// of the new claims and of what is remembered: none for keys that have a row or whose door is
    /// gone. Also closes batches that are known to be confirmed.
    CLAIM_DELIVERIES = claim_new_deliveries "
SELECT id, is_new FROM claim_deliveries($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";

    /// The same for idempotency keys.
    CLAIM_SUBMISSIONS = claim_new_submissions "
SELECT id, is_new FROM claim_submissions($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

    /// The state of keys whose doors are open; the others are not returned. A statement of its own,
    /// because only a new one sees a row that was committed while claiming waited for it. A claim
    /// whose batch has no row is recorded, and so is a key that is remembered. One that has been
    /// open for three seconds, and is not free within two, is stalled.
    FIND_DELIVERIES = find_deliveries "
SELECT wanted.ordinal, d.delivery_id AS id,
       CASE WHEN d.delivery_id IS NULL THEN r.key_high IS NOT NULL ELSE
           b.batch_id IS NULL OR d.batch_id = ANY ($5) END AS settled,
       coalesce(lease_is_over(b.lease_until, $6), false) AS lease_is_over,
       coalesce(b.lease_until BETWEEN clock_timestamp() + interval '2 seconds'
           AND clock_timestamp() + ($6 - 3) * interval '1 second', false) AS is_stalled
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $7::bigint[])
     WITH ORDINALITY AS wanted (workspace_id, key_high, key_low, door, version, ordinal)
JOIN webhooks w ON w.workspace_id = wanted.workspace_id AND w.webhook_id = wanted.door
    AND (wanted.version IS NULL OR wanted.version = w.version)
    AND w.deleted_at IS NULL AND (w.ends_at IS NULL OR w.ends_at > statement_timestamp())
LEFT JOIN webhook_deliveries d ON d.workspace_id = wanted.workspace_id
    AND d.key_high = wanted.key_high AND d.key_low = wanted.key_low
LEFT JOIN open_batches b ON b.batch_id = d.batch_id
LEFT JOIN (SELECT DISTINCT remembered($1, $2) AS key_high) r ON r.key_high = wanted.key_high";

    /// The same for idempotency keys. A closed link still finds the keys that it has.
    FIND_SUBMISSIONS = find_submissions "
SELECT wanted.ordinal, s.submission_id AS id,
       CASE WHEN s.submission_id IS NULL THEN r.key_high IS NOT NULL ELSE
           b.batch_id IS NULL OR s.batch_id = ANY ($5) END AS settled,
       coalesce(lease_is_over(b.lease_until, $6), false) AS lease_is_over,
       coalesce(b.lease_until BETWEEN clock_timestamp() + interval '2 seconds'
           AND clock_timestamp() + ($6 - 3) * interval '1 second', false) AS is_stalled
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bytea[])
     WITH ORDINALITY AS wanted (workspace_id, key_high, key_low, door, ordinal)
JOIN live_links l ON l.token_sha256 = wanted.door AND l.workspace_id = wanted.workspace_id
LEFT JOIN form_submissions s ON s.workspace_id = wanted.workspace_id
    AND s.key_high = wanted.key_high AND s.key_low = wanted.key_low
LEFT JOIN open_batches b ON b.batch_id = s.batch_id
LEFT JOIN (SELECT DISTINCT remembered($1, $2) AS key_high) r ON r.key_high = wanted.key_high
WHERE s.submission_id IS NOT NULL OR r.key_high IS NOT NULL OR l.is_open";

    /// Moves claims whose lease is over into new batches, unless another gateway is doing it.
    TAKE_OVER_DELIVERIES = take_over_deliveries "
SELECT id FROM take_over_deliveries($1, $2, $3, $4, $5, $6, $7, $8) AS id";

    /// The same for idempotency keys.
    TAKE_OVER_SUBMISSIONS = take_over_submissions "
SELECT id FROM take_over_submissions($1, $2, $3, $4, $5, $6, $7) AS id";

    /// Counts repeats of a sender's id whose body differs from the first.
    COUNT_CHANGED_DELIVERIES = count_changed_deliveries "
SELECT changed FROM count_changed_deliveries($1, $2, $3, $4, $5, $6) AS changed";

    /// The same for idempotency keys, and notes it beside each.
    COUNT_CHANGED_REPEATS = count_changed_repeats "
SELECT changed FROM count_changed_repeats($1, $2, $3, $4, $5, $6) AS changed";
}

impl Door for WebhookId {
    type Id = DeliveryId;
    type Value<'a> = Self;

    const CLAIM: &'static Statement = &CLAIM_DELIVERIES;
    const FIND: &'static Statement = &FIND_DELIVERIES;
    const TAKE_OVER: &'static Statement = &TAKE_OVER_DELIVERIES;
    const COUNT_CHANGED: &'static Statement = &COUNT_CHANGED_DELIVERIES;
    const HAVE_VERSIONS: bool = true;

    fn generate_id() -> DeliveryId {
        DeliveryId::generate()
    }
    fn value(&self) -> Self {
        *self
    }
}

impl Door for TokenHash {
    type Id = RunId;
    type Value<'a> = &'a [u8];

    const CLAIM: &'static Statement = &CLAIM_SUBMISSIONS;
    const FIND: &'static Statement = &FIND_SUBMISSIONS;
    const TAKE_OVER: &'static Statement = &TAKE_OVER_SUBMISSIONS;
    const COUNT_CHANGED: &'static Statement = &COUNT_CHANGED_REPEATS;
    const HAVE_VERSIONS: bool = false;

    fn generate_id() -> RunId {
        RunId::generate()
    }
    fn value(&self) -> &[u8] {
        self.as_bytes()
    }
}
