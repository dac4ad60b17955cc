//! Names, states, forms and signatures that Letterbox's processes share, and the frame that each of
//! them runs in. `common/README.md` is the map of the project.

mod as_text;
pub mod batcher;
pub mod cache;
pub mod condition;
pub mod credential;
pub mod fail_point;
pub mod form;
pub mod grant;
pub mod ids;
pub mod json_object;
mod key_hash;
pub mod metrics;
pub mod process;
pub mod public_address;
mod random;
pub mod sealing;
mod secret;
pub mod states;
pub mod text_enum;
mod token;
pub mod webhook;

pub use key_hash::{KeyHash, delivery_sha256};
pub use random::RandomError;
pub use token::Token;
