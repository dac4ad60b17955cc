//! The fuzz targets. Each takes any bytes and asserts what must hold of what Letterbox makes of
//! them; a target that ends without a panic has found nothing. They need no server, and no two
//! calls depend on each other.

mod broker;
mod desk;
mod gateway;
mod grammar;
mod policy;
mod template;
mod webhook;
mod workflow;

/// Fails if what it holds of an input is not so.
type Target = fn(&[u8]);

/// Every target, by the name of its corpus in `tests/fuzz/corpus/`.
pub const TARGETS: [(&str, Target); 12] = [
    ("ai_answer", workflow::ai_answer),
    ("definition", workflow::definition),
    ("entries", broker::entries),
    ("http", gateway::http),
    ("id_token", desk::id_token),
    ("json", gateway::json),
    ("kept_headers", webhook::kept_headers),
    ("policy", policy::policy),
    ("properties", broker::properties),
    ("signature", webhook::signature),
    ("submission", gateway::submission),
    ("template", template::template),
];

/// The input as text, of those targets that read text.
fn text(input: &[u8]) -> Option<&str> {
    std::str::from_utf8(input).ok()
}
