//! Writes the tree as text. A type is written as in a declaration, with one half before the
//! declared name and the other after it.

mod expression;

use super::{DemangleDetail, ExceptionSpecification, MemberQualifiers, NameNode, NodeId};

/// Maximum length of a written name. A few bytes of a hostile name may expand to gigabytes, and no
/// user reads longer names.
const MAX_NAME_BYTES: usize = 64 << 10;
/// Maximum number of steps for one name.
const MAX_STEPS: u32 = 1 << 20;
const MAX_DEPTH: u32 = 1000;

/// Returns the text of `root`.
pub(super) fn print(
    nodes: &[NameNode<'_>],
    root: NodeId,
    detail: DemangleDetail,
) -> Option<String> {
    let mut printer = NamePrinter {
        nodes,
        text: String::new(),
        steps: 0,
        depth: 0,
        element: None,
        is_refused: false,
    };
    match (&nodes[root as usize], detail) {
        (NameNode::Function { name, .. }, DemangleDetail::Name) => printer.whole(*name),
        _ => printer.whole(root),
    }
    (!printer.is_refused).then_some(printer.text)
}

struct NamePrinter<'n, 'a> {
    nodes: &'n [NameNode<'a>],
    text: String,
    steps: u32,
    depth: u32,
    /// The index of the pack argument that an expansion is writing.
    element: Option<usize>,
    is_refused: bool,
}

impl<'n, 'a> NamePrinter<'n, 'a> {
    fn push(&mut self, text: &str) {
        if self.text.len() + text.len() > MAX_NAME_BYTES {
            self.is_refused = true;
        }
        if !self.is_refused {
            self.text.push_str(text);
        }
    }

    fn push_number(&mut self, number: u64) {
        self.push(&number.to_string());
    }

    /// Returns a node. Inside an expansion, a pack parameter becomes its current argument.
    fn node(&self, id: NodeId) -> &'n NameNode<'a> {
        &self.nodes[self.resolve(id) as usize]
    }

    fn resolve(&self, mut id: NodeId) -> NodeId {
        for _ in 0..MAX_DEPTH {
            match (&self.nodes[id as usize], self.element) {
                (NameNode::Alias(of), _) => id = *of,
                (NameNode::PackParameter(pack), Some(element)) => {
                    let NameNode::Pack(arguments) = &self.nodes[*pack as usize] else {
                        break;
                    };
                    match arguments.get(element) {
                        Some(&argument) => id = argument,
                        None => break,
                    }
                }
                _ => break,
            }
        }
        id
    }

    fn whole(&mut self, id: NodeId) {
        self.left(id);
        self.right(id);
    }

    /// Writes parts separated by commas. A part without text gets no comma. Returns whether the
    /// last part had no text.
    fn list(&mut self, ids: &[NodeId]) -> bool {
        let mut is_first = true;
        let mut ends_empty = false;
        for &id in ids {
            let before = self.text.len();
            if !is_first {
                self.push(", ");
            }
            let empty = self.text.len();
            self.whole(id);
            ends_empty = self.text.len() == empty && !is_first;
            if self.text.len() == empty {
                self.text.truncate(before);
            } else {
                is_first = false;
            }
        }
        ends_empty
    }

    fn parameters(&mut self, ids: &[NodeId]) {
        self.push("(");
        self.list(ids);
        self.push(")");
    }

    fn arguments(&mut self, ids: &[NodeId]) {
        if self.text.ends_with('<') {
            self.push(" ");
        }
        self.push("<");
        let ends_empty = self.list(ids);
        // binutils checks the last character that it wrote. After an empty pack, this is the blank
        // that it took back, and not the `>`.
        if self.text.ends_with('>') && !ends_empty {
            self.push(" ");
        }
        self.push(">");
    }

    fn qualifiers(&mut self, qualifiers: &MemberQualifiers) {
        qualifiers
            .words
            .into_iter()
            .for_each(|word| self.push(word));
        self.push(qualifiers.reference);
    }

    /// Counts one more step and one more level.
    fn enter(&mut self) {
        self.steps += 1;
        self.depth += 1;
        self.is_refused |= self.steps > MAX_STEPS || self.depth > MAX_DEPTH;
    }

    /// Writes the part of a type that comes before the declared name.
    fn left(&mut self, id: NodeId) {
        self.enter();
        if !self.is_refused {
            self.left_of(id);
        }
        self.depth -= 1;
    }

