//! The answers of a run that later actions may use: a little of them in hand, the rest known by its
//! length.

use std::{collections::HashMap, sync::Arc};

/// How many bytes of answers a worker has in hand of one run.
pub(super) const MAX_HELD: usize = 256 << 10;

/// The answers of a run that later actions may use, by action.
#[derive(Default)]
pub(super) struct Answers {
    pub(super) known: HashMap<String, KeptAnswer>,
    held: usize,
}

pub(super) struct KeptAnswer {
    pub(super) status: Option<u16>,
    pub(super) length: usize,
    /// `None` if only the database has it.
    pub(super) body: Option<Arc<[u8]>>,
}

impl Answers {
    /// Adds the answer of an action: what came, or how many bytes of it the database has.
    pub(super) fn add(
        &mut self,
        action: String,
        status: Option<u16>,
        body: Option<Vec<u8>>,
        stored: usize,
    ) {
        let length = body.as_ref().map_or(stored, Vec::len);
        let is_held = body.is_some() && self.held + length <= MAX_HELD || length == 0;
        let body = is_held.then(|| body.unwrap_or_default().into());
        self.held += if is_held { length } else { 0 };
        let kept = KeptAnswer {
            status,
            length,
            body,
        };
        self.known.insert(action, kept);
    }
}
