//! The tools that read object files for `-disasm` and `-weblist`: objdump, nm, llvm-symbolizer and
//! addr2line, found and called as pprof does.
//!
//! pprof also disassembles files of macOS and Windows; heapprof reads ELF files. Source:
//! google/pprof, internal/binutils.

mod address_names;
mod disassembly;
mod file;
mod load_base;
mod places;
mod source_lines;
mod symbol_list;

use std::ops::Range;
use std::path::Path;

use crate::report::{Instruction, ObjectFile, ObjectMapping, ObjectTool};
use crate::tool_process::{MAX_INSTRUCTION_BYTES, ToolCommand};

use self::disassembly::InstructionParser;
use self::file::{LineMethod, MappedFile};
use self::places::ToolPlaces;
use super::config::PprofConfig;

/// The outside tools that pprof uses.
pub(super) struct ObjectTools {
    places: ToolPlaces,
    /// Whether functions are found by nm alone, without files and lines.
    fast: bool,
}

impl ObjectTools {
    /// Finds the tools as `-tools` or PPROF_TOOLS says.
    pub(super) fn new(config: &PprofConfig<'_>) -> Self {
        let flag = config.flags.text("tools");
        let given = match flag.is_empty() {
            true => std::env::var("PPROF_TOOLS").unwrap_or_default(),
            false => flag.to_string(),
        };
        Self {
            places: ToolPlaces::find(&given, config.tool_deadline),
            fast: is_fast(config.flags.text("symbolize")),
        }
    }
}

/// Whether a value of `-symbolize` says that names are enough.
fn is_fast(mode: &str) -> bool {
    let (mut local, mut fast) = (true, false);
    for option in mode.to_lowercase().split(':') {
        match option {
            "none" | "no" => return false,
            "local" => local = true,
            "fastlocal" => (local, fast) = (true, true),
            "remote" => local = false,
            _ => {}
        }
    }
    local && fast
}

impl ObjectTool for ObjectTools {
    fn open(&self, file: &str, mapping: ObjectMapping) -> Result<Box<dyn ObjectFile>, String> {
        let places = &self.places;
        let has_lines = places.addr2line.is_some() || places.llvm_symbolizer.is_some();
        let method = match self.fast || !has_lines {
            true => LineMethod::Names,
            false => LineMethod::Lines,
        };
        Ok(Box::new(MappedFile::open(file, mapping, method, places)?))
    }

    fn disassemble(
        &self,
        file: &str,
        range: Range<u64>,
        intel_syntax: bool,
    ) -> Result<Vec<Instruction>, String> {
        let Some(objdump) = &self.places.objdump else {
            return Err(
                "cannot disasm: no objdump tool available; install binutils or LLVM, or name the \
                 folder of objdump with -tools"
                    .to_string(),
            );
        };
        let mut command = ToolCommand::new(&objdump.path);
        command.deadline(self.places.deadline);
        for argument in [
            "--disassemble",
            "--demangle",
            "--no-show-raw-insn",
            "--line-numbers",
        ] {
            command.arg(argument);
        }
        command.arg(format!("--start-address={:#x}", range.start));
        command.arg(format!("--stop-address={:#x}", range.end));
        match (intel_syntax, objdump.is_llvm) {
            (false, _) => {}
            (true, true) => command.arg("--x86-asm-syntax=intel"),
            (true, false) => {
                command.arg("-M");
                command.arg("intel");
            }
        }
        command.file(Path::new(file));
        let mut parser = InstructionParser::default();
        command.run(MAX_INSTRUCTION_BYTES, &mut |line| parser.add(line))?;
        Ok(parser.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::is_fast;

    #[test]
    fn names_are_enough() {
        for (mode, expected) in [
            ("", false),
            ("local", false),
            ("fastlocal", true),
            ("FastLocal:force", true),
            ("fastlocal:remote", false),
            ("fastlocal:none", false),
        ] {
            assert_eq!(is_fast(mode), expected, "{mode}");
        }
    }
}
