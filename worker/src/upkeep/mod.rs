//! What workers do for everybody, again and again: each a file, with its statements.

pub(crate) mod retention;
pub(crate) mod waiting;

use letterbox_database::Statement;

/// The statements of all of them.
pub(crate) static STATEMENTS: &[&[&Statement]] = &[retention::STATEMENTS, waiting::STATEMENTS];
