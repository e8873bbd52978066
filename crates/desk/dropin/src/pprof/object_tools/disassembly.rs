//! Parses the output of objdump, of GNU binutils and of LLVM.

use std::rc::Rc;
use std::sync::LazyLock;

use regex::Regex;

use crate::report::Instruction;

/// The kinds of lines that objdump prints. The texts are those of pprof's expressions, with Go's
/// meaning of `\s`.
struct LineKinds {
    instruction: Option<Regex>,
    place: Option<Regex>,
    function: Option<Regex>,
    symbol: Option<Regex>,
}

static LINE_KINDS: LazyLock<LineKinds> = LazyLock::new(|| {
    let kind = |text: &str| Regex::new(&text.replace(r"\s", r"[\t\n\f\r ]")).ok();
    LineKinds {
        instruction: kind(r"^\s*([[:xdigit:]]+):\s+(.*)"),
        place: kind(r"^;?\s?(.*):([0-9]+)"),
        function: kind(r"^;?\s?([^\t\n\f\r ].*)\(\):"),
        symbol: kind(r"^(?:[[:xdigit:]]+)?\s?(.*):"),
    }
});

/// Reads lines of objdump's output one after the other.
#[derive(Default)]
pub(super) struct InstructionParser {
    function: Rc<str>,
    file: Rc<str>,
    line: i64,
    instructions: Vec<Instruction>,
}

impl InstructionParser {
    /// Adds a line of the output.
    pub(super) fn add(&mut self, line: &str) {
        let line = line.trim();
        if let Some((address, text)) = captures(&LINE_KINDS.instruction, line)
            && let Ok(address) = u64::from_str_radix(address, 16)
        {
            self.instructions.push(Instruction {
                address,
                text: text.to_string(),
                function: self.function.clone(),
                file: self.file.clone(),
                line: self.line,
            });
        } else if let Some((file, number)) = captures(&LINE_KINDS.place, line) {
            if let Ok(number) = number.parse::<u32>() {
                self.file = file.into();
                self.line = i64::from(number);
            }
        } else if let Some((function, _)) =
            captures(&LINE_KINDS.function, line).or_else(|| captures(&LINE_KINDS.symbol, line))
        {
            self.function = function.into();
        } else {
            *self = Self {
                instructions: std::mem::take(&mut self.instructions),
                ..Self::default()
            };
        }
    }

    /// Returns the instructions of all lines.
    pub(super) fn finish(self) -> Vec<Instruction> {
        self.instructions
    }
}

/// Returns the first and the second group of a match; a missing group is empty.
fn captures<'t>(kind: &Option<Regex>, line: &'t str) -> Option<(&'t str, &'t str)> {
    let found = kind.as_ref()?.captures(line)?;
    let group = |at| found.get(at).map_or("", |m: regex::Match<'t>| m.as_str());
    Some((group(1), group(2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(output: &str) -> Vec<(u64, String, String, String, i64)> {
        let mut parser = InstructionParser::default();
        output.split('\n').for_each(|line| parser.add(line));
        let found = parser.finish().into_iter();
        found
            .map(|i| {
                let [function, file] = [i.function, i.file].map(|text| text.to_string());
                (i.address, i.text, function, file, i.line)
            })
            .collect()
    }

    fn row(
        address: u64,
        text: &str,
        function: &str,
        file: &str,
        line: i64,
    ) -> (u64, String, String, String, i64) {
        let [text, function, file] = [text, function, file].map(str::to_string);
        (address, text, function, file, line)
    }

    /// The outputs are those of objdump 2.40 and llvm-objdump 14, and the rows are what pprof makes
    /// of them.
    #[test]
    fn outputs_of_both_objdumps() {
        let gnu = "\n/tmp/a.out:     file format elf64-x86-64\n\n\nDisassembly of section \
                   .text:\n\n0000000000001139 <main>:\nmain():\n/tmp/a.c:5\n    1139:\tpush   \
                   %rbp\n/tmp/a.c:6 (discriminator 3)\n    113a:\tcall   1030 <malloc@plt>\n\t...\n\
                   \x20 2000:\tnop\n";
        assert_eq!(
            parse(gnu),
            [
                row(0x1139, "push   %rbp", "main", "/tmp/a.c", 5),
                row(0x113a, "call   1030 <malloc@plt>", "main", "/tmp/a.c", 6),
                row(0x2000, "nop", "", "", 0),
            ]
        );
        let llvm = "0000000000001139 <main>:\n; main():\n; /tmp/a.c:5\n    1139:       \tpushq\t\
                    %rbp\n; copy():\n; ./b.h:7\n    113a: addl\t%eax, %ebx  # comment: 5\n";
        assert_eq!(
            parse(llvm),
            [
                row(0x1139, "pushq\t%rbp", "main", "/tmp/a.c", 5),
                row(0x113a, "addl\t%eax, %ebx  # comment: 5", "copy", "./b.h", 7),
            ]
        );
        // Without debug information, the symbol is the function, with its brackets.
        let stripped =
            "Disassembly of section .text:\n\n0000000000001139 <f(int)>:\n    1139:\tret";
        assert_eq!(parse(stripped), [row(0x1139, "ret", "<f(int)>", "", 0)]);
    }

    #[test]
    fn odd_lines() {
        for output in [
            "",
            ":",
            "::::",
            "x:99999999999",
            "ffffffffffffffffff:\tx",
            "\u{1b}[31m:1",
        ] {
            assert!(parse(output).is_empty(), "{output}");
        }
        let named = "é():\n 1:\tx";
        assert_eq!(parse(named), [row(1, "x", "é", "", 0)]);
    }
}
