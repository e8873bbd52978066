//! A frame of a Perl stack: as numbers during a walk, and as text for reports.

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerlFrameKind {
    /// A sub, anonymous or not.
    Sub,
    /// A format.
    Format,
    /// `eval { }`.
    EvalBlock,
    /// `eval "text"`.
    EvalString,
    /// A file that `require` or `use` loads.
    Require,
    /// A file that `do` runs.
    DoFile,
    /// The code of a file outside of any sub.
    Main,
    /// The compilation of a text. The frame's line is the line that is being compiled.
    Compile,
    /// The start of Perl, before it has read a text.
    Start,
    /// The end of Perl, when it frees everything.
    Destruct,
    /// Arenas: memory from which Perl takes values for any line.
    Arenas,
    /// A callback from C code to Perl. The number is the kind of callback, such as a sort.
    Callback(u8),
}

/// A frame as numbers. Frames with equal numbers are at the same statement of the program.
/// [`version`](Self::version) distinguishes texts that had the same address at different times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerlFrame {
    /// The running code: an address with the frame's kind in its lowest bits, or a number below
    /// 4096.
    pub code: u64,
    /// Address of the running statement (Perl's COP).
    pub cop: u64,
    /// A number that distinguishes the text of the statement from other texts at its address.
    pub version: u32,
    /// The statement's line.
    pub line: u32,
    /// Whether the code was called by C code.
    pub from_c: bool,
    /// Address of the frame's context; 0 if it has none.
    pub context: u64,
}

/// The bits of a [`PerlFrame::code`] that have the kind, if the code is an address.
const TAG_MASK: u64 = 7;
const CALLBACK_CODE: u64 = 0x100;

impl PerlFrameKind {
    /// Returns the [`PerlFrame::code`] of a frame of this kind. `address` is the address of the
    /// sub, the format or the file name.
    #[inline(always)]
    pub(crate) const fn code(self, address: u64) -> u64 {
        let tag = match self {
            // A sub whose address is gone must be a frame, too.
            Self::Sub => 4,
            Self::Format => 1,
            Self::Require => 2,
            Self::DoFile => 3,
            Self::EvalBlock => return 0x10,
            Self::EvalString => return 0x20,
            Self::Main => return 0x30,
            Self::Compile => return 0x40,
            Self::Start => return 0x50,
            Self::Destruct => return 0x60,
            Self::Arenas => return 0x70,
            Self::Callback(of) => return CALLBACK_CODE + of as u64,
        };
        // A file's name may be missing. A number below 4096 is no address.
        (address & !TAG_MASK) | tag
    }
}

impl PerlFrame {
    /// Returns the [`PerlFrame::code`] of a frame that runs the sub at `address`.
    pub fn code_of_sub(address: u64) -> u64 {
        PerlFrameKind::Sub.code(address)
    }

    /// Returns a frame of the kind `kind`, without an address and without a line.
    pub fn from_kind(kind: PerlFrameKind) -> Self {
        Self {
            code: kind.code(0),
            cop: 0,
            version: 0,
            line: 0,
            from_c: false,
            context: 0,
        }
    }

    /// Returns the frame's kind.
    pub fn kind(&self) -> PerlFrameKind {
        match self.code {
            0x10 => PerlFrameKind::EvalBlock,
            0x20 => PerlFrameKind::EvalString,
            0x30 => PerlFrameKind::Main,
            0x40 => PerlFrameKind::Compile,
            0x50 => PerlFrameKind::Start,
            0x60 => PerlFrameKind::Destruct,
            0x70 => PerlFrameKind::Arenas,
            code @ CALLBACK_CODE..4096 => PerlFrameKind::Callback((code - CALLBACK_CODE) as u8),
            code => match code & TAG_MASK {
                1 => PerlFrameKind::Format,
                2 => PerlFrameKind::Require,
                3 => PerlFrameKind::DoFile,
                _ => PerlFrameKind::Sub,
            },
        }
    }

