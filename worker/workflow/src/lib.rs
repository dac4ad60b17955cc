//! The language of workflows: definitions, actions, templates, and the policies that decide about
//! actions.
//!
//! Pure: nothing here does I/O or waits. [`Definition::check`] validates a definition and reports
//! every mistake; [`release::Release::load`] loads a deployed one, which the worker executes.

pub mod account;
pub mod actions;
mod definition;
mod diagnostics;
mod json;
mod policy;
pub mod preview;
pub mod rehearsal;
pub mod release;
mod schemas;
mod taint;
mod template;
mod trail;

pub use definition::Definition;
pub use diagnostics::{Diagnostics, Problem};
pub use policy::{ActionFacts, ApproveBy, Decision, Policy, Ruling};
pub use schemas::{DEFINITION_SCHEMA, POLICY_SCHEMA};
pub use taint::{Steered, Steering, Taint, Untrusted};
pub use template::{
    Condition, LANGUAGE, Labels, References, RenderError, Renderer, SHORT_VALUE, TemplateContext,
};
pub use trail::Trail;