    fn left_of(&mut self, id: NodeId) {
        match self.node(id) {
            NameNode::Text(text) => self.push(text),
            NameNode::Builtin(name, _) | NameNode::Standard(name, _) => self.push(name),
            NameNode::Qualified(scope, name) => {
                self.whole(*scope);
                self.push("::");
                self.whole(*name);
            }
            NameNode::Local(function, entity) => {
                self.function(*function, false);
                self.push("::");
                self.whole(*entity);
            }
            NameNode::Template(name, arguments) => {
                self.whole(*name);
                self.arguments(arguments);
            }
            NameNode::Tagged(name, tag) => {
                self.whole(*name);
                self.push(&format!("[abi:{tag}]"));
            }
            NameNode::Structor(before, class) => {
                self.push(before);
                self.class_name(*class);
            }
            NameNode::Operator(name) => {
                self.push("operator");
                if name.starts_with(|c: char| c.is_ascii_lowercase()) {
                    self.push(" ");
                }
                self.push(name.trim_end());
            }
            NameNode::LiteralOperator(name) => {
                self.push("operator\"\" ");
                self.whole(*name);
            }
            NameNode::Conversion(to) => {
                self.push("operator ");
                self.whole(*to);
            }
            NameNode::Lambda(parameters, number) => {
                self.push("{lambda");
                self.parameters(parameters);
                self.push("#");
                self.push_number(*number);
                self.push("}");
            }
            NameNode::Unnamed(number) => {
                self.push("{unnamed type#");
                self.push_number(*number);
                self.push("}");
            }
            NameNode::DefaultArgument(number, entity) => {
                self.push("{default arg#");
                self.push_number(*number);
                self.push("}::");
                self.whole(*entity);
            }
            NameNode::Bindings(names) => {
                self.push("[");
                self.list(names);
                self.push("]");
            }
            NameNode::Special(text, of) => {
                self.push(text);
                self.whole(*of);
            }
            NameNode::ConstructionTable(base, derived) => {
                self.push("construction vtable for ");
                self.whole(*base);
                self.push("-in-");
                self.whole(*derived);
            }
            NameNode::Temporary(number, of) => {
                self.push("reference temporary #");
                self.push_number(*number);
                self.push(" for ");
                self.whole(*of);
            }
            NameNode::Function { .. } => self.function(id, true),
            NameNode::FunctionType { returns, .. } => {
                self.left(*returns);
                if !self.text.ends_with(['(', '*']) || !self.has_right(*returns) {
                    self.push(" ");
                }
            }
            NameNode::Pointer(of) => self.declarator(*of, "*"),
            NameNode::Reference(of) => match self.node(*of) {
                NameNode::Reference(_) => self.left(*of),
                NameNode::RvalueReference(of) => self.declarator(*of, "&"),
                _ => self.declarator(*of, "&"),
            },
            NameNode::RvalueReference(of) => match self.node(*of) {
                NameNode::Reference(_) | NameNode::RvalueReference(_) => self.left(*of),
                _ => self.declarator(*of, "&&"),
            },
            NameNode::Qualifier(of, word) => {
                self.left(*of);
                let is_twice =
                    matches!(self.node(*of), NameNode::Qualifier(_, same) if same == word);
                if !is_twice && !self.is_function(*of) {
                    self.push(word);
                }
            }
            NameNode::VendorQualifier(of, word) => {
                self.left(*of);
                self.push(" ");
                self.whole(*word);
            }
            NameNode::After(of, word) => {
                self.left(*of);
                self.push(word);
            }
            NameNode::Array(_, of) => self.left(*of),
            NameNode::MemberPointer(class, member) => {
                self.left(*member);
                if self.needs_parentheses(*member) {
                    if !self.text.ends_with(' ') {
                        self.push(" ");
                    }
                    self.push("(");
                } else {
                    self.push(" ");
                }
                self.whole(*class);
                self.push("::*");
            }
            NameNode::Vector(length, of) => {
                self.whole(*of);
                self.push(" __vector(");
                self.whole(*length);
                self.push(")");
            }
            NameNode::BitInt(bits, is_unsigned) => {
                self.push(if *is_unsigned {
                    "unsigned _BitInt("
                } else {
                    "signed _BitInt("
                });
                self.whole(*bits);
                self.push(")");
            }
            NameNode::Decltype(expression) => {
                self.push("decltype (");
                self.whole(*expression);
                self.push(")");
            }
            NameNode::Pack(arguments) => _ = self.list(arguments),
            // Outside an expansion, all arguments are written. Inside an expansion, a pack that is
            // too short writes nothing.
            NameNode::PackParameter(pack) => {
                if self.element.is_none() {
                    self.whole(*pack);
                }
            }
            NameNode::Expansion(pattern) => self.expansion(*pattern),
            NameNode::Forward(_) => self.is_refused = true,
            NameNode::Auto(number) => {
                self.push("auto:");
                self.push_number(*number);
            }
            _ => self.expression(id),
        }
    }

