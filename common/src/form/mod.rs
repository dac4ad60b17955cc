//! Forms: their definition and the token of their link. Deploying, validating and serving a form
//! all start here.

mod definition;
mod token;

pub use definition::{Field, FieldType, Form};
pub use token::{FormToken, TokenHash};
