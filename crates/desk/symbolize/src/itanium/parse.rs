//! Parser of linker names, from left to right. This module parses whole names, and its submodules
//! parse their parts.

mod expression;
mod name;
mod types;

use super::{MemberQualifiers, NameNode, NodeId};

/// Maximum nesting depth of parts. Each level takes some stack.
const MAX_DEPTH: u32 = 200;
/// Maximum number of nodes that are made. No real name has more parts.
const MAX_NODES: usize = 1 << 16;
/// Maximum number of parse steps. No real name needs more. Some parts are parsed in two ways. If
/// such parts are nested, each level doubles the number of steps.
const MAX_STEPS: usize = 1 << 18;

/// Properties of a name that determine how the function's signature is parsed.
#[derive(Default)]
struct NameKind {
    /// Whether the name ends in template arguments. If it does, the signature begins with the
    /// return type.
    is_template: bool,
    /// Whether the name belongs to a constructor, destructor or conversion, which have no return
    /// type.
    has_no_return: bool,
    qualifiers: MemberQualifiers,
}

pub(super) struct NameParser<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
    nodes: Vec<NameNode<'a>>,
    made: usize,
    steps: usize,
    /// The parts to which `S_`, `S0_` and so on refer. A template parameter is stored with its
    /// number, because its argument may differ when it is used again.
    substitutions: Vec<(NodeId, Option<u64>)>,
    /// The arguments to which `T_`, `T0_` and so on refer.
    parameters: Vec<NodeId>,
    /// Whether the parser is within a function's name, and not within a type. `T_` and so on refer
    /// to the template arguments of such a name.
    is_naming: bool,
    /// Template parameters that were used before their arguments were read.
    forward: Vec<NodeId>,
    /// Whether the parser is within the type of a conversion operator. The template arguments of
    /// the operator follow this type.
    is_early: bool,
    /// Whether the parser is within a lambda's parameters.
    is_lambda: bool,
}

