//! The language of workflows: what an owner deploys, what its actions are, how templates are filled
//! in, and what a policy says of an action.
//!
//! Pure: nothing here reads, sends or waits. [`Definition::check`] takes what an owner deploys and
//! names every mistake; [`release::load`] takes what was deployed; the worker executes it.

pub mod actions;
mod definition;
mod diagnostics;
mod json;
mod policy;
pub mod preview;
pub mod release;
mod taint;
mod template;
mod trail;

pub use definition::Definition;
pub use diagnostics::Diagnostics;
pub use policy::{ActionFacts, Decision, Policy, Ruling};
pub use taint::{Steered, Steering, Taint, Untrusted};
pub use template::{Condition, References, RenderError, Renderer, TemplateContext};
pub use trail::Trail;
