//! Finds the stack of an allocation by unwinding, or by comparison with the thread's last stacks.

pub(crate) mod by_thread;
pub(crate) mod call_site;
pub(crate) mod capture;
pub(crate) mod end;
pub(crate) mod handlers;
pub(crate) mod merge;
pub(crate) mod own_stack;
pub(crate) mod pools;
pub(crate) mod provider;
pub(crate) mod provider_table;
pub(crate) mod recent_stacks;
pub(crate) mod script;
pub(crate) mod walk;
pub(crate) mod watched_blocks;