    /// Returns the address in [`code`](Self::code), for kinds that have one.
    pub(crate) fn address(&self) -> u64 {
        self.code & !TAG_MASK
    }
}

/// A text in a buffer of fixed size.
#[derive(Debug)]
pub struct BoundedText<'a> {
    to: &'a mut [u8],
    len: usize,
}

impl<'a> BoundedText<'a> {
    /// Creates an empty text in the buffer `to`.
    pub fn new(to: &'a mut [u8]) -> Self {
        Self { to, len: 0 }
    }

    /// Returns the bytes of the text so far.
    pub fn bytes(&self) -> &[u8] {
        &self.to[..self.len]
    }

    /// Appends `bytes`, cut at the end of the buffer.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let n = bytes.len().min(self.to.len() - self.len);
        self.to[self.len..self.len + n].copy_from_slice(&bytes[..n]);
        self.len += n;
    }

    /// Returns the unused rest of the buffer.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.to[self.len..]
    }

    /// Appends the first `n` bytes of the [`room`](Self::room), which the caller has written.
    pub(crate) fn grow(&mut self, n: usize) {
        self.len = (self.len + n).min(self.to.len());
    }

    /// Removes the number from each `(eval 12)`, because each evaluation has a different number.
    pub fn leave_out_eval_numbers(&mut self) {
        const EVAL_PREFIX: &[u8] = b"(eval ";
        let mut at = 0;
        while let Some(found) = find(&self.to[at..self.len], EVAL_PREFIX) {
            let begin = at + found + EVAL_PREFIX.len();
            let digits = self.to[begin..self.len]
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count();
            let end = begin + digits;
            at = begin;
            if digits != 0 && self.to[..self.len].get(end) == Some(&b')') {
                // The space is removed, too.
                self.to.copy_within(end..self.len, begin - 1);
                self.len -= digits + 1;
            }
        }
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|part| part == wanted)
}

/// A frame as text.
#[derive(Debug)]
pub struct NamedPerlFrame<'a> {
    /// `Package::sub`, or a description in parentheses.
    pub name: BoundedText<'a>,
    /// The file of the statement; may be empty.
    pub file: BoundedText<'a>,
    /// The line of the first statement of a sub; 0 if it is not known.
    pub start_line: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_tells_its_kind() {
        let kinds = [
            PerlFrameKind::Sub,
            PerlFrameKind::Format,
            PerlFrameKind::EvalBlock,
            PerlFrameKind::EvalString,
            PerlFrameKind::Require,
            PerlFrameKind::DoFile,
            PerlFrameKind::Main,
            PerlFrameKind::Compile,
            PerlFrameKind::Start,
            PerlFrameKind::Destruct,
            PerlFrameKind::Callback(0),
            PerlFrameKind::Callback(11),
        ];
        for kind in kinds {
            let frame = PerlFrame {
                code: kind.code(0x5555_1230),
                cop: 0,
                version: 0,
                line: 0,
                from_c: false,
                context: 0,
            };
            assert_eq!(frame.kind(), kind);
        }
    }

    #[test]
    fn numbers_of_evals_are_left_out() {
        for (given, wanted) in [
            ("(eval 12)", "(eval)"),
            ("__ANON__[(eval 3):1]", "__ANON__[(eval):1]"),
            ("(eval 1)[(eval 22):3]", "(eval)[(eval):3]"),
            ("(eval )", "(eval )"),
            ("(eval 12", "(eval 12"),
            ("(eval x1)", "(eval x1)"),
            ("", ""),
        ] {
            let mut room = [0; 64];
            let mut text = BoundedText::new(&mut room);
            text.add(given.as_bytes());
            text.leave_out_eval_numbers();
            assert_eq!(text.bytes(), wanted.as_bytes());
        }
    }

    #[test]
    fn a_text_ends_where_its_room_ends() {
        let mut room = [0; 4];
        let mut text = BoundedText::new(&mut room);
        text.add(b"abc");
        text.add(b"def");
        assert_eq!(text.bytes(), b"abcd");
    }
}
