//! The spill: entries that wait in the database, each as a message of its own, because a gateway
//! could not publish it or because it could not be stored when it came out of its queue.
//!
//! Whoever stores an entry takes its message out of the spill in the same transaction, so from here
//! it is stored once, however many workers have it in hand. It may come through a queue as well:
//! then it is a repeat, as if the queue had delivered it twice.

mod store;

pub(crate) use self::store::{
    Aside, STATEMENTS, Spilled, give_back, leave, put, settle_spilled, spilling_workspaces,
    take_spilled, that_fit,
};
