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
    /// What `substr`, `pos` and others give to be assigned to.
    Lvalue,
    /// A regular expression.
    Regexp,
    /// A format.
    Format,
    /// A set of characters of a regular expression.
    Invlist,
    /// An undefined value.
    Undefined,
    /// True.
    Yes,
    /// False.
    No,
    /// An object of `class`.
    Object,
    /// A class of `class`.
    Class,
    /// A structure of C's.
    Structure,
    /// The code of a sub.
    Ops,
    /// Memory of C code.
    Memory,
    /// A text that several values share until one of them changes.
    Shared,
    /// What is free in the memory that values are taken from.
    Free,
}

impl PerlValueKind {
    /// Its name, as Devel::MAT and `ref` have it.
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

    /// Whether it is a value of Perl's.
    #[must_use]
    pub fn is_value(self) -> bool {
        !matches!(
            self,
            Self::Structure | Self::Ops | Self::Memory | Self::Shared | Self::Free
        )
    }

    /// Whether it is a table of symbols.
    #[must_use]
    pub fn is_stash(self) -> bool {
        matches!(self, Self::Stash | Self::Class)
    }
}
