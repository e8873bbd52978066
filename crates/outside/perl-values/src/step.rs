//! The steps of a data path, by which one value leads to another.

use crate::text::TextId;

/// A step by which one value leads to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ValueStep {
    /// A symbol's scalar, array, hash, code, handle or format: one of `$@%&`, or `*` for the rest.
    Slot(u8),
    /// The referent of a reference.
    Referent,
    /// An element of an array, by its number.
    Element(u32),
    /// A field of an object of `class`, by its number.
    Field(u32),
    /// The value of a hash key.
    Key(TextId),
    /// The value of a hash key whose name was not recorded.
    Entry,
    /// A pad: the values of a sub's variables at this depth of recursion.
    Pad(u32),
    /// A variable of a sub.
    Variable(TextId),
    /// An unnamed temporary value of a sub's code.
    Temporary,
    /// A constant in a sub's code, or a symbol that the code uses.
    Constant,
    /// The enclosing sub of a sub.
    Outside,
    /// A value that Perl's magic needs, with the letter of the magic's kind.
    Magic(u8),
    /// The value that an lvalue stands for.
    Target,
    /// A part of Perl itself or of a module, by its name.
    Named(TextId),
    /// The compiled code (ops) of a sub.
    Ops,
    /// A block of memory of C code, reached by a pointer to it.
    Memory,
    /// A value to which memory of C code points. The step counts only if no other path leads to the
    /// value, because memory of C code also contains outdated pointers.
    Mention,
    /// The class with which a variable was declared, or its package. Any other step to the class or
    /// package is preferred, because it says more.
    Class,
}

impl ValueStep {
    /// Whether the step counts only if no other path leads to the value.
    #[must_use]
    pub fn is_late(self) -> bool {
        matches!(self, Self::Mention | Self::Class)
    }
}
