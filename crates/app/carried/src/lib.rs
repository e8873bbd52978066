//! Files that heapprof carries inside its binary for the programs that it records:
//! `libheapprof.so`, its header, and the source of the Perl module Devel::HeapProf. The build
//! script builds the library with a nested cargo.
//!
//! [`preload`] unpacks files where programs can load them, and [`perl_module`] builds the module
//! for a perl.
#![forbid(unsafe_code)]

pub mod perl_module;
pub mod preload;
