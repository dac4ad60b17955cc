//! A server of access tokens that end soon, so that some are renewed in every trial.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use letterbox_tests::{Received, Reply};
use serde_json::json;

/// Where tokens are given.
pub const PATH: &str = "/token";
/// How long one is good; half of it later the next one is got.
const LASTS: Duration = Duration::from_secs(12);

/// The ends of the tokens that were given, each at its number.
#[derive(Default)]
pub struct Tokens(Mutex<Vec<Instant>>);

impl Tokens {
    pub fn give(&self) -> Reply {
        let mut ends = self.0.lock().unwrap();
        let token = format!("token-{}", ends.len());
        ends.push(Instant::now() + LASTS);
        let answer = json!({"access_token": token, "token_type": "bearer",
            "expires_in": LASTS.as_secs()});
        Reply::With(200, Vec::new(), answer.to_string())
    }

    /// Whether a request shows one that is still good.
    pub fn take(&self, request: &Received) -> bool {
        let shown = request.header("authorization").unwrap_or_default();
        let number = shown.strip_prefix("Bearer token-");
        let Some(number) = number.and_then(|number| number.parse::<usize>().ok()) else {
            return false;
        };
        let ends = self.0.lock().unwrap();
        ends.get(number).is_some_and(|end| *end > Instant::now())
    }
}
