//! Raises the required work of a form while many proofs of it are refused.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use letterbox_common::{cache::Cache, form::TokenHash};
use parking_lot::Mutex;

const WINDOW: Duration = Duration::from_secs(60);
/// The refusals in a window that add the first bit. Each further bit takes twice as many more.
const FIRST: u32 = 64;
/// Maximum additional bits: 64 times the work.
const MOST: u32 = 6;

/// Forms whose refusals are counted: without a valid challenge of a form nobody adds one.
const MAX_FORMS: usize = 10_000;

/// Counts the refusals of each form.
pub(super) struct Pressures(Cache<TokenHash, Arc<Pressure>>);

impl Default for Pressures {
    fn default() -> Self {
        Self(Cache::new(MAX_FORMS, Duration::MAX))
    }
}

impl Pressures {
    /// Notes a refusal.
    pub(super) fn note(&self, token: TokenHash) {
        self.0.get_or_make(&token, Arc::default).note();
    }

    /// The number of additional bits.
    pub(super) fn bits(&self, token: TokenHash) -> u32 {
        self.0.get(&token).map_or(0, |pressure| pressure.bits())
    }
}

/// Counts refusals in windows of a minute.
#[derive(Debug, Default)]
struct Pressure(Mutex<Option<Window>>);

#[derive(Debug, Clone, Copy)]
struct Window {
    began: Instant,
    refused: u32,
    /// Refusals in the window before.
    before: u32,
}

impl Pressure {
    fn note(&self) {
        self.look(|window| window.refused = window.refused.saturating_add(1));
    }

    fn bits(&self) -> u32 {
        let refused = self.look(|window| window.refused.max(window.before));
        (refused / FIRST + 1).ilog2().min(MOST)
    }

    fn look<T>(&self, look: impl FnOnce(&mut Window) -> T) -> T {
        let now = Instant::now();
        let mut kept = self.0.lock();
        let fresh = |before| Window {
            began: now,
            refused: 0,
            before,
        };
        let window = kept.get_or_insert_with(|| fresh(0));
        let passed = now.duration_since(window.began);
        if passed >= WINDOW {
            let is_next = passed < 2 * WINDOW;
            *window = fresh(if is_next { window.refused } else { 0 });
        }
        look(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_doubles_with_what_is_refused() {
        let pressure = Pressure::default();
        let mut noted = 0;
        for (refused, bits) in [
            (0, 0),
            (63, 0),
            (64, 1),
            (191, 1),
            (192, 2),
            (100_000, MOST),
        ] {
            while noted < refused {
                pressure.note();
                noted += 1;
            }
            assert_eq!(pressure.bits(), bits, "{refused}");
        }
    }
}
