//! Reads the name of a frame, its file, and the line at which its sub begins.
//!
//! No Perl function is called, because Perl's functions for names allocate. The structures are read
//! as Perl's `caller` and `cv_name` read them.

use heapprof_memory::Memory;

use crate::frame::{BoundedText, NamedPerlFrame, PerlFrame, PerlFrameKind};
use crate::interpreter::PerlRuntime;

/// Maximum length of a name. A longer name counts as damage.
const MAX_NAME_LEN: usize = 1000;
/// Maximum number of ops that are searched for the first statement of a sub.
const MAX_FIRST_OPS: usize = 8;

/// The names of callbacks, in the order of Perl's numbers, from -1.
const CALLBACK_NAMES: [&str; 13] = [
    "(callback)",
    "(callback)",
    "(main)",
    "(tie)",
    "(sort)",
    "(signal)",
    "(overload)",
    "(DESTROY)",
    "(warn handler)",
    "(die handler)",
    "(BEGIN)",
    "(multicall)",
    "(regular expression)",
];

impl PerlRuntime {
    /// Reads the name, the file and the first line of a frame, whose code must still exist. A part
    /// that can't be read is left out, and the function then returns false.
    pub fn name<M: Memory>(
        &self,
        memory: M,
        frame: &PerlFrame,
        named: &mut NamedPerlFrame<'_>,
    ) -> bool {
        let name = &mut named.name;
        let is_read = match frame.kind() {
            PerlFrameKind::Sub => {
                let read = self.sub_name(memory, frame.address(), name).is_some();
                let start = self.start_line(memory, frame.address());
                named.start_line = start.unwrap_or_default();
                read
            }
            PerlFrameKind::Format => {
                let read = self.sub_name(memory, frame.address(), name).is_some();
                name.add(b" (format)");
                read
            }
            PerlFrameKind::EvalBlock => add_fixed_text(name, "(eval block)"),
            PerlFrameKind::EvalString => add_fixed_text(name, "(eval string)"),
            PerlFrameKind::Require => {
                name.add(b"require ");
                self.string(memory, frame.address(), name).is_some() || frame.address() == 0
            }
            PerlFrameKind::DoFile => {
                name.add(b"do ");
                self.string(memory, frame.address(), name).is_some() || frame.address() == 0
            }
            PerlFrameKind::Main => add_fixed_text(name, "(main)"),
            PerlFrameKind::Compile => add_fixed_text(name, "(compile)"),
            PerlFrameKind::Start => add_fixed_text(name, "(perl start)"),
            PerlFrameKind::Destruct => add_fixed_text(name, "(global destruction)"),
            PerlFrameKind::Arenas => add_fixed_text(name, "(perl arenas)"),
            PerlFrameKind::Callback(of) => add_fixed_text(
                name,
                CALLBACK_NAMES
                    .get(usize::from(of))
                    .unwrap_or(&CALLBACK_NAMES[0]),
            ),
        };
        if frame.cop == 0 {
            return is_read;
        }
        let read = self.file(memory, frame.cop, named.file.room());
        named.file.grow(read.unwrap_or(0));
        is_read && read.is_some()
    }

    /// Copies the file name of a statement into `to`. Returns the length of the name.
    pub(crate) fn file<M: Memory>(&self, memory: M, cop: u64, to: &mut [u8]) -> Option<usize> {
        let layout = &self.layout;
        if let Some(offset) = layout.cop_file {
            let text = memory.u64(cop + u64::from(offset))?;
            return match text {
                0 => Some(0),
                text => memory.text(text, to),
            };
        }
        let glob = memory.u64(cop + u64::from(layout.cop_filegv?))?;
        if glob == 0 {
            return Some(0);
        }
        let body = memory.u64(glob + u64::from(layout.sv_any))?;
        let key = memory.u64(body + u64::from(layout.gv_name))?;
        // The name of such a glob is `_<` and the file.
        memory.text(key + u64::from(layout.hek_key) + 2, to)
    }

    fn type_of<M: Memory>(&self, memory: M, value: u64) -> Option<u32> {
        let flags = memory.u32(value + u64::from(self.layout.sv_flags))?;
        Some(flags & self.layout.sv_type_mask)
    }

    /// Appends the name of a sub or format, with its package.
    fn sub_name<M: Memory>(&self, memory: M, sub: u64, name: &mut BoundedText<'_>) -> Option<()> {
        let layout = &self.layout;
        let kind = self.type_of(memory, sub)?;
        if kind != layout.sv_is_cv && kind != layout.sv_is_format {
            name.add(b"(unknown sub)");
            return None;
        }
        let body = memory.u64(sub + u64::from(layout.sv_any))?;
        let flags = memory.u32(body + u64::from(layout.cv_flags))?;
        let of = memory.u64(body + u64::from(layout.cv_gv))?;
        if of == 0 {
            name.add(b"(unknown)");
            return Some(());
        }
        if flags & layout.cv_is_named != 0 {
            let is_lexical = layout.cv_is_lexical.is_some_and(|bit| flags & bit != 0);
            if !is_lexical {
                let package = memory.u64(body + u64::from(layout.cv_stash))?;
                self.package(memory, package, name)?;
                name.add(b"::");
            }
            return self.key(memory, of, name);
        }
        if self.type_of(memory, of)? != layout.sv_is_gv {
            name.add(b"(unknown)");
            return Some(());
        }
        self.glob_name(memory, of, name)
    }

