//! The grammar of names: their scopes, template arguments, and references to earlier parts.

use super::super::operators::{self, OperatorForm};
use super::super::{NameNode, NodeId};
use super::{NameKind, NameParser};

impl<'a> NameParser<'a> {
    pub(super) fn name(&mut self, kind: &mut NameKind) -> Option<NodeId> {
        self.nested(|parser| match parser.peek() {
            b'N' => parser.nested_name(kind),
            b'Z' => parser.local_name(kind),
            b'S' if parser.rest().get(1) != Some(&b't') => {
                let template = parser.substitution()?;
                match parser.peek() {
                    b'I' => parser.template(template, kind),
                    _ => Some(template),
                }
            }
            _ => {
                let name = parser.unscoped_name(kind)?;
                if parser.peek() != b'I' {
                    return Some(name);
                }
                parser.substitutions.push((name, None));
                parser.template(name, kind)
            }
        })
    }

    /// Reads the arguments that follow a template's name.
    pub(super) fn template(&mut self, name: NodeId, kind: &mut NameKind) -> Option<NodeId> {
        let arguments = self.template_arguments(self.is_naming)?;
        kind.is_template = true;
        self.node(NameNode::Template(name, arguments))
    }

    pub(super) fn unscoped_name(&mut self, kind: &mut NameKind) -> Option<NodeId> {
        if !self.eat("St") {
            return self.unqualified_name(kind, None);
        }
        let std = self.node(NameNode::Text("std"))?;
        let name = self.unqualified_name(kind, None)?;
        self.node(NameNode::Qualified(std, name))
    }

    pub(super) fn nested_name(&mut self, kind: &mut NameKind) -> Option<NodeId> {
        self.expect("N")?;
        kind.qualifiers.words = self.qualifier_words();
        kind.qualifiers.reference = match self.peek() {
            b'R' => " &",
            b'O' => " &&",
            _ => "",
        };
        if !kind.qualifiers.reference.is_empty() {
            self.at += 1;
        }
        let mut scope: Option<NodeId> = None;
        let mut is_substitution = false;
        while !self.eat("E") {
            // This marks a closure in a member's initializer.
            if scope.is_some() && self.eat("M") {
                continue;
            }
            is_substitution = false;
            let next = self.rest().get(1).copied().unwrap_or(0);
            let found = match (self.peek(), next) {
                (b'T', _) => {
                    let (parameter, number) = self.numbered_parameter()?;
                    self.substitutions.push((parameter, number));
                    scope = Some(parameter);
                    continue;
                }
                (b'I', _) => {
                    let template = self.template(scope?, kind)?;
                    self.substitutions.push((template, None));
                    scope = Some(template);
                    continue;
                }
                (b'D', b't' | b'T') => self.r#decltype()?,
                (b'S', b't') => {
                    self.at += 2;
                    scope = Some(self.node(NameNode::Text("std"))?);
                    is_substitution = true;
                    continue;
                }
                (b'S', _) => {
                    scope = Some(self.substitution()?);
                    is_substitution = true;
                    continue;
                }
                _ => {
                    kind.is_template = false;
                    self.unqualified_name(kind, scope)?
                }
            };
            let joined = match scope {
                Some(scope) => self.node(NameNode::Qualified(scope, found))?,
                None => found,
            };
            self.substitutions.push((joined, None));
            scope = Some(joined);
        }
        // The whole name is not a candidate for substitution.
        if !is_substitution {
            self.substitutions.pop();
        }
        scope
    }

    pub(super) fn qualifier_words(&mut self) -> [&'static str; 3] {
        let mut words = [""; 3];
        for (i, (code, word)) in [("r", " restrict"), ("V", " volatile"), ("K", " const")]
            .into_iter()
            .enumerate()
        {
            if self.eat(code) {
                words[2 - i] = word;
            }
        }
        words
    }