    fn declarator(&mut self, of: NodeId, sign: &str) {
        self.left(of);
        if self.needs_parentheses(of) {
            if !self.text.ends_with(' ') {
                self.push(" ");
            }
            self.push("(");
        }
        self.push(sign);
    }

    /// Whether a pointer or reference to this type needs parentheses.
    fn needs_parentheses(&self, of: NodeId) -> bool {
        let of = self.unqualified(of);
        matches!(of, NameNode::FunctionType { .. } | NameNode::Array(..))
    }

    fn is_function(&self, of: NodeId) -> bool {
        matches!(self.unqualified(of), NameNode::FunctionType { .. })
    }

    /// Returns a type without its qualifiers such as `const`.
    fn unqualified(&self, mut of: NodeId) -> &'n NameNode<'a> {
        for _ in 0..MAX_DEPTH {
            match self.node(of) {
                NameNode::Qualifier(inner, _) => of = *inner,
                _ => break,
            }
        }
        self.node(of)
    }

    /// Whether a part of this type is written after the declared name.
    fn has_right(&self, mut of: NodeId) -> bool {
        // In a hostile name, a part may contain itself.
        for _ in 0..MAX_DEPTH {
            match self.node(of) {
                NameNode::FunctionType { .. } | NameNode::Array(..) => return true,
                NameNode::Pointer(inner)
                | NameNode::Reference(inner)
                | NameNode::RvalueReference(inner)
                | NameNode::Qualifier(inner, _)
                | NameNode::MemberPointer(_, inner) => of = *inner,
                _ => return false,
            }
        }
        false
    }

    /// Writes the part of a type that comes after the declared name.
    fn right(&mut self, id: NodeId) {
        self.enter();
        if !self.is_refused {
            self.right_of(id);
        }
        self.depth -= 1;
    }

    fn right_of(&mut self, id: NodeId) {
        match self.node(id) {
            NameNode::FunctionType {
                returns,
                parameters,
                exceptions,
                reference,
            } => {
                self.parameters(parameters);
                self.push(reference);
                match exceptions {
                    ExceptionSpecification::Silent => {}
                    ExceptionSpecification::None => self.push(" noexcept"),
                    ExceptionSpecification::NoneIf(condition) => {
                        self.push(" noexcept(");
                        self.whole(*condition);
                        self.push(")");
                    }
                    ExceptionSpecification::Only(types) => {
                        self.push(" throw(");
                        self.list(types);
                        self.push(")");
                    }
                }
                self.right(*returns);
            }
            NameNode::Array(length, of) => {
                if !self.text.ends_with(']') {
                    self.push(" ");
                }
                self.push("[");
                if let Some(length) = length {
                    self.whole(*length);
                }
                self.push("]");
                self.right(*of);
            }
            NameNode::Reference(of) => match self.node(*of) {
                NameNode::Reference(_) => self.right(*of),
                NameNode::RvalueReference(of) => self.close(*of),
                _ => self.close(*of),
            },
            NameNode::RvalueReference(of) => match self.node(*of) {
                NameNode::Reference(_) | NameNode::RvalueReference(_) => self.right(*of),
                _ => self.close(*of),
            },
            NameNode::Pointer(of) | NameNode::MemberPointer(_, of) => self.close(*of),
            NameNode::Qualifier(of, word) => {
                self.right(*of);
                if self.is_function(*of) {
                    self.push(word);
                }
            }
            NameNode::VendorQualifier(of, _) | NameNode::After(of, _) => self.right(*of),
            _ => {}
        }
    }

    fn close(&mut self, of: NodeId) {
        if self.needs_parentheses(of) {
            self.push(")");
        }
        self.right(of);
    }