    /// Appends the name of a glob, with its package.
    fn glob_name<M: Memory>(&self, memory: M, glob: u64, name: &mut BoundedText<'_>) -> Option<()> {
        let layout = &self.layout;
        let mut glob = glob;
        let parts = memory.u64(glob + u64::from(layout.sv_u))?;
        if parts != 0 {
            let effective = memory.u64(parts + u64::from(layout.gp_egv))?;
            if effective != 0 && self.type_of(memory, effective)? == layout.sv_is_gv {
                glob = effective;
            }
        }
        let body = memory.u64(glob + u64::from(layout.sv_any))?;
        self.package(memory, memory.u64(body + u64::from(layout.gv_stash))?, name)?;
        name.add(b"::");
        self.key(memory, memory.u64(body + u64::from(layout.gv_name))?, name)
    }

    /// Appends the name of a package.
    pub(crate) fn package<M: Memory>(
        &self,
        memory: M,
        stash: u64,
        name: &mut BoundedText<'_>,
    ) -> Option<()> {
        let layout = &self.layout;
        let key = self.package_key(memory, stash);
        match key {
            Some(key) if key != 0 => self.key(memory, key, name),
            _ => {
                name.add(b"__ANON__");
                // A package may be gone while its subs still run.
                (stash == 0 || self.type_of(memory, stash)? == layout.sv_is_hv).then_some(())
            }
        }
    }

    /// Returns the address of a package's name; 0 if it has none.
    fn package_key<M: Memory>(&self, memory: M, stash: u64) -> Option<u64> {
        let layout = &self.layout;
        if stash == 0 || self.type_of(memory, stash)? != layout.sv_is_hv {
            return None;
        }
        if memory.u32(stash + u64::from(layout.sv_flags))? & layout.sv_has_aux == 0 {
            return Some(0);
        }
        let body = memory.u64(stash + u64::from(layout.sv_any))?;
        let aux = match layout.hv_aux {
            Some(offset) => body + u64::from(offset),
            None => {
                let buckets = memory.u64(stash + u64::from(layout.sv_u))?;
                let most = memory.u64(body + u64::from(layout.hv_max))?;
                buckets.checked_add(most.checked_add(1)?.checked_mul(8)?)?
            }
        };
        let names = memory.u64(aux + u64::from(layout.aux_name))?;
        match memory.u32(aux + u64::from(layout.aux_name_count))? {
            _ if names == 0 => Some(0),
            0 => Some(names),
            // The package has several names, of which the first is its own.
            _ => memory.u64(names),
        }
    }

    /// Appends the text of a hash key. Perl stores names as hash keys.
    fn key<M: Memory>(&self, memory: M, key: u64, name: &mut BoundedText<'_>) -> Option<()> {
        if key == 0 {
            name.add(b"__ANON__");
            return Some(());
        }
        let len = memory.u32(key + u64::from(self.layout.hek_len))? as usize;
        if len > MAX_NAME_LEN {
            return None;
        }
        let room = name.room();
        let n = len.min(room.len());
        if !memory.read(key + u64::from(self.layout.hek_key), &mut room[..n]) {
            return None;
        }
        name.grow(n);
        Some(())
    }

    /// Appends the text of a string value.
    fn string<M: Memory>(&self, memory: M, value: u64, name: &mut BoundedText<'_>) -> Option<()> {
        if value == 0 {
            return Some(());
        }
        let text = memory.u64(value + u64::from(self.layout.sv_u))?;
        if text == 0 {
            return Some(());
        }
        let n = memory.text(text, name.room())?;
        name.grow(n);
        Some(())
    }

    /// Returns the line of the first statement of a sub; `None` if it has none.
    pub fn start_line<M: Memory>(&self, memory: M, sub: u64) -> Option<u32> {
        let layout = &self.layout;
        let body = memory.u64(sub + u64::from(layout.sv_any))?;
        if memory.u32(body + u64::from(layout.cv_flags))? & layout.cv_is_xsub != 0 {
            return None;
        }
        let mut op = memory.u64(body + u64::from(layout.cv_start))?;
        for _ in 0..MAX_FIRST_OPS {
            if op == 0 {
                return None;
            }
            let kind = u32::from(memory.u16(op + u64::from(layout.op_type))? & 0x1ff);
            if kind == layout.op_nextstate || kind == layout.op_dbstate {
                return memory.u32(op + u64::from(layout.cop_line));
            }
            op = memory.u64(op + u64::from(layout.op_next))?;
        }
        None
    }
}

fn add_fixed_text(name: &mut BoundedText<'_>, text: &str) -> bool {
    name.add(text.as_bytes());
    true
}
