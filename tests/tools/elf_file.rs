//! Writes small ELF files without a compiler, and profiles of their code. So a test can have a file
//! for any processor.

use std::path::Path;

use heapprof_profile::{Line, Mapping, Profile, ProfileBuilder};

/// The number of the processor 64-bit ARM in an ELF file (`EM_AARCH64`).
pub const AARCH64: u16 = 183;
/// The number of the processor x86-64 in an ELF file (`EM_X86_64`).
pub const X86_64: u16 = 62;
/// The number of the processor RISC-V in an ELF file (`EM_RISCV`).
pub const RISCV: u16 = 243;

/// Where the code is in the file.
const CODE_OFFSET: u64 = 0x1000;
/// The virtual address of the code.
const CODE_START: u64 = 0x40_1000;
/// Where the code is in the memory of the profiled program.
const MEMORY_START: u64 = 0x5555_0000_1000;

/// Types of sections: code, symbols, names, notes.
const PROGBITS: u32 = 1;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const NOTE: u32 = 7;

/// An ELF file to write.
pub struct ElfFile<'a> {
    /// The number of the processor.
    pub processor: u16,
    /// The build id.
    pub build_id: [u8; 4],
    /// The functions: their symbols and their code.
    pub functions: &'a [(&'a str, &'a [u8])],
    /// Further symbols: the name of each, its place in bytes from the beginning of the code, and
    /// its size, which may be 0.
    pub labels: &'a [(&'a str, u64, u64)],
    /// Whether the file has symbols.
    pub has_symbols: bool,
}

/// A section: its name, its type, its flags, its virtual address and its bytes.
type Section = (&'static str, u32, u64, u64, Vec<u8>);

impl ElfFile<'_> {
    /// Returns the bytes of the file.
    pub fn bytes(&self) -> Vec<u8> {
        let code: Vec<u8> = self
            .functions
            .iter()
            .flat_map(|(_, code)| *code)
            .copied()
            .collect();
        let size = code.len() as u64;
        let note = [
            &[4, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0][..],
            b"GNU\0",
            &self.build_id,
        ]
        .concat();
        let mut sections: Vec<Section> = vec![
            ("", 0, 0, 0, Vec::new()),
            (".text", PROGBITS, 6, CODE_START, code),
            (".note.gnu.build-id", NOTE, 2, 0, note),
        ];
        if self.has_symbols {
            let (table, names) = self.symbols();
            sections.push((".symtab", SYMTAB, 0, 0, table));
            sections.push((".strtab", STRTAB, 0, 0, names));
        }
        let mut names = Vec::new();
        let mut starts = Vec::new();
        for (name, ..) in sections.iter().chain([&(".shstrtab", 0, 0, 0, Vec::new())]) {
            starts.push(names.len() as u32);
            names.extend([name.as_bytes(), b"\0"].concat());
        }
        sections.push((".shstrtab", STRTAB, 0, 0, names));
        let mut body = vec![0; CODE_OFFSET as usize];
        let mut headers = Vec::new();
        for (number, ((_, kind, flags, address, bytes), name)) in
            sections.iter().zip(starts).enumerate()
        {
            let offset = body.len() as u64;
            body.extend(bytes);
            body.resize(body.len().next_multiple_of(8), 0);
            // A symbol table names the section of its names, which is the next one, and the first
            // symbol that is not local.
            let is_table = *kind == SYMTAB;
            let (link, info) = if is_table {
                (number as u32 + 1, 1_u32)
            } else {
                (0, 0)
            };
            headers.extend([name.to_le_bytes(), kind.to_le_bytes()].concat());
            headers.extend(
                [*flags, *address, offset, bytes.len() as u64]
                    .map(u64::to_le_bytes)
                    .concat(),
            );
            headers.extend([link.to_le_bytes(), info.to_le_bytes()].concat());
            headers.extend(
                [8, if is_table { 24 } else { 0_u64 }]
                    .map(u64::to_le_bytes)
                    .concat(),
            );
        }
        let mut head = b"\x7fELF\x02\x01\x01".to_vec();
        head.resize(16, 0);
        let short = |numbers: &[u16]| {
            numbers
                .iter()
                .flat_map(|n| n.to_le_bytes())
                .collect::<Vec<u8>>()
        };
        head.extend(short(&[2, self.processor, 1, 0]));
        head.extend(
            [CODE_START, 64, body.len() as u64]
                .map(u64::to_le_bytes)
                .concat(),
        );
        let count = sections.len() as u16;
        head.extend(short(&[0, 0, 64, 56, 1, 64, count, count - 1]));
        // One segment, which is loaded to be run.
        head.extend([1_u32, 5].map(u32::to_le_bytes).concat());
        let segment = [CODE_OFFSET, CODE_START, CODE_START, size, size, 4096];
        head.extend(segment.map(u64::to_le_bytes).concat());
        body[..head.len()].copy_from_slice(&head);
        [body, headers].concat()
    }

    /// Returns the symbol table and its names.
    fn symbols(&self) -> (Vec<u8>, Vec<u8>) {
        let (mut table, mut names) = (vec![0; 24], vec![0]);
        let mut start = CODE_START;
        let functions = self.functions.iter().map(|(name, code)| {
            let (begin, size) = (start, code.len() as u64);
            start += size;
            (name, begin, size)
        });
        let labels = self.labels.iter();
        let labels = labels.map(|(name, place, size)| (name, CODE_START + place, *size));
        for (name, start, size) in functions.chain(labels) {
            // A global function in the section 1.
            table.extend((names.len() as u32).to_le_bytes());
            table.extend([0x12, 0, 1, 0]);
            table.extend([start, size].map(u64::to_le_bytes).concat());
            names.extend([name.as_bytes(), b"\0"].concat());
        }
        (table, names)
    }

    /// Returns a profile of bytes in use. Each sample is the place of a call, in bytes from the
    /// beginning of the code, the name, the file and the line of its function, and its bytes.
    /// `path` is where the file is.
    pub fn profile(&self, path: &Path, samples: &[(u64, &str, &str, i64, i64)]) -> Profile {
        let mut b = ProfileBuilder::new(&[("inuse_space", "bytes")]);
        let id: String = self
            .build_id
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let size: usize = self.functions.iter().map(|(_, code)| code.len()).sum();
        let mapping = Mapping {
            id: 0,
            memory_start: MEMORY_START,
            memory_limit: MEMORY_START + size.next_multiple_of(4096) as u64,
            file_offset: CODE_OFFSET,
            filename: b.text(path.to_str().unwrap()),
            build_id: b.text(&id),
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
            has_inline_frames: true,
        };
        let mapping = b.mapping(mapping);
        for &(place, name, file, line, bytes) in samples {
            let (name, file) = (b.text(name), b.text(file));
            let function = b.named_function(name, file);
            let line = Line {
                function,
                line,
                column: 0,
            };
            let location = b.location(Some(mapping), MEMORY_START + place, false, &[line]);
            b.add_sample(vec![location], &[bytes], &mut []);
        }
        b.finish()
    }
}
