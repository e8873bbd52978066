//! The numbers of Perl's sv.h: types, flags, and where a body has what. They are the same from 5.22
//! to 5.42.

/// The size of a head.
pub const HEAD_SIZE: u64 = 24;

/// An integer.
pub const INTEGER: u32 = 1;
/// A number.
pub const NUMBER: u32 = 2;
/// A text.
pub const TEXT: u32 = 3;
/// A set of characters of a regular expression.
pub const INVLIST: u32 = 4;
/// A scalar that may have a class and magic.
pub const MAGICAL: u32 = 7;
/// A regular expression.
pub const REGEXP: u32 = 8;
/// A symbol.
pub const GLOB: u32 = 9;
/// What stands for a part of another value.
pub const LVALUE: u32 = 10;
/// An array.
pub const ARRAY: u32 = 11;
/// A hash.
pub const HASH: u32 = 12;
/// A sub.
pub const CODE: u32 = 13;
/// A format.
pub const FORMAT: u32 = 14;
/// A handle.
pub const IO: u32 = 15;
/// An object of `class`, from 5.38.
pub const OBJECT: u32 = 16;
/// How many types there are.
pub const TYPE_COUNT: usize = 17;

/// The bits of a head's flags that are its type. All are set if no value has it.
pub const TYPE_MASK: u32 = 0xff;
/// It is an integer.
pub const IS_INTEGER: u32 = 0x1100;
/// It is a number with a fraction.
pub const IS_FLOAT: u32 = 0x2200;
/// It is a number, a text, a reference or a symbol.
pub const IS_DEFINED: u32 = 0xff00;
/// It refers to another value.
pub const IS_REFERENCE: u32 = 0x0800;
/// It is a text.
pub const IS_TEXT: u32 = 0x4400;
/// Of a text: it is UTF-8.
pub const IS_UTF8: u32 = 0x2000_0000;
/// It is a text for Perl itself.
pub const IS_PRIVATE_TEXT: u32 = 0x4000;
/// Of a symbol that has no text: it has slots for a scalar, an array and so on.
pub const HAS_SLOTS: u32 = 0x8000;
/// It is an object of a class.
pub const IS_BLESSED: u32 = 0x0010_0000;
/// A text's beginning was cut off. Of a hash: it knows more than keys and values.
pub const HAS_MORE: u32 = 0x0200_0000;
/// Its text is shared with other values until one of them changes.
pub const IS_SHARED: u32 = 0x1000_0000;
/// Of a reference: it keeps nothing alive.
pub const IS_WEAK: u32 = 0x8000_0000;
/// Of an integer: it has no sign.
pub const IS_UNSIGNED: u32 = 0x8000_0000;
/// Of an array: its elements are counted.
pub const IS_COUNTING: u32 = 0x4000_0000;
/// Of an array: its elements are counted as soon as somebody else may see it, as of `@_`.
pub const WILL_COUNT: u32 = 0x8000_0000;

/// Where a body has the class.
pub const CLASS_OFFSET: u64 = 0;
/// Where a body has its magic.
pub const MAGIC_OFFSET: u64 = 8;
/// Where a body has how long its text is.
pub const TEXT_LEN_OFFSET: u64 = 0x10;
/// Where a body has how long its text may become.
pub const TEXT_CAPACITY_OFFSET: u64 = 0x18;
