//! Contract, section 3: rate limits. Time is moved in the database, never waited for.

use std::time::Instant;

use futures_util::future::join_all;
use letterbox_database::Role;
use letterbox_tests::{Answer, Form, Proxy, World, eventually};
use serde_json::json;

fn assert_limited(answer: &Answer) -> u64 {
    answer.assert_refused(429, "rate_limited");
    assert!(answer.body.contains("Rate limit exceeded"));
    let seconds = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");
    seconds
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_allows_twenty_requests_over_all_gateways() {
    let world = World::new().await;
    let gateways = [world.gateway().await, world.gateway().await];
    let form = world.form(&gateways[0]).await;
    let other = world.form(&gateways[0]).await;
    let asking = (0..50).map(|n| {
        let form = form.at(&gateways[n % 2]);
        async move {
            match n % 4 {
                0 | 1 => form.read().await,
                _ => form.submit("k", &letterbox_tests::payload()).await,
            }
        }
    });
    let answers = join_all(asking).await;
    let (passed, refused): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| answer.status == 200);
    assert_eq!(passed.len(), 20);
    for refused in refused {
        assert!(assert_limited(refused) >= 50);
    }
    other.assert_lives().await;
    // Its owner can see how many had to wait.
    eventually("they are counted", async || {
        let waited = "SELECT sum(times)::bigint FROM form_link_waits";
        let waited: Option<i64> = world.value(waited).await;
        waited == Some(30)
    })
    .await;

    // Refused requests have not counted: as many as have become old may pass, and not one more.
    let aged = "
        UPDATE rate_limits SET hits = (
            SELECT array_agg(
                hit - CASE WHEN n <= 5 THEN interval '61 seconds' ELSE '0' END ORDER BY n)
                FROM unnest(hits) WITH ORDINALITY AS h (hit, n)) WHERE cardinality(hits) = 20";
    assert_eq!(world.database.execute(aged, &[]).await.unwrap(), 1);
    let fresh = world.gateway().await;
    let form = form.at(&fresh);
    for _ in 0..5 {
        form.assert_lives().await;
    }
    assert_limited(&form.read().await);
}

#[tokio::test]
async fn a_client_is_allowed_sixty_requests_of_any_kind() {
    let world = World::new().await;
    let gateways = [world.gateway().await, world.gateway().await];
    let forms = join_all((0..4).map(|_| world.form(&gateways[0]))).await;
    let from = |client: &'static str, n: usize| forms[n % 3].at(&gateways[n % 2]).from(client);
    let dead = forms[0].with_token(&"x".repeat(40));
    for n in 0..50 {
        from("198.51.100.7", n).assert_lives().await;
    }
    for n in 50..60 {
        let dead = dead.at(&gateways[n % 2]).from("198.51.100.7");
        assert_eq!(dead.read().await.status, 404);
    }
    for gateway in &gateways {
        let spelled = [
            "198.51.100.7",
            "::ffff:198.51.100.7",
            "198.51.100.7:80",
            "1.1.1.1, 198.51.100.7",
        ];
        for client in spelled {
            assert_limited(&forms[3].at(gateway).from(client).read().await);
            assert_limited(&dead.at(gateway).from(client).submit("k", &json!({})).await);
        }
    }
    forms[3].from("198.51.100.8").assert_lives().await;

    // A client has a whole /64 of IPv6.
    for n in 0..60_usize {
        let client = format!("2001:db8:1:2::{n:x}");
        assert_eq!(dead.from(&client).read().await.status, 404);
    }
    assert_limited(&dead.from("2001:db8:1:2:ffff::1").read().await);
    assert_eq!(dead.from("2001:db8:1:3::1").read().await.status, 404);
}

