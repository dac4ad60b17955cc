//! The page of a public form: the documents with a form, or without one, and the files that they
//! load. Gateways serve it behind form links, and the desk shows it to the owners of drafts.

mod colors;
mod document;
mod files;

pub use document::{Document, Documents, Shown};
pub use files::AskedFile;
