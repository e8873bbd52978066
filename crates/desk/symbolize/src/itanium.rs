//! Converts C++ linker names to source names, with the spelling of binutils (`c++filt -i`, `nm -C`,
//! gdb).
//!
//! The grammar is the Itanium C++ ABI's
//! (<https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling>). `parse` turns a name into a
//! tree and resolves substitutions and template parameters on the way; `print` writes the tree.
//! Names are untrusted. A name that is nested too deeply, or would become too long, stays mangled.
//!
//! The library cpp_demangle (0.5) is not used, because it does not know `std::make_shared` of GCC
//! 12, and writes wrong parameters if a reference is applied to a pack. docs/dev/names.md has the
//! figures.

mod operators;
mod parse;
mod print;

use parse::NameParser;

/// How much of a function's name is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DemangleDetail {
    /// The whole function, with its parameters, and its return type if the linker's name has it.
    Whole,
    /// The function without its parameters and return type. This applies only to the outermost
    /// function.
    Name,
}

/// Returns the source name of a symbol; `None` if the text is not a C++ linker name.
pub(crate) fn demangle(symbol: &str, detail: DemangleDetail) -> Option<String> {
    let mangled = symbol.strip_prefix("_Z")?;
    let mut parser = NameParser::new(mangled);
    let root = parser.encoding()?;
    let suffixes = parser.clones()?;
    let mut name = print::print(&parser.into_nodes(), root, detail)?;
    for suffix in suffixes {
        name += &format!(" [clone {suffix}]");
    }
    Some(name)
}

/// The position of a node in the tree.
type NodeId = u32;

