//! Steps of a data path: how a value leads to another one.

use crate::text::TextId;

/// A step from a value to another one.
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
    /// The value of a key.
    Key(TextId),
    /// The value of a key whose name was not kept.
    Entry,
    /// A pad: the values of a sub's variables at a depth of recursion.
    Pad(u32),
    /// A variable of a sub.
    Variable(TextId),
    /// A value of a sub without a name, with which its code computes.
    Temporary,
    /// A constant of a sub's code, or a symbol that it uses.
    Constant,
    /// The sub around another one.
    Outside,
    /// A value that magic needs, by the letter of the magic's kind.
    Magic(u8),
    /// The value for which an lvalue stands.
    Target,
    /// Something of Perl's own or of a module's, by its name.
    Named(TextId),
    /// The code of a sub.
    Ops,
    /// Memory of C code, by a pointer to it.
    Memory,
    /// A value to which memory of C code points. The step counts only for values to which no other
    /// way leads, because memory also has old pointers that are not used any more.
    Mention,
    /// The class with which a variable was declared, or its package. It is reached in other ways,
    /// which say more.
    Class,
}

impl ValueStep {
    /// Whether the step counts only for values to which no other way leads.
    #[must_use]
    pub fn is_late(self) -> bool {
        matches!(self, Self::Mention | Self::Class)
    }
}
