//! The numbers of Perl's sv.h: types, flags, and offsets in bodies. They are equal in 5.22 to 5.42.

/// Size in bytes of a value's head.
pub const HEAD_SIZE: u64 = 24;

/// Type: an integer.
pub const INTEGER: u32 = 1;
/// Type: a floating-point number.
pub const NUMBER: u32 = 2;
/// Type: a text.
pub const TEXT: u32 = 3;
/// Type: a set of characters of a regular expression.
pub const INVLIST: u32 = 4;
/// Type: a scalar that may have a class and magic.
pub const MAGICAL: u32 = 7;
/// Type: a regular expression.
pub const REGEXP: u32 = 8;
/// Type: a symbol.
pub const GLOB: u32 = 9;
/// Type: a value that stands for a part of another value.
pub const LVALUE: u32 = 10;
/// Type: an array.
pub const ARRAY: u32 = 11;
/// Type: a hash.
pub const HASH: u32 = 12;
/// Type: a sub.
pub const CODE: u32 = 13;
/// Type: a format.
pub const FORMAT: u32 = 14;
/// Type: a file or directory handle.
pub const IO: u32 = 15;
/// Type: an object of a class that was declared by `class`, from 5.38.
pub const OBJECT: u32 = 16;
/// The number of types.
pub const TYPE_COUNT: usize = 17;

/// The bits with the type in a head's flags. In a free head, all of them are set.
pub const TYPE_MASK: u32 = 0xff;
/// Flags: the value is an integer.
pub const IS_INTEGER: u32 = 0x1100;
/// Flags: the value is a floating-point number.
pub const IS_FLOAT: u32 = 0x2200;
/// Flags: the value is a number, a text, a reference or a symbol.
pub const IS_DEFINED: u32 = 0xff00;
/// Flag: the value refers to another value.
pub const IS_REFERENCE: u32 = 0x0800;
/// Flags: the value is a text.
pub const IS_TEXT: u32 = 0x4400;
/// Flag of a text: it is UTF-8.
pub const IS_UTF8: u32 = 0x2000_0000;
/// Flag: the value is a text for Perl's internal use.
pub const IS_PRIVATE_TEXT: u32 = 0x4000;
/// Flag: the symbol has slots for a scalar, an array and so on, and no text.
pub const HAS_SLOTS: u32 = 0x8000;
/// Flag: the value is an object of a class.
pub const IS_BLESSED: u32 = 0x0010_0000;
/// Flag of a text whose beginning was cut off, and of a hash with auxiliary data.
pub const HAS_MORE: u32 = 0x0200_0000;
/// Flag: the value's text is shared with other values until one of them is changed.
pub const IS_SHARED: u32 = 0x1000_0000;
/// Flag of a weak reference, which keeps nothing alive.
pub const IS_WEAK: u32 = 0x8000_0000;
/// Flag of an unsigned integer.
pub const IS_UNSIGNED: u32 = 0x8000_0000;
/// Flag of an array whose elements have counted references.
pub const IS_COUNTING: u32 = 0x4000_0000;
/// Flag of an array, such as `@_`, whose elements do not have counted references yet. They will
/// have them as soon as other code may see the array.
pub const WILL_COUNT: u32 = 0x8000_0000;

/// Offset of the class in a body.
pub const CLASS_OFFSET: u64 = 0;
/// Offset of the magic in a body.
pub const MAGIC_OFFSET: u64 = 8;
/// Offset of the text's length in a body.
pub const TEXT_LEN_OFFSET: u64 = 0x10;
/// Offset of the text's capacity in a body.
pub const TEXT_CAPACITY_OFFSET: u64 = 0x18;
