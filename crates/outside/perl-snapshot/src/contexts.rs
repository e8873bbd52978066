//! Finds the values in a context. Perl has a context for each running sub, eval, loop and
//! substitution. The memory of contexts is reused, so only the fields of the context's present kind
//! are read.

use heapprof_perl::{ContextLayout, PerlVersion};

use crate::PerlAddress;
use crate::reader::PerlMemoryReader;

/// Flag in a sub's context: the sub has arguments.
const ARGUMENTS_FLAG: u8 = 0x20;
/// Number of the first perl series (5.24) in which all kinds of contexts have the order and the
/// fields that later series have, too.
const FIRST_UNIFORM_SERIES: u8 = 24;

/// Returns the offsets of a context's fields that may contain a value.
pub(crate) fn places(
    reader: &PerlMemoryReader<'_>,
    layout: &ContextLayout,
    version: PerlVersion,
    context: PerlAddress,
) -> Vec<u64> {
    let flags = reader.byte(context);
    let own = layout.own;
    let all = || (own..layout.size).step_by(8).collect();
    if version.version < FIRST_UNIFORM_SERIES {
        return all();
    }
    // In the order of kinds, loops come before subs, formats and evals behind them, then
    // substitutions.
    match i16::from(flags & layout.mask) - i16::from(layout.sub) {
        // The array of a loop, the ends of a range of texts, and the former value of the loop's
        // variable.
        -5 => vec![own + 0x08, own + 0x10, own + 0x18],
        -4 => vec![own + 0x08, own + 0x10, own + 0x18, own + 0x20],
        -3 | -2 => vec![own + 0x08, own + 0x10],
        // `given` has the former value of `$_`.
        -6 => vec![own + 0x08],
        0 if flags & ARGUMENTS_FLAG != 0 => vec![layout.code, layout.code + 0x10],
        0 => vec![layout.code],
        1 => vec![layout.code, layout.code + 0x08, layout.code + 0x10],
        // The name of the file, the text that is evaluated, and its code.
        2 => vec![layout.name, layout.name + 0x10, layout.name + 0x18],
        3 => all(),
        _ => Vec::new(),
    }
}