    pub(super) fn local_name(&mut self, kind: &mut NameKind) -> Option<NodeId> {
        self.expect("Z")?;
        let function = self.encoding()?;
        self.expect("E")?;
        if self.eat("s") {
            self.discriminator();
            let literal = self.node(NameNode::Text("string literal"))?;
            return self.node(NameNode::Local(function, literal));
        }
        if self.eat("d") {
            let number = self.index()?;
            let entity = self.name(kind)?;
            let entity = self.node(NameNode::DefaultArgument(number.checked_add(1)?, entity))?;
            return self.node(NameNode::Local(function, entity));
        }
        let entity = self.name(kind)?;
        self.discriminator();
        self.node(NameNode::Local(function, entity))
    }

    /// Skips the number that distinguishes entities with the same name in one function.
    pub(super) fn discriminator(&mut self) {
        let from = self.at;
        let is_one = match self.eat("_") {
            false => return,
            true if self.eat("_") => self.number().is_some() && self.eat("_"),
            true => !self.take(|b| b.is_ascii_digit()).is_empty(),
        };
        if !is_one {
            self.at = from;
        }
    }

    pub(super) fn unqualified_name(
        &mut self,
        kind: &mut NameKind,
        scope: Option<NodeId>,
    ) -> Option<NodeId> {
        let next = self.rest().get(1).copied().unwrap_or(0);
        kind.has_no_return = false;
        let name = match (self.peek(), next) {
            (b'0'..=b'9', _) => self.source_name()?,
            (b'L', _) => {
                self.at += 1;
                let name = self.source_name()?;
                self.discriminator();
                name
            }
            (b'U', b't') => {
                self.at += 2;
                let number = self.index()?;
                self.node(NameNode::Unnamed(number.checked_add(1)?))?
            }
            (b'U', b'l') => self.lambda()?,
            (b'C', b'1'..=b'5' | b'I') => {
                kind.has_no_return = true;
                self.at += 1;
                let inherits = self.eat("I");
                self.at += 1;
                if inherits {
                    self.name(&mut NameKind::default())?;
                }
                self.node(NameNode::Structor("", scope?))?
            }
            (b'D', b'0'..=b'5') => {
                kind.has_no_return = true;
                self.at += 2;
                self.node(NameNode::Structor("~", scope?))?
            }
            (b'D', b'C') => {
                self.at += 2;
                let names = self.until_end(Self::source_name)?;
                self.node(NameNode::Bindings(names))?
            }
            (b'c', b'v') => {
                self.at += 2;
                kind.has_no_return = true;
                let before = std::mem::replace(&mut self.is_early, true);
                let to = self.r#type();
                self.is_early = before;
                self.node(NameNode::Conversion(to?))?
            }
            (b'l', b'i') => {
                self.at += 2;
                let name = self.source_name()?;
                self.node(NameNode::LiteralOperator(name))?
            }
            _ => {
                let (name, form) = operators::find(self.rest().get(..2)?)?;
                if form == OperatorForm::NamedCast {
                    return None;
                }
                self.at += 2;
                self.node(NameNode::Operator(name))?
            }
        };
        self.tagged(name)
    }

    pub(super) fn tagged(&mut self, mut name: NodeId) -> Option<NodeId> {
        while self.eat("B") {
            let tag = self.identifier()?;
            name = self.node(NameNode::Tagged(name, tag))?;
        }
        Some(name)
    }

    pub(super) fn lambda(&mut self) -> Option<NodeId> {
        self.expect("Ul")?;
        let before = std::mem::replace(&mut self.is_lambda, true);
        let parameters = self.until_end(Self::r#type);
        self.is_lambda = before;
        let mut parameters = parameters?;
        let is_void =
            |id: &NodeId| matches!(self.nodes[*id as usize], NameNode::Builtin("void", _));
        parameters.retain(|id| !is_void(id));
        let number = self.index()?;
        self.node(NameNode::Lambda(parameters, number.checked_add(1)?))
    }

    pub(super) fn identifier(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.number()?).ok()?;
        let end = self.at.checked_add(length).filter(|_| length > 0)?;
        let name = self.text.get(self.at..end)?;
        self.at = end;
        Some(name)
    }

