//! The harness: a world of its own for every test — a database, a virtual host, real gateway and
//! worker processes — on servers that `deploy/test` has started once.

mod agent;
mod authority;
mod broker;
mod command_line;
mod desk;
mod form;
mod gate;
mod languages;
mod mail;
pub mod marks;
mod peer;
mod process;
mod proxy;
mod rows;
mod scene;
mod schema;
mod sender;
mod servers;
mod tenants;
mod world;

pub use agent::{agent, model_answer, results_in, scripted};
pub use authority::Authority;
pub use broker::{delivery_to, submission_to};
pub use command_line::{assert_hides, assert_holds, assert_tells, command_file, one_of, table};
pub use desk::{APP, Desk, Visitor, form_token_of, page_of, sign_in_link};
pub use form::{DEFINITION, Form, definition_with, payload};
pub use languages::{node, python};
pub use mail::{Mail, MailServer, MailTls};
pub use peer::{Peer, Received, Reply};
pub use process::{Process, binary, former};
pub use proxy::{Front, Proxy};
pub use rows::value;
pub use scene::{CHAT, EXPIRE, Scene, asking, call, call_with, post, script};
pub use schema::{problems_of_definition, problems_of_documents, problems_of_policy};
pub use sender::{Answer, Webhook, http_client, post_with, raw, sign};
pub use servers::{PrivateBroker, PrivateDatabase, PrivateServer, Servers, folder};
pub use tenants::CREDENTIAL;
pub use world::{World, eventually};
