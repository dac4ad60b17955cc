//! The JSON Schemas of what people write, for editors and for programs.

/// The schema of definitions.
pub const DEFINITION_SCHEMA: &str = include_str!("../schemas/definition.json");
/// The schema of policies.
pub const POLICY_SCHEMA: &str = include_str!("../schemas/policy.json");
