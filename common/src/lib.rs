//! What Letterbox's processes must agree on: names, forms and protocols that two of them share, and
//! the supervised connections to the servers that all of them need.

pub mod broker;
pub mod database;
pub mod form;
pub mod ids;
pub mod members;
pub mod process;
pub mod sealing;
pub mod webhook;
