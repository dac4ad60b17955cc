//! Forms: their definition, the look of their page, the token of their link, and the ids by which
//! submitted values are found. Deploying, validating and serving a form all start here.

mod address;
mod color;
mod definition;
mod lookup;
mod page;
mod token;

pub use address::ascii_address;
pub use color::{Color, NoColor};
pub use definition::{Field, FieldType, Form};
pub use lookup::{MAX_LOOKUP_TEXT, lookup_ids, meant_ids, personal_ids};
pub use page::{Locale, Page};
pub use token::{FormToken, TokenHash};
