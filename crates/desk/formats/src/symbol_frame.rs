//! Reads frames in the forms of tracing tools. A frame has an address, a symbol with an offset, and
//! a file. Any of these parts may be missing.
//!
//! perf: `125a fill+0x42 (/tmp/app)`. bpftrace: `malloc+16`, `0x7f9b56f83930`, and the form of
//! perf. bcc: `main+0x6d [app]`, `0x00007f94 main+0x6d [app]`, `0 [<00007f94>] main+0x6d [app]`.
//! dtrace: ``libc.so.1`malloc+0x15``.

use heapprof_profile::LocationIndex;

use crate::error::FormatError;
use crate::figures::{address, decimal, hex};
use crate::tally::{FrameModule, SampleTally, TextFrame};

/// Reads a frame. Also returns whether the function of the frame was inlined into the next frame.
pub(crate) fn parse(text: &str) -> (TextFrame<'_>, bool) {
    let text = text.trim();
    let (address, rest) = leading_address(text);
    let mut frame = TextFrame {
        address,
        ..TextFrame::default()
    };
    let (mut symbol, module) = trailing_module(rest);
    let inlined = module == "inlined";
    if !inlined && module != "[unknown]" {
        frame.module.name = module;
    }
    if let Some((module, name)) = symbol.split_once('`') {
        symbol = name;
        frame.module = FrameModule {
            name: module,
            ..FrameModule::default()
        };
    }
    let symbol = without_offset(symbol);
    // bpftrace repeats an address whose name it does not know.
    let unknown = matches!(symbol, "[unknown]" | "<null sym>" | "??")
        || self::address(symbol.as_bytes()).is_some();
    if !unknown {
        frame.name = symbol;
    }
    (frame, inlined)
}

/// Returns the location for the text of one frame.
pub(crate) fn location(tally: &mut SampleTally, text: &[u8]) -> Result<LocationIndex, FormatError> {
    tally.find_or_make(text, |tally| {
        let text = String::from_utf8_lossy(text);
        tally.location(&[parse(&text).0])
    })
}

/// Returns the address at the beginning of a text, or 0, and the rest of the text.
fn leading_address(text: &str) -> (u64, &str) {
    // The C version of memleak numbers frames.
    if let Some((number, rest)) = text.split_once(" [<")
        && decimal(number.as_bytes()).is_some()
        && let Some((digits, rest)) = rest.split_once(">]")
        && let Some(address) = hex(digits.as_bytes())
    {
        return (address, rest.trim_start());
    }
    let (first, rest) = match text.find(char::is_whitespace) {
        Some(space) => (&text[..space], text[space..].trim_start()),
        None => (text, ""),
    };
    let prefixed = address(first.as_bytes());
    // Without 0x the word may be a name, like `add`.
    let long = first.len() >= 6 && first.bytes().any(|b| b.is_ascii_digit());
    let bare = || hex(first.as_bytes()).filter(|_| long || !rest.is_empty());
    match prefixed.or_else(bare) {
        Some(address) => (address, rest),
        None => (0, text),
    }
}

/// Splits off the file in parentheses or brackets at the end.
fn trailing_module(text: &str) -> (&str, &str) {
    for (open, close) in [('(', ')'), ('[', ']')] {
        let Some(inside) = text.strip_suffix(close) else {
            continue;
        };
        // The name of the file may itself end with such a part: `(/tmp/app (deleted))`.
        let mut depth = 1;
        let at = inside.char_indices().rev().find(|&(_, c)| {
            depth += i32::from(c == close) - i32::from(c == open);
            depth == 0
        });
        let Some((at, _)) = at else { continue };
        let before = text[..at].trim_end();
        // `f(int)` and `[unknown]` are symbols.
        if before.len() < at || (at == 0 && text.contains(['/', '.'])) {
            return (before, &inside[at + 1..]);
        }
    }
    (text, "")
}

/// Returns the name in `name+0x1f` or `name+31`.
fn without_offset(symbol: &str) -> &str {
    match symbol.rsplit_once('+') {
        Some((name, offset))
            if !name.is_empty()
                && (decimal(offset.as_bytes()).is_some()
                    || address(offset.as_bytes()).is_some()) =>
        {
            name
        }
        _ => symbol,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let table: [(&str, u64, &str, &str, bool); 21] = [
            (
                "           125a fill+0x42 (/tmp/app)",
                0x125a,
                "fill",
                "/tmp/app",
                false,
            ),
            (
                "1d75 std::f<int>::g+0x1 (inlined)",
                0x1d75,
                "std::f<int>::g",
                "",
                true,
            ),
            (
                "a57b9 [unknown] (/lib/x.so)",
                0xa57b9,
                "",
                "/lib/x.so",
                false,
            ),
            ("7f2 [unknown] ([unknown])", 0x7f2, "", "", false),
            ("7fcc 0x7fcc ([unknown])", 0x7fcc, "", "", false),
            (
                "12 f+0x1 (/tmp/app (deleted))",
                0x12,
                "f",
                "/tmp/app (deleted)",
                false,
            ),
            ("98930 malloc", 0x98930, "malloc", "", false),
            ("0x7f9b56f83930", 0x7f9b56f83930, "", "", false),
            ("401136", 0x401136, "", "", false),
            ("malloc+16", 0, "malloc", "", false),
            ("add", 0, "add", "", false),
            ("facade", 0, "facade", "", false),
            (
                "operator new(unsigned long)+28",
                0,
                "operator new(unsigned long)",
                "",
                false,
            ),
            ("main+0x6d [allocs]", 0, "main", "allocs", false),
            (
                "0x00007f94\tmain+0x6d [allocs]",
                0x7f94,
                "main",
                "allocs",
                false,
            ),
            (
                "0 [<00007f94>] _Znwm+0x1c [/lib/c.so]",
                0x7f94,
                "_Znwm",
                "/lib/c.so",
                false,
            ),
            ("3 [<00007f94>] [/lib/c.so]", 0x7f94, "", "/lib/c.so", false),
            ("4 [<b5>] <null sym>", 0xb5, "", "", false),
            ("libc.so.1`malloc+0x15", 0, "malloc", "libc.so.1", false),
            ("operator+", 0, "operator+", "", false),
            ("", 0, "", "", false),
        ];
        for (text, address, name, module, inlined) in table {
            let (frame, was_inlined) = parse(text);
            assert_eq!(
                (frame.address, frame.name, frame.module.name, was_inlined),
                (address, name, module, inlined),
                "{text}"
            );
        }
    }
}
