//! The tree as text. A type is written as in a declaration: around the name that is declared.

mod expression;

use super::{Detail, Exceptions, Id, Node, Qualifiers};

/// The longest name that is written. A few bytes of a hostile name may stand for gigabytes, and
/// nobody reads names longer than this.
const LONGEST: usize = 64 << 10;
/// The most steps that are taken for one name.
const MOST_STEPS: u32 = 1 << 20;
const DEEPEST: u32 = 1000;

/// The text of `root`.
pub(super) fn print(nodes: &[Node<'_>], root: Id, detail: Detail) -> Option<String> {
    let mut printer = Printer {
        nodes,
        text: String::new(),
        steps: 0,
        depth: 0,
        element: None,
        is_refused: false,
    };
    match (&nodes[root as usize], detail) {
        (Node::Function { name, .. }, Detail::Name) => printer.whole(*name),
        _ => printer.whole(root),
    }
    (!printer.is_refused).then_some(printer.text)
}

struct Printer<'n, 'a> {
    nodes: &'n [Node<'a>],
    text: String,
    steps: u32,
    depth: u32,
    /// Which argument of packs is being written, inside of an expansion.
    element: Option<usize>,
    is_refused: bool,
}

impl<'n, 'a> Printer<'n, 'a> {
    fn push(&mut self, text: &str) {
        if self.text.len() + text.len() > LONGEST {
            self.is_refused = true;
        }
        if !self.is_refused {
            self.text.push_str(text);
        }
    }

    fn push_number(&mut self, number: u64) {
        self.push(&number.to_string());
    }

    /// A node. Inside of an expansion, a pack stands for the argument that is being written.
    fn node(&self, id: Id) -> &'n Node<'a> {
        &self.nodes[self.resolve(id) as usize]
    }