    /// Writes a function, or any other node as a whole. Without `with_return`, the return type is
    /// left out, as for a function that is the scope of another name.
    fn function(&mut self, id: NodeId, with_return: bool) {
        let NameNode::Function {
            returns,
            name,
            parameters,
            qualifiers,
        } = self.node(id)
        else {
            return self.whole(id);
        };
        let returns = returns.filter(|_| with_return);
        if let Some(returns) = returns {
            self.left(returns);
            if !self.has_right(returns) || !self.text.ends_with(['(', '*', '&']) {
                self.push(" ");
            }
        }
        self.whole(*name);
        self.parameters(parameters);
        self.qualifiers(qualifiers);
        if let Some(returns) = returns {
            self.right(returns);
        }
    }

    /// Writes the name of a constructor's class, without its scope and template arguments.
    fn class_name(&mut self, mut id: NodeId) {
        for _ in 0..MAX_DEPTH {
            id = match self.node(id) {
                // A constructor of a class without a name has the name of the enclosing class.
                NameNode::Qualified(scope, name)
                    if matches!(
                        self.node(*name),
                        NameNode::Unnamed(_) | NameNode::Lambda(..)
                    ) =>
                {
                    *scope
                }
                NameNode::Qualified(_, name)
                | NameNode::Local(_, name)
                | NameNode::Template(name, _)
                | NameNode::Tagged(name, _) => *name,
                NameNode::Standard(_, class) => return self.push(class),
                _ => return self.whole(id),
            }
        }
        self.is_refused = true;
    }

    fn expansion(&mut self, pattern: NodeId) {
        let Some(length) = self.pack_length(pattern) else {
            self.operand(pattern);
            self.push("...");
            return;
        };
        let before = self.element;
        let mut is_first = true;
        for element in 0..length {
            if self.is_refused {
                break;
            }
            if !is_first {
                self.push(", ");
            }
            is_first = false;
            self.element = Some(element);
            self.whole(pattern);
        }
        self.element = before;
    }

    /// Returns the number of arguments of the first pack in a pattern; `None` without a pack.
    fn pack_length(&mut self, id: NodeId) -> Option<usize> {
        self.enter();
        let length = match self.is_refused {
            true => None,
            false => self.pack_length_of(id),
        };
        self.depth -= 1;
        length
    }

    fn pack_length_of(&mut self, id: NodeId) -> Option<usize> {
        let any =
            |printer: &mut Self, ids: &[NodeId]| ids.iter().find_map(|&id| printer.pack_length(id));
        match self.node(id) {
            NameNode::PackParameter(pack) => match &self.nodes[*pack as usize] {
                NameNode::Pack(arguments) => Some(arguments.len()),
                _ => None,
            },
            NameNode::Qualified(a, b)
            | NameNode::Local(a, b)
            | NameNode::MemberPointer(a, b)
            | NameNode::VendorQualifier(a, b)
            | NameNode::Vector(a, b)
            | NameNode::Binary(_, a, b)
            | NameNode::NamedCast(_, a, b) => any(self, &[*a, *b]),
            NameNode::Template(a, list) | NameNode::Call(a, list) | NameNode::Cast(a, list) => {
                any(self, &[*a]).or_else(|| any(self, list))
            }
            NameNode::Braces(a, list) => {
                let of_type = a.and_then(|a| any(self, &[a]));
                of_type.or_else(|| any(self, list))
            }
            NameNode::Conditional(a, b, c) => any(self, &[*a, *b, *c]),
            NameNode::FunctionType {
                returns,
                parameters,
                ..
            } => any(self, &[*returns]).or_else(|| any(self, parameters)),
            NameNode::Function {
                name, parameters, ..
            } => any(self, &[*name]).or_else(|| any(self, parameters)),
            NameNode::Tagged(a, _)
            | NameNode::Structor(_, a)
            | NameNode::Conversion(a)
            | NameNode::Pointer(a)
            | NameNode::Reference(a)
            | NameNode::RvalueReference(a)
            | NameNode::Qualifier(a, _)
            | NameNode::After(a, _)
            | NameNode::Decltype(a)
            | NameNode::Unary(_, a)
            | NameNode::Postfix(a, _)
            | NameNode::Word(_, a)
            | NameNode::Global(a)
            | NameNode::Literal(a, _, _) => any(self, &[*a]),
            NameNode::Array(length, of) => {
                let of_length = length.and_then(|length| any(self, &[length]));
                of_length.or_else(|| any(self, &[*of]))
            }
            NameNode::Lambda(list, _) => any(self, list),
            _ => None,
        }
    }
}
