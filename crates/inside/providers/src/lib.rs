//! Providers of interpreters' stacks: they find the interpreters in a program, and read their
//! frames and values for the engine.
//!
//! * `provider.rs` has the trait that each interpreter implements.
//! * [`interpreters`] scans the loaded objects for the interpreters that this file lists, and
//!   pauses the providers while the program unloads a library.
//! * `runtime_state.rs` is the state machine of a provider: from "not found" through "read" to
//!   "given up", and back when the library is unloaded.
//! * Each other module is the provider of one interpreter. A crate in `crates/interpreters`
//!   describes its structures, because heapprof reads them from outside of programs, too.
//!
//! CONTRIBUTING.md describes how to add a provider. This crate hooks no functions: heapprof-preload
//! calls it at the start, when code is loaded, and at `dlclose`.

pub mod interpreters;
mod kernel_memory;
pub mod loaded_objects;
pub mod perl;
mod provider;
pub mod python;
mod runtime_state;
mod text_out;

interpreters::interpreters! { perl::PERL python::PYTHON }
