//! `condition`: chooses one of two branches by the values of the run.

use serde_json::{Map, Value};

use super::{ActionKind, Parse};
use crate::{
    diagnostics::Diagnostics,
    taint::Steering,
    template::{Condition, MAX_LENGTH},
};

pub(super) const KIND: ActionKind = ActionKind {
    name: "condition",
    steering: Some(Steering::Condition),
    members: &["if"],
    parse: Parse::Choose(parse),
};

fn parse(diagnostics: &mut Diagnostics, members: &Map<String, Value>, path: &str) -> Condition {
    Condition::new(diagnostics.text(members, path, "if", MAX_LENGTH))
}
