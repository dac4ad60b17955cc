//! How events are told from each other, wherever they come out.

use std::collections::BTreeSet;

use letterbox_common::ids::DeliveryId;

/// The names of the events of one run: `prove-`, eight random letters or digits, `-`, a number.
#[derive(Debug, Clone)]
pub(super) struct Numbers {
    prefix: String,
}

impl Numbers {
    pub(super) fn new() -> Self {
        let id = DeliveryId::generate().to_string();
        // Its end is random.
        Self {
            prefix: format!("prove-{}-", &id[id.len() - 8..]),
        }
    }

    pub(super) fn name(&self, number: u64) -> String {
        format!("{}{number}", self.prefix)
    }

    /// The numbers of the events that a text names, each once.
    pub(super) fn found_in(&self, text: &str) -> BTreeSet<u64> {
        let after = text.split(&self.prefix).skip(1);
        let numbers = after.filter_map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_digit());
            rest[..end.unwrap_or(rest.len())].parse().ok()
        });
        numbers.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_whatever_comes_out() {
        let numbers = Numbers::new();
        let seven = numbers.name(7);
        let twelve = numbers.name(12);
        let text = format!(r#"[{{"id":"{twelve}"}}, "{seven}x", "{seven}", "prove-other-3"]"#);
        assert_eq!(numbers.found_in(&text), BTreeSet::from([7, 12]));
    }
}
