//! The books: which blocks are in use and what was counted for each stack; what an event does to
//! them.

pub(crate) mod access;
pub(crate) mod begin;
pub(crate) mod counted;
pub(crate) mod engine;
pub(crate) mod event;
pub(crate) mod live;
pub(crate) mod own_tables;
pub(crate) mod regions;
