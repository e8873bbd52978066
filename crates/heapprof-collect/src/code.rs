//! The program's code: which files are mapped, how to unwind from an address, what was unmapped
//! since.

pub(crate) mod cfi;
pub(crate) mod image;
pub(crate) mod mappings;
pub(crate) mod maps;
pub(crate) mod modules;
pub(crate) mod rule;