/// What a token's limit refuses does not count against the client's.
#[tokio::test]
async fn a_refused_request_counts_nowhere() {
    let (world, gateway) = World::with_gateway().await;
    let (form, other) = (world.form(&gateway).await, world.form(&gateway).await);
    for _ in 0..20 {
        form.assert_lives().await;
    }
    let (client, other) = (form.from("198.51.100.20"), other.from("198.51.100.20"));
    for n in 0..70 {
        let answer = if n % 2 == 0 {
            client.read().await
        } else {
            client.submit("k", &json!({})).await
        };
        assert_limited(&answer);
    }
    // At once, too: what is under way may not take the place of what passes.
    for answer in join_all((0..70).map(|_| client.read())).await {
        assert_limited(&answer);
    }
    other.assert_lives().await;
    let counted = "SELECT cardinality(hits)::bigint FROM rate_limits WHERE key = '\\x63c6336414'";
    world.assert_count(counted, 1).await;
    let dead = other.with_token(&"x".repeat(40));
    for _ in 0..59 {
        assert_eq!(dead.read().await.status, 404);
    }
    assert_limited(&dead.read().await);
}

/// A flood on an exhausted token asks for no count, and neither does one from an exhausted client.
#[tokio::test]
async fn a_flood_that_is_refused_is_not_counted_in_the_database() {
    let (world, gateway) = World::with_gateway().await;
    let (form, other) = (world.form(&gateway).await, world.form(&gateway).await);
    for _ in 0..20 {
        form.assert_lives().await;
    }
    let dead = form.with_token(&"x".repeat(40)).from("198.51.100.40");
    for _ in 0..60 {
        assert_eq!(dead.read().await.status, 404);
    }
    assert_limited(&form.read().await);
    assert_limited(&dead.read().await);
    let asked = gateway.calls("admit").await;
    for _ in 0..100 {
        assert_limited(&dead.read().await);
    }
    assert_eq!(gateway.calls("admit").await, asked);
    // A dead link is 404, exhausted or not: the token is looked up, its hits are left alone.
    let hits = "SELECT md5(string_agg(concat(xmin, ' ', xmax, key, hits), '' ORDER BY key))
                FROM rate_limits";
    let rows: String = world.value(hits).await;
    for _ in 0..100 {
        assert_limited(&form.from("198.51.100.41").read().await);
    }
    assert!(gateway.calls("admit").await > asked);
    let after: String = world.value(hits).await;
    assert_eq!(rows, after, "neither locked nor written");
    let paused = "UPDATE workflows SET state = 'paused' WHERE live_release_id =
        (SELECT release_id FROM live_form_links WHERE token_sha256 = sha256($1::text::bytea))";
    let paused = world.database.execute(paused, &[&form.token]).await;
    assert_eq!(paused.unwrap(), 1);
    assert_eq!(form.from("198.51.100.42").read().await.status, 404);
    other.from("198.51.100.41").assert_lives().await;
}

#[tokio::test]
async fn an_untrusted_proxy_is_itself_the_client() {
    let world = World::new().await;
    let gateway = world
        .gateway_with(&[("LETTERBOX_TRUSTED_PROXIES", "10.0.0.0/8")])
        .await;
    let form = world.form(&gateway).await.with_token(&"x".repeat(40));
    for _ in 0..60 {
        assert_eq!(form.read().await.status, 404); // each says that it comes from elsewhere
    }
    assert_limited(&form.read().await);

    // A trusted proxy that says what can't be read is taken for the client.
    let gateway = world.gateway().await;
    let form = form.at(&gateway);
    assert_limited(&form.from("198.51.100.9, unknown").read().await);
    assert_eq!(form.from("198.51.100.9").read().await.status, 404);
}

