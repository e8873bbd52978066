//! Sets how libheapprof.so is linked.

fn main() {
    // Exit handlers, a key's destructor and threads lead into the library: it must stay mapped when
    // code that opened it closes it again.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // A program that is linked with one copy and gets another one preloaded must use one of them,
    // not two that record.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libheapprof.so");
    println!("cargo::rerun-if-changed=build.rs");
}