    fn resolve(&self, mut id: Id) -> Id {
        for _ in 0..DEEPEST {
            match (&self.nodes[id as usize], self.element) {
                (Node::Alias(of), _) => id = *of,
                (Node::PackParameter(pack), Some(element)) => {
                    let Node::Pack(arguments) = &self.nodes[*pack as usize] else {
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

    fn whole(&mut self, id: Id) {
        self.left(id);
        self.right(id);
    }

    /// Writes parts with commas between them. A part without text has no comma. Returns whether the
    /// last part had no text.
    fn list(&mut self, ids: &[Id]) -> bool {
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

    fn parameters(&mut self, ids: &[Id]) {
        self.push("(");
        self.list(ids);
        self.push(")");
    }

    fn arguments(&mut self, ids: &[Id]) {
        if self.text.ends_with('<') {
            self.push(" ");
        }
        self.push("<");
        let ends_empty = self.list(ids);
        // After an empty pack binutils still sees the blank that it took back, and not the `>`.
        if self.text.ends_with('>') && !ends_empty {
            self.push(" ");
        }
        self.push(">");
    }

    fn qualifiers(&mut self, qualifiers: &Qualifiers) {
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
        self.is_refused |= self.steps > MOST_STEPS || self.depth > DEEPEST;
    }

    /// Writes what comes before a declared name.
    fn left(&mut self, id: Id) {
        self.enter();
        if !self.is_refused {
            self.left_of(id);
        }
        self.depth -= 1;
    }

    fn left_of(&mut self, id: Id) {
        match self.node(id) {
            Node::Text(text) => self.push(text),
            Node::Builtin(name, _) | Node::Standard(name, _) => self.push(name),
            Node::Qualified(scope, name) => {
                self.whole(*scope);
                self.push("::");
                self.whole(*name);
            }
            Node::Local(function, entity) => {
                self.function(*function, false);
                self.push("::");
                self.whole(*entity);
            }
            Node::Template(name, arguments) => {
                self.whole(*name);
                self.arguments(arguments);
            }
            Node::Tagged(name, tag) => {
                self.whole(*name);
                self.push(&format!("[abi:{tag}]"));
            }
            Node::Structor(before, class) => {
                self.push(before);
                self.class_name(*class);
            }
            Node::Operator(name) => {
                self.push("operator");
                if name.starts_with(|c: char| c.is_ascii_lowercase()) {
                    self.push(" ");
                }
                self.push(name.trim_end());
            }
            Node::LiteralOperator(name) => {
                self.push("operator\"\" ");
                self.whole(*name);
            }
            Node::Conversion(to) => {
                self.push("operator ");
                self.whole(*to);
            }
            Node::Lambda(parameters, number) => {
                self.push("{lambda");
                self.parameters(parameters);
                self.push("#");
                self.push_number(*number);
                self.push("}");
            }
            Node::Unnamed(number) => {
                self.push("{unnamed type#");
                self.push_number(*number);
                self.push("}");
            }
            Node::DefaultArgument(number, entity) => {
                self.push("{default arg#");
                self.push_number(*number);
                self.push("}::");
                self.whole(*entity);
            }
            Node::Bindings(names) => {
                self.push("[");
                self.list(names);
                self.push("]");
            }
            Node::Special(text, of) => {
                self.push(text);
                self.whole(*of);
            }
            Node::ConstructionTable(base, derived) => {
                self.push("construction vtable for ");
                self.whole(*base);
                self.push("-in-");
                self.whole(*derived);
            }
            Node::Temporary(number, of) => {
                self.push("reference temporary #");
                self.push_number(*number);
                self.push(" for ");
                self.whole(*of);
            }
            Node::Function { .. } => self.function(id, true),
            Node::FunctionType { returns, .. } => {
                self.left(*returns);
                if !self.text.ends_with(['(', '*']) || !self.has_right(*returns) {
                    self.push(" ");
                }
            }
            Node::Pointer(of) => self.declarator(*of, "*"),
            Node::Reference(of) => match self.node(*of) {
                Node::Reference(_) => self.left(*of),
                Node::RvalueReference(of) => self.declarator(*of, "&"),
                _ => self.declarator(*of, "&"),
            },
            Node::RvalueReference(of) => match self.node(*of) {
                Node::Reference(_) | Node::RvalueReference(_) => self.left(*of),
                _ => self.declarator(*of, "&&"),
            },
            Node::Qualifier(of, word) => {
                self.left(*of);
                let is_twice = matches!(self.node(*of), Node::Qualifier(_, same) if same == word);
                if !is_twice && !self.is_function(*of) {
                    self.push(word);
                }
            }
            Node::VendorQualifier(of, word) => {
                self.left(*of);
                self.push(" ");
                self.whole(*word);
            }
            Node::After(of, word) => {
                self.left(*of);
                self.push(word);
            }
            Node::Array(_, of) => self.left(*of),
            Node::MemberPointer(class, member) => {
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
            Node::Vector(length, of) => {
                self.whole(*of);
                self.push(" __vector(");
                self.whole(*length);
                self.push(")");
            }
            Node::BitInt(bits, is_unsigned) => {
                self.push(if *is_unsigned {
                    "unsigned _BitInt("
                } else {
                    "signed _BitInt("
                });
                self.whole(*bits);
                self.push(")");
            }
            Node::Decltype(expression) => {
                self.push("decltype (");
                self.whole(*expression);
                self.push(")");
            }
            Node::Pack(arguments) => _ = self.list(arguments),
            // Outside of an expansion all arguments are written. Inside of one, a pack that is too
            // short has nothing to write.
            Node::PackParameter(pack) => {
                if self.element.is_none() {
                    self.whole(*pack);
                }
            }
            Node::Expansion(pattern) => self.expansion(*pattern),
            Node::Forward(_) => self.is_refused = true,
            Node::Auto(number) => {
                self.push("auto:");
                self.push_number(*number);
            }
            _ => self.expression(id),
        }
    }

    fn declarator(&mut self, of: Id, sign: &str) {
        self.left(of);
        if self.needs_parentheses(of) {
            if !self.text.ends_with(' ') {
                self.push(" ");
            }
            self.push("(");
        }
        self.push(sign);
    }

    /// Whether the sign of a pointer to this type is written in parentheses.
    fn needs_parentheses(&self, of: Id) -> bool {
        let of = self.unqualified(of);
        matches!(of, Node::FunctionType { .. } | Node::Array(..))
    }

    fn is_function(&self, of: Id) -> bool {
        matches!(self.unqualified(of), Node::FunctionType { .. })
    }

    /// A type without `const` and so on.
    fn unqualified(&self, mut of: Id) -> &'n Node<'a> {
        for _ in 0..DEEPEST {
            match self.node(of) {
                Node::Qualifier(inner, _) => of = *inner,
                _ => break,
            }
        }
        self.node(of)
    }

    /// Whether something is written after a name that is declared with this type.
    fn has_right(&self, mut of: Id) -> bool {
        // A hostile name may say that a part contains itself.
        for _ in 0..DEEPEST {
            match self.node(of) {
                Node::FunctionType { .. } | Node::Array(..) => return true,
                Node::Pointer(inner)
                | Node::Reference(inner)
                | Node::RvalueReference(inner)
                | Node::Qualifier(inner, _)
                | Node::MemberPointer(_, inner) => of = *inner,
                _ => return false,
            }
        }
        false
    }

    /// Writes what comes after a declared name.
    fn right(&mut self, id: Id) {
        self.enter();
        if !self.is_refused {
            self.right_of(id);
        }
        self.depth -= 1;
    }

    fn right_of(&mut self, id: Id) {
        match self.node(id) {
            Node::FunctionType {
                returns,
                parameters,
                exceptions,
                reference,
            } => {
                self.parameters(parameters);
                self.push(reference);
                match exceptions {
                    Exceptions::Silent => {}
                    Exceptions::None => self.push(" noexcept"),
                    Exceptions::NoneIf(condition) => {
                        self.push(" noexcept(");
                        self.whole(*condition);
                        self.push(")");
                    }
                    Exceptions::Only(types) => {
                        self.push(" throw(");
                        self.list(types);
                        self.push(")");
                    }
                }
                self.right(*returns);
            }
            Node::Array(length, of) => {
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
            Node::Reference(of) => match self.node(*of) {
                Node::Reference(_) => self.right(*of),
                Node::RvalueReference(of) => self.close(*of),
                _ => self.close(*of),
            },
            Node::RvalueReference(of) => match self.node(*of) {
                Node::Reference(_) | Node::RvalueReference(_) => self.right(*of),
                _ => self.close(*of),
            },
            Node::Pointer(of) | Node::MemberPointer(_, of) => self.close(*of),
            Node::Qualifier(of, word) => {
                self.right(*of);
                if self.is_function(*of) {
                    self.push(word);
                }
            }
            Node::VendorQualifier(of, _) | Node::After(of, _) => self.right(*of),
            _ => {}
        }
    }

    fn close(&mut self, of: Id) {
        if self.needs_parentheses(of) {
            self.push(")");
        }
        self.right(of);
    }

    /// Writes a function, or any other node as a whole. The return type is left out if an entity
    /// inside of the function is named.
    fn function(&mut self, id: Id, with_return: bool) {
        let Node::Function {
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
    fn class_name(&mut self, mut id: Id) {
        for _ in 0..DEEPEST {
            id = match self.node(id) {
                // An entity without a name has the name of its class.
                Node::Qualified(scope, name)
                    if matches!(self.node(*name), Node::Unnamed(_) | Node::Lambda(..)) =>
                {
                    *scope
                }
                Node::Qualified(_, name)
                | Node::Local(_, name)
                | Node::Template(name, _)
                | Node::Tagged(name, _) => *name,
                Node::Standard(_, class) => return self.push(class),
                _ => return self.whole(id),
            }
        }
        self.is_refused = true;
    }

    fn expansion(&mut self, pattern: Id) {
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

    /// How many arguments the first pack in a pattern has; `None` if there is no pack.
    fn pack_length(&mut self, id: Id) -> Option<usize> {
        self.enter();
        let length = match self.is_refused {
            true => None,
            false => self.pack_length_of(id),
        };
        self.depth -= 1;
        length
    }

    fn pack_length_of(&mut self, id: Id) -> Option<usize> {
        let any =
            |printer: &mut Self, ids: &[Id]| ids.iter().find_map(|&id| printer.pack_length(id));
        match self.node(id) {
            Node::PackParameter(pack) => match &self.nodes[*pack as usize] {
                Node::Pack(arguments) => Some(arguments.len()),
                _ => None,
            },
            Node::Qualified(a, b)
            | Node::Local(a, b)
            | Node::MemberPointer(a, b)
            | Node::VendorQualifier(a, b)
            | Node::Vector(a, b)
            | Node::Binary(_, a, b)
            | Node::NamedCast(_, a, b) => any(self, &[*a, *b]),
            Node::Template(a, list) | Node::Call(a, list) | Node::Cast(a, list) => {
                any(self, &[*a]).or_else(|| any(self, list))
            }
            Node::Braces(a, list) => {
                let of_type = a.and_then(|a| any(self, &[a]));
                of_type.or_else(|| any(self, list))
            }
            Node::Conditional(a, b, c) => any(self, &[*a, *b, *c]),
            Node::FunctionType {
                returns,
                parameters,
                ..
            } => any(self, &[*returns]).or_else(|| any(self, parameters)),
            Node::Function {
                name, parameters, ..
            } => any(self, &[*name]).or_else(|| any(self, parameters)),
            Node::Tagged(a, _)
            | Node::Structor(_, a)
            | Node::Conversion(a)
            | Node::Pointer(a)
            | Node::Reference(a)
            | Node::RvalueReference(a)
            | Node::Qualifier(a, _)
            | Node::After(a, _)
            | Node::Decltype(a)
            | Node::Unary(_, a)
            | Node::Postfix(a, _)
            | Node::Word(_, a)
            | Node::Global(a)
            | Node::Literal(a, _, _) => any(self, &[*a]),
            Node::Array(length, of) => {
                let of_length = length.and_then(|length| any(self, &[length]));
                of_length.or_else(|| any(self, &[*of]))
            }
            Node::Lambda(list, _) => any(self, list),
            _ => None,
        }
    }
}
