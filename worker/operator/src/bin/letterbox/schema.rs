//! `letterbox schema`: JSON Schemas, for editors and for checks elsewhere.

use clap::ValueEnum;
use letterbox_operator::{DEFINITION_SCHEMA, DOCUMENT_SCHEMA, POLICY_SCHEMA};

use crate::{Failure, Output, Result, output};

/// What has a schema.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Kind {
    /// The definition of a workflow
    Definition,
    /// The policy of a workspace
    Policy,
    /// The documents of 'letterbox apply'
    Document,
}

/// Prints a schema as it is.
pub(crate) fn print(kind: Kind) -> Result<Output> {
    let schema = match kind {
        Kind::Definition => DEFINITION_SCHEMA,
        Kind::Policy => POLICY_SCHEMA,
        Kind::Document => DOCUMENT_SCHEMA,
    };
    output::bytes(schema.as_bytes()).map_err(Failure::Output)?;
    Ok(Output::Nothing)
}
