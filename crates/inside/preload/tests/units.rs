//! The unit tests of the library's modules. The library itself can't be linked into a test, because
//! it would take over the test's allocator. So this file compiles the modules that export none of
//! libc's names once more, with their tests.

#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::missing_safety_doc,
    clippy::disallowed_methods
)]

#[path = "../src/environment.rs"]
mod environment;
#[path = "../src/exec_check.rs"]
mod exec_check;
#[path = "../src/imports.rs"]
mod imports;
#[path = "../src/known_file.rs"]
mod known_file;
#[path = "../src/loader_objects.rs"]
mod loader_objects;
#[path = "../src/loader_release.rs"]
mod loader_release;
#[path = "../src/mark.rs"]
mod mark;
#[path = "../src/messages.rs"]
mod messages;
#[path = "../src/other_root.rs"]
mod other_root;
#[path = "../src/program_file.rs"]
mod program_file;
#[path = "../src/attach/slots.rs"]
mod slots;
