//! The kinds of values.

/// The kind of a value, with the names of Devel::MAT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PerlValueKind {
    /// A symbol in a symbol table (glob).
    Glob,
    /// A scalar: a number, a text, or an undefined value.
    #[default]
    Scalar,
    /// A reference.
    Reference,
    /// An array.
    Array,
    /// A hash.
    Hash,
    /// A symbol table.
    Stash,
    /// A sub, or code that is evaluated.
    Code,
    /// A file or directory handle.
    Io,
    /// The result of a function, such as `substr` or `pos`, to which a program can assign.
    Lvalue,
    /// A regular expression.
    Regexp,
    /// A format.
    Format,
    /// A set of characters in a regular expression.
    Invlist,
    /// An undefined value.
    Undefined,
    /// The value true.
    Yes,
    /// The value false.
    No,
    /// An object of a class that was declared by `class`.
    Object,
    /// A class that was declared by `class`.
    Class,
    /// A C structure.
    Structure,
    /// The compiled code (ops) of a sub.
    Ops,
    /// Memory of C code.
    Memory,
    /// A text that several values share until one of them is changed.
    Shared,
    /// Unused slots in the arenas from which Perl takes values.
    Free,
}

impl PerlValueKind {
    /// Returns the name of the kind, as in Devel::MAT and `ref`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Glob => "GLOB",
            Self::Scalar => "SCALAR",
            Self::Reference => "REF",
            Self::Array => "ARRAY",
            Self::Hash => "HASH",
            Self::Stash => "STASH",
            Self::Code => "CODE",
            Self::Io => "IO",
            Self::Lvalue => "LVALUE",
            Self::Regexp => "REGEXP",
            Self::Format => "FORMAT",
            Self::Invlist => "INVLIST",
            Self::Undefined => "UNDEF",
            Self::Yes => "YES",
            Self::No => "NO",
            Self::Object => "OBJECT",
            Self::Class => "CLASS",
            Self::Structure => "STRUCT",
            Self::Ops => "op tree",
            Self::Memory => "C memory",
            Self::Shared => "shared text",
            Self::Free => "free slots",
        }
    }

    /// Whether the kind describes Perl values. False for kinds that describe other memory, such as
    /// ops and memory of C code.
    #[must_use]
    pub fn is_value(self) -> bool {
        !matches!(
            self,
            Self::Structure | Self::Ops | Self::Memory | Self::Shared | Self::Free
        )
    }

    /// Whether the kind is a symbol table.
    #[must_use]
    pub fn is_stash(self) -> bool {
        matches!(self, Self::Stash | Self::Class)
    }
}
