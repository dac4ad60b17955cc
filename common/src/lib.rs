//! What Letterbox's processes must agree on: names, states, forms and signatures that two of them
//! share, and the frame that every process runs in. `common/README.md` is the map of the project.

pub mod form;
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
pub mod webhook;

pub use key_hash::KeyHash;
pub use random::RandomError;