impl<'a> NameParser<'a> {
    /// Returns a parser for the text after `_Z`.
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            depth: 0,
            nodes: Vec::new(),
            made: 0,
            steps: 0,
            substitutions: Vec::new(),
            parameters: Vec::new(),
            is_naming: false,
            forward: Vec::new(),
            is_early: false,
            is_lambda: false,
        }
    }

    pub(super) fn into_nodes(self) -> Vec<NameNode<'a>> {
        self.nodes
    }

    pub(super) fn node(&mut self, node: NameNode<'a>) -> Option<NodeId> {
        // Discarded nodes count, too.
        self.made += 1;
        if self.made > MAX_NODES {
            return None;
        }
        self.nodes.push(node);
        Some(self.nodes.len() as NodeId - 1)
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> &mut NameNode<'a> {
        &mut self.nodes[id as usize]
    }

    pub(super) fn advance(&mut self, bytes: usize) {
        self.at += bytes;
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.at..]
    }

    pub(super) fn peek(&self) -> u8 {
        self.rest().first().copied().unwrap_or(0)
    }

    pub(super) fn eat(&mut self, text: &str) -> bool {
        let is_next = self.rest().starts_with(text.as_bytes());
        if is_next {
            self.at += text.len();
        }
        is_next
    }

    pub(super) fn expect(&mut self, text: &str) -> Option<()> {
        self.eat(text).then_some(())
    }

    /// Runs a grammar rule that may contain itself.
    pub(super) fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.steps += 1;
        if self.depth == MAX_DEPTH || self.steps > MAX_STEPS {
            return None;
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// Reads bytes while `accept` returns true, and returns them as text.
    pub(super) fn take(&mut self, accept: impl Fn(u8) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.iter().position(|&b| !accept(b)).unwrap_or(rest.len());
        let from = self.at;
        self.at += length;
        // `accept` accepts only single-byte characters.
        self.text.get(from..self.at).unwrap_or_default()
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        self.take(|b| b.is_ascii_digit()).parse().ok()
    }

    /// Reads an index: `_` is 0, `0_` is 1, `1_` is 2.
    pub(super) fn index(&mut self) -> Option<u64> {
        if self.eat("_") {
            return Some(0);
        }
        let number = self.number()?;
        self.expect("_")?;
        number.checked_add(1)
    }

    /// Reads parts of a name, each by a call of `part`, up to the letter `E`, which is skipped.
    pub(super) fn until_end(
        &mut self,
        mut part: impl FnMut(&mut Self) -> Option<NodeId>,
    ) -> Option<Vec<NodeId>> {
        let mut parts = Vec::new();
        while !self.eat("E") {
            parts.push(part(self)?);
        }
        Some(parts)
    }

    /// Reads the suffixes that compilers add to copies of a function, e.g. `.constprop.0`.
    pub(super) fn clones(&mut self) -> Option<Vec<&'a str>> {
        let mut clones = Vec::new();
        while self.at < self.text.len() {
            let from = self.at;
            self.expect(".")?;
            let is_digit = self.peek().is_ascii_digit();
            if !is_digit
                && self
                    .take(|b| b.is_ascii_alphabetic() || b == b'_')
                    .is_empty()
            {
                return None;
            }
            if is_digit {
                self.at -= 1;
            }
            while self.rest().first() == Some(&b'.')
                && self.rest().get(1).is_some_and(u8::is_ascii_digit)
            {
                self.at += 1;
                self.number();
            }
            clones.push(&self.text[from..self.at]);
        }
        Some(clones)
    }

    pub(super) fn encoding(&mut self) -> Option<NodeId> {
        let outer = std::mem::take(&mut self.parameters);
        let parsed = self.nested(Self::encoding_inside);
        self.parameters = outer;
        parsed
    }

    fn encoding_inside(&mut self) -> Option<NodeId> {
        if matches!(self.peek(), b'G' | b'T') {
            return self.special();
        }
        let first_forward = self.forward.len();
        let mut kind = NameKind::default();
        let before = std::mem::replace(&mut self.is_naming, true);
        let name = self.name(&mut kind);
        self.is_naming = before;
        let name = name?;
        for forward in self.forward.split_off(first_forward) {
            let NameNode::Forward(number) = self.nodes[forward as usize] else {
                return None;
            };
            let argument = *self.parameters.get(usize::try_from(number).ok()?)?;
            self.nodes[forward as usize] = match self.nodes[argument as usize] {
                NameNode::Pack(_) => NameNode::PackParameter(argument),
                _ => NameNode::Alias(argument),
            };
        }
        if self.is_at_end() {
            return Some(name);
        }
        let returns = match kind.is_template && !kind.has_no_return {
            true => Some(self.r#type()?),
            false => None,
        };
        let mut parameters = Vec::new();
        if !self.eat("v") {
            while !self.is_at_end() {
                parameters.push(self.r#type()?);
            }
            if parameters.is_empty() {
                return None;
            }
        }
        self.node(NameNode::Function {
            returns,
            name,
            parameters,
            qualifiers: kind.qualifiers,
        })
    }

    fn is_at_end(&self) -> bool {
        matches!(self.peek(), 0 | b'E' | b'.')
    }

    fn special(&mut self) -> Option<NodeId> {
        let of_name = |parser: &mut Self| parser.name(&mut NameKind::default());
        type SpecialPart<'a> = fn(&mut NameParser<'a>) -> Option<NodeId>;
        let table: [(&str, &'static str, SpecialPart<'a>); 11] = [
            ("TV", "vtable for ", Self::r#type),
            ("TT", "VTT for ", Self::r#type),
            ("TI", "typeinfo for ", Self::r#type),
            ("TS", "typeinfo name for ", Self::r#type),
            ("TF", "typeinfo fn for ", Self::r#type),
            ("GV", "guard variable for ", of_name),
            ("TH", "TLS init function for ", of_name),
            ("TW", "TLS wrapper function for ", of_name),
            ("GA", "hidden alias for ", Self::encoding),
            ("GTt", "transaction clone for ", Self::encoding),
            ("GTn", "non-transaction clone for ", Self::encoding),
        ];
        for (code, text, part) in table {
            if self.eat(code) {
                let of = part(self)?;
                return self.node(NameNode::Special(text, of));
            }
        }
        let (text, offsets) = match self.rest() {
            [b'T', b'h', ..] => ("non-virtual thunk to ", 1),
            [b'T', b'v', ..] => ("virtual thunk to ", 1),
            [b'T', b'c', ..] => ("covariant return thunk to ", 2),
            _ => return self.rare_special(),
        };
        self.at += if offsets == 1 { 1 } else { 2 };
        for _ in 0..offsets {
            let is_virtual = self.eat("v");
            if !is_virtual {
                self.expect("h")?;
            }
            for _ in 0..=u8::from(is_virtual) {
                self.eat("n");
                self.number()?;
                self.expect("_")?;
            }
        }
        let of = self.encoding()?;
        self.node(NameNode::Special(text, of))
    }

    fn rare_special(&mut self) -> Option<NodeId> {
        if self.eat("TC") {
            let derived = self.r#type()?;
            self.number()?;
            self.expect("_")?;
            let base = self.r#type()?;
            return self.node(NameNode::ConstructionTable(base, derived));
        }
        if self.eat("TA") {
            let of = self.template_argument()?;
            return self.node(NameNode::Special("template parameter object for ", of));
        }
        self.expect("GR")?;
        let of = self.name(&mut NameKind::default())?;
        // Older compilers left the number out.
        let number = match self.is_at_end() {
            true => 0,
            false => self.index()?,
        };
        self.node(NameNode::Temporary(number, of))
    }
}
