//! The kinds of values.

/// The kind of a value, as Devel::MAT calls it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PerlValueKind {
    /// A symbol's place in a symbol table.
    Glob,
    /// A number, a text, or nothing.
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
    /// A handle.
    Io,
    /// The result of `substr`, `pos` and others, to which can be assigned.
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
    /// An object of `class`.
    Object,
    /// A class of `class`.
    Class,
    /// A C structure.
    Structure,
    /// The code of a sub.
    Ops,
    /// Memory of C code.
    Memory,
    /// A text that several values share until one of them changes.
    Shared,
    /// Free slots in the memory from which values are taken.
    Free,
}

impl PerlValueKind {
    /// The kind's name, as in Devel::MAT and `ref`.
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

    /// Whether the kind is a kind of Perl's own values.
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
