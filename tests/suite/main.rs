//! The suite: one file a behaviour, all of it on real servers and real processes. Run it with
//! `deploy/test`.

mod approvals;
mod broker_confirms;
mod broker_outages;
mod browser;
mod closed_sets;
mod database_outages;
mod dead_letters;
mod delivery_once;
mod demo;
mod dependencies;
mod execution;
mod form_contract;
mod form_limits;
mod form_links;
mod form_page;
mod http_contract;
mod operator;
mod process_life;
mod runs;
mod schema;
mod signal_mapping;
mod source_tree;
mod submission_once;
mod tls;
mod webhook_contract;
