//! How libheapprof.so is linked.

fn main() {
    // Exit handlers, a key's destructor and threads lead into it: whoever opens it and closes it
    // again must not unmap it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // A program that is linked with one copy and gets another one preloaded has one, not two that
    // record.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libheapprof.so");
    println!("cargo::rerun-if-changed=build.rs");
}
