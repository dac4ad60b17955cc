//! `condition`: chooses one of two branches by the values of the run.

use super::{ActionKind, Step};
use crate::{
    taint::Steering,
    template::{Condition, MAX_LENGTH},
};

pub(super) const KIND: ActionKind = ActionKind {
    name: "condition",
    steering: Some(Steering::Condition),
    sends: false,
    parse: |fields| {
        let condition = Condition::new(fields.text("if", MAX_LENGTH));
        Some(Step::Choose(condition))
    },
};
