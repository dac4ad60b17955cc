//! What a form is, for the one who deploys it, the one who checks a submission against it, and the
//! holder of its link.

mod definition;
mod token;

pub use definition::{Field, FieldType, Form};
pub use token::{FormToken, TokenHash};
