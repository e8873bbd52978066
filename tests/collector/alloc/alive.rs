//! A program that reports with `alive!` which of its code runs.

use heapprof_alloc::HeapProf;

#[global_allocator]
static ALLOCATOR: HeapProf = HeapProf::system();

fn main() {
    for _ in 0..3 {
        heapprof_alloc::alive!("orders.cancel");
    }
}