    pub(super) fn source_name(&mut self) -> Option<NodeId> {
        let name = self.identifier()?;
        let is_anonymous = name
            .strip_prefix("_GLOBAL_")
            .is_some_and(|rest| matches!(rest.as_bytes(), [b'.' | b'_' | b'$', b'N', ..]));
        self.node(NameNode::Text(match is_anonymous {
            true => "(anonymous namespace)",
            false => name,
        }))
    }

    /// Reads a reference to an earlier part (`S_`, `S0_` and so on), or an abbreviation of the ABI.
    pub(super) fn substitution(&mut self) -> Option<NodeId> {
        self.expect("S")?;
        let standard = [
            ("a", "std::allocator", "allocator"),
            ("b", "std::basic_string", "basic_string"),
            ("s", "std::string", "string"),
            ("i", "std::istream", "istream"),
            ("o", "std::ostream", "ostream"),
            ("d", "std::iostream", "iostream"),
        ];
        for (code, name, class) in standard {
            if self.eat(code) {
                let (name, class) = match self.peek() {
                    b'C' | b'D' => long_form(name, class),
                    _ => (name, class),
                };
                let name = self.node(NameNode::Standard(name, class))?;
                let tagged = self.tagged(name)?;
                if tagged != name {
                    self.substitutions.push((tagged, None));
                }
                return Some(tagged);
            }
        }
        let digits = self.take(|b| b.is_ascii_digit() || b.is_ascii_uppercase());
        self.expect("_")?;
        let number = match digits {
            "" => 0,
            digits => usize::from_str_radix(digits, 36).ok()?.checked_add(1)?,
        };
        match *self.substitutions.get(number)? {
            (_, Some(parameter)) => self.argument(parameter),
            (known, None) => Some(known),
        }
    }

    pub(super) fn template_parameter(&mut self) -> Option<NodeId> {
        self.numbered_parameter().map(|(parameter, _)| parameter)
    }

    pub(super) fn numbered_parameter(&mut self) -> Option<(NodeId, Option<u64>)> {
        self.expect("T")?;
        // `L` and an index give the nesting level of a lambda's parameters.
        if self.eat("L") {
            self.index()?;
        }
        let number = self.index()?;
        Some((self.argument(number)?, Some(number)))
    }

    /// Returns the argument of the template parameter with this number.
    pub(super) fn argument(&mut self, number: u64) -> Option<NodeId> {
        if self.is_lambda {
            return self.node(NameNode::Auto(number.checked_add(1)?));
        }
        let argument = usize::try_from(number)
            .ok()
            .and_then(|i| self.parameters.get(i));
        match argument {
            Some(&pack) if matches!(self.nodes[pack as usize], NameNode::Pack(_)) => {
                self.node(NameNode::PackParameter(pack))
            }
            Some(&argument) => Some(argument),
            None if self.is_early => {
                let forward = self.node(NameNode::Forward(number))?;
                self.forward.push(forward);
                Some(forward)
            }
            None => None,
        }
    }

    /// Reads template arguments: `I`, the arguments, `E`. If `of_name`, later template parameters
    /// refer to these arguments.
    pub(super) fn template_arguments(&mut self, of_name: bool) -> Option<Vec<NodeId>> {
        self.expect("I")?;
        if of_name {
            self.parameters.clear();
        }
        self.until_end(|parser| {
            let argument = parser.template_argument()?;
            if of_name {
                // A later argument may refer to an earlier argument.
                parser.parameters.push(argument);
            }
            Some(argument)
        })
    }

    pub(super) fn template_argument(&mut self) -> Option<NodeId> {
        self.nested(|parser| match parser.peek() {
            b'X' => {
                parser.at += 1;
                let expression = parser.expression()?;
                parser.expect("E")?;
                Some(expression)
            }
            b'J' => {
                parser.at += 1;
                let arguments = parser.until_end(Self::template_argument)?;
                parser.node(NameNode::Pack(arguments))
            }
            b'L' => parser.literal(),
            _ => parser.r#type(),
        })
    }

    /// Reads a template parameter that is used as an expression.
    pub(super) fn parameter(&mut self) -> Option<NodeId> {
        self.template_parameter()
    }

