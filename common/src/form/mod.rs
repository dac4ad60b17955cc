//! Forms: their definition, the token of their link, and by what submitted values are found.
//! Deploying, validating and serving a form all start here.

mod definition;
mod lookup;
mod token;

pub use definition::{Field, FieldType, Form};
pub use lookup::{MAX_LOOKUP_TEXT, lookup_ids, meant_ids};
pub use token::{FormToken, TokenHash};
