//! Demangles linker names from standard input, one on each line, as heapprof shows them.
//! `bench/names.py` compares the output with that of c++filt.

use std::io::{BufRead, BufWriter, Write, stdin, stdout};

fn main() -> std::io::Result<()> {
    let mut output = BufWriter::new(stdout().lock());
    for line in stdin().lock().lines() {
        let line = line?;
        let name = heapprof_symbolize::demangle(&line);
        writeln!(output, "{}", name.unwrap_or(line))?;
    }
    output.flush()
}