/// A part of a name. In a declaration, the declared name stands inside the type, so function and
/// array types have a left and a right half.
#[derive(Clone, Debug)]
enum NameNode<'a> {
    /// A text that is written as it is.
    Text(&'a str),
    /// A builtin type, and the suffix of its literals. The suffix is `None` if its literals begin
    /// with the type in parentheses.
    Builtin(&'static str, Option<&'static str>),
    /// An abbreviation of the ABI (such as `Ss`): the whole name, and the name of its constructors.
    Standard(&'static str, &'static str),
    /// `left::right`.
    Qualified(NodeId, NodeId),
    /// An entity inside a function: `function::entity`.
    Local(NodeId, NodeId),
    /// A name with its template arguments.
    Template(NodeId, Vec<NodeId>),
    /// A name with an ABI tag.
    Tagged(NodeId, &'a str),
    /// A class's constructor or destructor: the text before its name, and the class.
    Structor(&'static str, NodeId),
    /// `operator` and a symbol.
    Operator(&'static str),
    /// The operator of a user-defined literal.
    LiteralOperator(NodeId),
    /// `operator` and a type.
    Conversion(NodeId),
    /// `{lambda(types)#number}`.
    Lambda(Vec<NodeId>, u64),
    /// `{unnamed type#number}`.
    Unnamed(u64),
    /// `{default arg#number}::`.
    DefaultArgument(u64, NodeId),
    /// `[a, b]`.
    Bindings(Vec<NodeId>),
    /// A text and the entity that it applies to, as in `vtable for`.
    Special(&'static str, NodeId),
    /// A text with two names: `construction vtable for A-in-B`.
    ConstructionTable(NodeId, NodeId),
    /// `reference temporary #number for`.
    Temporary(u64, NodeId),
    /// A function with its name and parameters.
    Function {
        returns: Option<NodeId>,
        name: NodeId,
        parameters: Vec<NodeId>,
        qualifiers: MemberQualifiers,
    },
    /// The type of a function.
    FunctionType {
        returns: NodeId,
        parameters: Vec<NodeId>,
        exceptions: ExceptionSpecification,
        reference: &'static str,
    },
    Pointer(NodeId),
    Reference(NodeId),
    RvalueReference(NodeId),
    /// A type with `const`, `volatile`, or `restrict`.
    Qualifier(NodeId, &'static str),
    /// A type with a qualifier of the compiler vendor.
    VendorQualifier(NodeId, NodeId),
    /// A type with `_Complex` or `_Imaginary`.
    After(NodeId, &'static str),
    Array(Option<NodeId>, NodeId),
    /// A pointer to a member: the class, and the type of the member.
    MemberPointer(NodeId, NodeId),
    Vector(NodeId, NodeId),
    BitInt(NodeId, bool),
    Decltype(NodeId),
    /// The arguments of a parameter pack.
    Pack(Vec<NodeId>),
    /// A template parameter whose argument is a pack.
    PackParameter(NodeId),
    /// A pattern that is written once for each argument of its packs.
    Expansion(NodeId),
    /// A reference to another node. It replaces a template parameter that was used before its
    /// argument was known.
    Alias(NodeId),
    /// The number of a template parameter whose arguments come later in the name.
    Forward(u64),
    /// A template parameter of a lambda.
    Auto(u64),
    /// A function's parameter in an expression; 0 is `this`.
    Parameter(u64),
    /// A literal: its type, whether it is negative, and its digits.
    Literal(NodeId, bool, &'a str),
    Unary(&'static str, NodeId),
    /// An operator that is written after its operand.
    Postfix(NodeId, &'static str),
    Binary(&'static str, NodeId, NodeId),
    Conditional(NodeId, NodeId, NodeId),
    Fold(NodeId, &'static str, Option<NodeId>, bool),
    Call(NodeId, Vec<NodeId>),
    /// `name<type>(expression)`.
    NamedCast(&'static str, NodeId, NodeId),
    /// `(type)(expressions)`.
    Cast(NodeId, Vec<NodeId>),
    /// `type{expressions}`.
    Braces(Option<NodeId>, Vec<NodeId>),
    /// A word, and its operand in parentheses.
    Word(&'static str, NodeId),
    New(&'static str, Vec<NodeId>, NodeId, Option<Vec<NodeId>>),
    /// `::name`.
    Global(NodeId),
    /// The number of arguments of a pack.
    Count(NodeId),
}

/// The qualifiers of a member function, which restrict the objects that it may be called on.
#[derive(Clone, Copy, Debug, Default)]
struct MemberQualifiers {
    words: [&'static str; 3],
    reference: &'static str,
}

/// The exception specification of a function type.
#[derive(Clone, Debug)]
enum ExceptionSpecification {
    Silent,
    None,
    NoneIf(NodeId),
    Only(Vec<NodeId>),
}

#[cfg(test)]
mod tests {
    use super::{DemangleDetail, demangle};

    /// Compares names with the output of `c++filt -i` (binutils 2.40).
    #[test]
    fn names_as_binutils_writes_them() {
        for line in include_str!("itanium/names.txt").lines() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (symbol, name) = line.split_once('\t').unwrap();
            let found = demangle(symbol, DemangleDetail::Whole);
            assert_eq!(found.as_deref(), Some(name), "{symbol}");
        }
    }

    #[test]
    fn what_is_no_name_has_no_other_form() {
        for symbol in [
            "",
            "_Z",
            "main",
            "_Z3fo",
            "_ZN3foo",
            "_ZS_",
            "_Z1fT_",
            "_Z1fi$",
            "_ZZZZZ",
            "_Z99999999999999999999a",
        ] {
            assert_eq!(demangle(symbol, DemangleDetail::Whole), None, "{symbol}");
        }
    }

    /// Checks that no name takes much time or memory, neither by nesting nor by repeated doubling.
    #[test]
    fn hostile_names_have_an_end() {
        let doubled = (0..60).fold(String::from("_Z1fP1A"), |name, i| {
            let reference = match i {
                0 => "S_".to_string(),
                i => format!("S{}_", char::from(b'0' + (i as u8 - 1) % 10)),
            };
            format!("{name}I{reference}{reference}E")
        });
        let packs = format!(
            "_Z1fI{}{}Ev{}",
            "J".repeat(50),
            "E".repeat(50),
            "DpT_".repeat(50)
        );
        let many = [
            doubled,
            packs,
            format!("_Z1f{}i", "P".repeat(100_000)),
            format!("_Z1f{}", "F".repeat(100_000)),
            format!("_Z1fI{}", "X".repeat(100_000)),
            format!("_Z1fIX{}", "ps".repeat(100_000)),
            format!("_Z{}", "Z1fvE".repeat(100_000)),
            format!("_Z{}", "Z".repeat(100_000)),
            format!("_ZN{}E", "1a".repeat(100_000)),
            format!("_Z1f{}", "Dp".repeat(100_000)),
            format!("_Z1fI{}", "Xsr1aI".repeat(100_000)),
            format!(
                "_ZN1AcvFv{}EIJ{}EEEv",
                "T_".repeat(30_000),
                "i".repeat(30_000)
            ),
            "_ZN1AcvKVT_IS1_EEv".to_string(),
            "_ZN1AcvKVT_IS2_EEv".to_string(),
            "_Z1fIiXsr1aIT_Ts1BIcEEvEEvv".to_string(),
            format!("_Z1fIiX{}zz", "srNT_IX".repeat(40)),
            "_Z10_GLOBAL_év".to_string(),
            "_Z11_GLOBAL_.év".to_string(),
            format!("_Z1f{}i", "PS_K".repeat(20_000)),
        ];
        for symbol in many {
            let name = demangle(&symbol, DemangleDetail::Whole);
            assert!(name.is_none_or(|name| name.len() <= 64 << 10));
        }
    }
}