    /// Reads an unqualified name in an expression, with its template arguments if it has any.
    pub(super) fn simple_name(&mut self) -> Option<NodeId> {
        if self.eat("dn") {
            let of = match self.peek() {
                b'0'..=b'9' => self.with_arguments()?,
                _ => self.r#type()?,
            };
            return self.node(NameNode::Structor("~", of));
        }
        if self.eat("on") {
            let name = self.unqualified_name(&mut NameKind::default(), None)?;
            return match self.peek() {
                b'I' => {
                    let arguments = self.template_arguments(false)?;
                    self.node(NameNode::Template(name, arguments))
                }
                _ => Some(name),
            };
        }
        self.with_arguments()
    }

    pub(super) fn with_arguments(&mut self) -> Option<NodeId> {
        let name = match self.peek() {
            b'0'..=b'9' => self.source_name()?,
            _ => self.unqualified_name(&mut NameKind::default(), None)?,
        };
        let name = self.tagged(name)?;
        match self.peek() {
            b'I' => {
                let arguments = self.template_arguments(false)?;
                self.node(NameNode::Template(name, arguments))
            }
            _ => Some(name),
        }
    }

    /// Reads a dependent name. It has one of three forms: `sr`, a type, a name in this type; or
    /// `srN`, a type, more names, `E`, a name; or `sr`, names, `E`, a name.
    pub(super) fn dependent_name(&mut self) -> Option<NodeId> {
        self.expect("sr")?;
        // Later template parameters do not refer to template arguments within this name.
        let before = std::mem::replace(&mut self.is_naming, false);
        let name = self.dependent_name_inside();
        self.is_naming = before;
        name
    }

    fn dependent_name_inside(&mut self) -> Option<NodeId> {
        let (at, nodes, substitutions) = (self.at, self.nodes.len(), self.substitutions.len());
        let forward = self.forward.len();
        if let Some(name) = self.name_in_names() {
            return Some(name);
        }
        // GCC writes a type here, although the ABI demands names.
        self.at = at;
        self.nodes.truncate(nodes);
        self.substitutions.truncate(substitutions);
        self.forward.truncate(forward);
        let scope = self.r#type()?;
        self.name_in(scope)
    }

    /// Reads the last name of a dependent name. As in binutils, its template arguments belong to
    /// the whole name.
    pub(super) fn name_in(&mut self, scope: NodeId) -> Option<NodeId> {
        let name = self.simple_name()?;
        let NameNode::Template(name, arguments) = self.nodes[name as usize].clone() else {
            return self.node(NameNode::Qualified(scope, name));
        };
        let qualified = self.node(NameNode::Qualified(scope, name))?;
        self.node(NameNode::Template(qualified, arguments))
    }

    pub(super) fn name_in_names(&mut self) -> Option<NodeId> {
        let mut scope = match (self.peek(), self.rest().get(1)?) {
            (b'0'..=b'9', _) => self.with_arguments()?,
            (b'N', b'T' | b'D' | b'S') if self.rest().get(2) != Some(&b't') => {
                self.at += 1;
                self.r#type()?
            }
            _ => return None,
        };
        while !self.eat("E") {
            let level = match self.peek() {
                b'0'..=b'9' => self.with_arguments()?,
                _ => return None,
            };
            scope = self.node(NameNode::Qualified(scope, level))?;
        }
        self.name_in(scope)
    }
}

/// Returns the full name of an abbreviation and the plain name of its class, for use with a
/// constructor or destructor. Abbreviations that do not include template arguments keep `name` and
/// `class`.
fn long_form(name: &'static str, class: &'static str) -> (&'static str, &'static str) {
    match class {
        "string" => (
            "std::basic_string<char, std::char_traits<char>, std::allocator<char> >",
            "basic_string",
        ),
        "istream" => (
            "std::basic_istream<char, std::char_traits<char> >",
            "basic_istream",
        ),
        "ostream" => (
            "std::basic_ostream<char, std::char_traits<char> >",
            "basic_ostream",
        ),
        "iostream" => (
            "std::basic_iostream<char, std::char_traits<char> >",
            "basic_iostream",
        ),
        _ => (name, class),
    }
}
