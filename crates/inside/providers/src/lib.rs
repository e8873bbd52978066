//! The providers of interpreters' stacks: what finds the interpreters of a program, and reads their
//! frames and values for the engine.
//!
//! * `provider.rs` has the trait that each interpreter implements.
//! * [`interpreters`] has the list of them. It scans the loaded objects, and pauses the providers
//!   while the program unloads a library.
//! * `runtime_state.rs` is the state machine that they share: from "not found" over "read" to
//!   "given up", and back when the library is gone.
//! * [`perl`] and [`python`] are the two that there are. What they know of their interpreters'
//!   structures lies in crates of its own, which are used outside of programs, too.
//!
//! CONTRIBUTING.md says how a new one is added. Nothing here hooks a function: heapprof-preload
//! calls this crate at the start, when code is loaded, and at `dlclose`.

pub mod interpreters;
mod kernel_memory;
pub mod loaded_objects;
pub mod perl;
mod provider;
pub mod python;
mod runtime_state;
mod text_out;