#[tokio::test]
async fn retry_after_is_true_to_the_second() {
    let (world, first) = World::with_gateway().await;
    let form = world.form(&first).await;
    form.assert_lives().await;
    for (age, expected) in [(0.1, 60), (50.1, 10), (55.1, 5)] {
        // One that has not refused yet, and so must ask.
        let fresh = world.gateway().await;
        let hits = format!(
            "UPDATE rate_limits
             SET hits = array_fill(clock_timestamp() - interval '{age} seconds', ARRAY[20])
             WHERE key = '\\x74'::bytea || sha256('{}')",
            form.token
        );
        let began = Instant::now();
        assert_eq!(world.database.execute(&hits, &[]).await.unwrap(), 1);
        let told = assert_limited(&form.at(&fresh).read().await);
        // Exact, unless this machine has paused between the two.
        let least = (60.0 - age - began.elapsed().as_secs_f64()).ceil() as u64;
        assert!((least..=expected).contains(&told), "{age}: {told} {least}");
    }
    let gateway = world.gateway().await;
    let aged = "UPDATE rate_limits
        SET hits = array_fill(clock_timestamp() - interval '60.1 seconds', ARRAY[20])";
    world.change(aged).await;
    form.at(&gateway).assert_lives().await;
}

/// A gateway that has refused waits until the time is over, and then lets through.
#[tokio::test]
async fn an_exhausted_limit_becomes_free_again() {
    let (world, _gateway, form) = World::with_form().await;
    form.assert_lives().await;
    let nearly = "UPDATE rate_limits
        SET hits = array_fill(clock_timestamp() - interval '55 seconds', ARRAY[20])
                  WHERE substring(key FROM 1 FOR 1) = 't'";
    world.change(nearly).await;
    assert!(assert_limited(&form.read().await) <= 5);
    eventually("free again", async || form.read().await.status == 200).await;
}

#[tokio::test]
async fn requests_that_cannot_be_counted_are_refused() {
    let world = World::new().await;
    let database = Proxy::before(&world.database_url).await;
    let gateway = world.gateway_with(&[("DATABASE_URL", &database.url)]).await;
    let form = world.form(&gateway).await;
    form.assert_lives().await;
    database.stall();
    for answer in [
        form.read().await,
        form.submit("k", &letterbox_tests::payload()).await,
    ] {
        answer.assert_refused(503, "temporarily_unavailable");
        assert_eq!(answer.header("retry-after"), Some("5"));
    }
    database.pass();
    eventually("back", async || form.read().await.status == 200).await;
    form.assert_accepts("k").await;
}

/// A call that waits for a subject holds none that comes after it: another call that has the first
/// one can go on to the second.
#[tokio::test]
async fn subjects_are_locked_in_their_order() {
    let world = World::new().await;
    let waiting = world.session(Role::Gateway).await;
    let holding = world.session(Role::Gateway).await;
    let batch = async |sql: &str| holding.batch_execute(sql).await.unwrap();
    batch("INSERT INTO rate_limits VALUES ('a', '{}')").await;
    batch("BEGIN; SELECT FROM rate_limits FOR UPDATE").await;
    let ask = "SELECT FROM count_some_requests('{a,b}', '{1,1}', '{1}', '{2}')";
    let waiting = tokio::spawn(async move { waiting.batch_execute(ask).await });
    eventually("it waits", async || world.locks_out().await).await;
    batch("INSERT INTO rate_limits VALUES ('b', '{}'); COMMIT").await;
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn only_stale_rows_are_swept() {
    let (world, gateway) = World::with_gateway().await;
    let form: Form = world.form(&gateway).await;
    form.from("198.51.100.1").assert_lives().await;
    let rows = "INSERT INTO rate_limits
        SELECT sha256(n::text::bytea), ARRAY[clock_timestamp() - interval '61 seconds']
                FROM generate_series(1, 12000) AS n";
    world.change(rows).await;
    let change = "INSERT INTO rate_limits VALUES ('never', '{}')";
    world.change(change).await;
    let client = world.session(Role::Gateway).await;
    let sweep = crate::states::of_gateway("sweep_rate_limits").sql;
    for swept in [10_000, 2_001, 0] {
        let sweeping = client.execute(sweep, &[&10_000_i64]).await;
        assert_eq!(sweeping.unwrap(), swept);
    }
    world.assert_rows("rate_limits", 2).await; // the client's and the token's
}
