//! Finds a value by the expression that a program uses for it: `$Foo::x`, `%CACHE`, `$x->{key}[3]`,
//! `&sub my $x`.

use crate::analysis::PerlValueAnalysis;
use crate::step::ValueStep;
use crate::values::PathPhase;

/// The reason why an expression leads to no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VariableError {
    /// The text is no expression for a variable.
    #[error(
        "is not a variable such as '$Foo::x', '%CACHE', '$x->{{key}}[3]', '&sub my $x' or 'my $x'"
    )]
    NotAVariable,
    /// There is no such package.
    #[error("there is no package {0}")]
    NoPackage(String),
    /// There is no such symbol, or the symbol has no value for this sigil.
    #[error("there is no {0}")]
    NoSymbol(String),
    /// A subscript of the expression leads to no value.
    #[error("{0} has no {1}")]
    NoElement(String, String),
}

/// Looks up what the value graph does not contain: the keys of large hashes, and the lengths of
/// arrays.
pub trait ElementLookup {
    /// Returns the address of the value under a key of the hash at an address.
    fn find_key(&self, hash: u64, key: &str) -> Option<u64>;

    /// Returns the number of elements of the array at an address.
    fn array_length(&self, array: u64) -> Option<u64>;

    /// Returns the name of a key in the value graph, where keys may have been renamed.
    fn key_name(&self, key: &str) -> String {
        key.to_string()
    }
}

/// Finds no elements.
impl ElementLookup for () {
    fn find_key(&self, _: u64, _: &str) -> Option<u64> {
        None
    }

    fn array_length(&self, _: u64) -> Option<u64> {
        None
    }
}

/// A subscript of an expression: a hash key or an array index.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ElementSubscript {
    Key(String),
    Number(i64),
}

impl std::fmt::Display for ElementSubscript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Key(key) => write!(f, "{{{key}}}"),
            Self::Number(number) => write!(f, "[{number}]"),
        }
    }
}

impl PerlValueAnalysis {
    /// Finds the value of an expression: a sigil and a name, then subscripts. A sub may be followed
    /// by one of its variables, as in `&foo my $x`. Without a sub, `my $x` is a variable of the
    /// program's file.
    ///
    /// # Errors
    /// The value may not exist, or the text may be no such expression.
    pub fn variable(&self, text: &str, memory: &impl ElementLookup) -> Result<u32, VariableError> {
        let text = text.trim();
        if let Some(own) = strip_declaration(text) {
            let mut roots = self.values.roots().iter();
            let is_program = |name| self.values.text(name) == "(main program)";
            let program = roots.find(|root| is_program(root.name));
            let program = program.ok_or_else(|| VariableError::NoSymbol(text.to_string()))?;
            return self.find_sub_variable(program.number, own, "the program's file", memory);
        }
        // A variable of a sub, or of the closure that a variable refers to.
        let inner = [" my ", " state "]
            .iter()
            .find_map(|word| text.split_once(word));
        if let Some((sub, own)) = inner {
            let of = self.variable(sub, memory)?;
            let of = self.referent(of).unwrap_or(of);
            return self.find_sub_variable(of, own, sub.trim(), memory);
        }
        let (sigil, name, rest) = parts(text).ok_or(VariableError::NotAVariable)?;
        let steps = subscripts(rest).ok_or(VariableError::NotAVariable)?;
        // `$x{a}` is an element of `%x`, and `$x[0]` one of `@x`.
        let slot = match (sigil, rest.chars().next()) {
            ('$', Some('{')) => '%',
            ('$', Some('[')) => '@',
            (sigil, _) => sigil,
        };
        let first = self.symbol(slot, &name)?;
        self.walk(first, format!("{slot}{name}"), &steps, memory)
    }

    /// Follows subscripts from a value to an element. `called` is the expression for the first
    /// value.
    fn walk(
        &self,
        mut at: u32,
        mut called: String,
        steps: &[ElementSubscript],
        memory: &impl ElementLookup,
    ) -> Result<u32, VariableError> {
        for step in steps {
            let element = self.element(at, step, memory);
            at = element
                .ok_or_else(|| VariableError::NoElement(called.clone(), step.to_string()))?;
            // An element is written `$x{a}`, not `%x{a}`.
            if let Some(name) = called.strip_prefix(['%', '@']) {
                called = format!("${name}");
            }
            called += &step.to_string();
        }
        Ok(at)
    }

    /// Returns the value in a slot of a symbol.
    fn symbol(&self, slot: char, name: &str) -> Result<u32, VariableError> {
        let mut roots = self.values.roots().iter();
        let is_main = |name| self.values.text(name) == "main::";
        let main = roots.find(|root| root.phase == PathPhase::Symbols && is_main(root.name));
        let missing = || {
            let name = format!("{slot}{name}");
            VariableError::NoSymbol(match self.lexical(&name) {
                Some(elsewhere) => format!("{name}; {elsewhere}"),
                None => name,
            })
        };
        let mut table = main.ok_or_else(missing)?.number;
        let name = name.replace('\'', "::");
        let mut rest = name.as_str();
        while let Some(inner) = rest.strip_prefix("main::").or(rest.strip_prefix("::")) {
            rest = inner;
        }
        let is_table = name.ends_with("::");
        while let Some((package, inner)) = rest.split_once("::") {
            table = self.package(table, package)?;
            rest = inner;
        }
        if is_table && slot != '*' {
            return Ok(table);
        }
        let key = self.key(table, rest).ok_or_else(missing)?;
        if slot == '*' {
            return Ok(key);
        }
        let mut edges = self.values.edges(key).iter();
        let found = edges.find(|edge| edge.step == ValueStep::Slot(slot as u8));
        match found {
            Some(edge) => Ok(edge.to),
            // A symbol table may have a sub without a symbol, as a reference.
            None if slot == '&' => self.referent(key).ok_or_else(missing),
            None => Err(missing()),
        }
    }

    /// Returns a sentence that says where a variable of this name is declared by `my`; `None` if it
    /// is not.
    fn lexical(&self, name: &str) -> Option<String> {
        let has_it = |pad: u32| {
            let mut edges = self.values.edges(pad).iter();
            edges.any(
                |edge| matches!(edge.step, ValueStep::Variable(id) if self.values.text(id) == name),
            )
        };
        let sub = self.values.numbers().find(|&sub| {
            let mut pads = self.values.edges(sub).iter();
            pads.any(|edge| matches!(edge.step, ValueStep::Pad(_)) && has_it(edge.to))
        })?;
        Some(match self.paths.path_text(&self.values, sub).as_str() {
            "(main program)" => format!("the main program has 'my {name}'"),
            path => format!("{path} has 'my {name}'"),
        })
    }

    /// Returns the symbol table of a package inside the symbol table `table`.
    fn package(&self, table: u32, name: &str) -> Result<u32, VariableError> {
        let symbol = self.key(table, &format!("{name}::"));
        let slot = symbol.and_then(|symbol| {
            let mut edges = self.values.edges(symbol).iter();
            edges.find(|edge| edge.step == ValueStep::Slot(b'%'))
        });
        slot.map(|edge| edge.to)
            .ok_or_else(|| VariableError::NoPackage(name.to_string()))
    }

    /// Returns the value under a key of a hash, if the graph has the key.
    fn key(&self, hash: u32, key: &str) -> Option<u32> {
        let mut edges = self.values.edges(hash).iter();
        let is_it = |step| matches!(step, ValueStep::Key(id) if self.values.text(id) == key);
        edges.find(|edge| is_it(edge.step)).map(|edge| edge.to)
    }

    /// Returns the value that a reference refers to.
    fn referent(&self, number: u32) -> Option<u32> {
        let mut edges = self.values.edges(number).iter();
        edges
            .find(|edge| edge.step == ValueStep::Referent)
            .map(|edge| edge.to)
    }

    /// Returns an element of a value. If the value is a reference, returns an element of its
    /// referent.
    fn element(
        &self,
        of: u32,
        step: &ElementSubscript,
        memory: &impl ElementLookup,
    ) -> Option<u32> {
        let of = self.referent(of).unwrap_or(of);
        let address = self.values.get(of).address;
        match step {
            ElementSubscript::Key(key) => {
                let known = self.key(of, &memory.key_name(key));
                known.or_else(|| self.values.number(memory.find_key(address, key)?))
            }
            ElementSubscript::Number(number) => {
                let number = match number {
                    0.. => *number,
                    _ => {
                        let length = memory.array_length(address).or_else(|| self.length(of))?;
                        number + i64::try_from(length).ok()?
                    }
                };
                let number = u32::try_from(number).ok()?;
                let mut edges = self.values.edges(of).iter();
                edges
                    .find(|edge| edge.step == ValueStep::Element(number))
                    .map(|edge| edge.to)
            }
        }
    }

    /// Returns the length of an array by the elements in the graph. Undefined elements at its end
    /// do not count.
    fn length(&self, array: u32) -> Option<u64> {
        let numbers = self.values.edges(array).iter();
        let numbers = numbers.filter_map(|edge| match edge.step {
            ValueStep::Element(number) => Some(u64::from(number) + 1),
            _ => None,
        });
        numbers.max()
    }

    /// Returns a variable of a sub, or an element of the variable. The first pad that has the
    /// variable is used.
    fn find_sub_variable(
        &self,
        sub: u32,
        text: &str,
        name: &str,
        memory: &impl ElementLookup,
    ) -> Result<u32, VariableError> {
        let text = text.trim();
        let end = text.find(['-', '[', '{']).unwrap_or(text.len());
        let (variable, rest) = text.split_at(end);
        let steps = subscripts(rest).ok_or(VariableError::NotAVariable)?;
        // `$x{a}` is an element of `%x` here, too.
        let variable = match (variable.strip_prefix('$'), rest.chars().next()) {
            (Some(name), Some('{')) => format!("%{name}"),
            (Some(name), Some('[')) => format!("@{name}"),
            _ => variable.to_string(),
        };
        let pads = self.values.edges(sub).iter();
        let pads = pads.filter(|edge| matches!(edge.step, ValueStep::Pad(_)));
        let mut variables = pads.flat_map(|pad| self.values.edges(pad.to));
        let is_it =
            |step| matches!(step, ValueStep::Variable(id) if self.values.text(id) == variable);
        let found = variables.find(|edge| is_it(edge.step));
        let found = found.ok_or_else(|| {
            VariableError::NoElement(name.to_string(), format!("variable {variable}"))
        })?;
        self.walk(found.to, variable, &steps, memory)
    }
}

/// Returns the text after `my` or `state`.
fn strip_declaration(text: &str) -> Option<&str> {
    text.strip_prefix("my ").or(text.strip_prefix("state "))
}

/// Splits an expression into the sigil, the name and the rest.
fn parts(text: &str) -> Option<(char, String, &str)> {
    let mut chars = text.chars();
    let sigil = chars.next().filter(|sigil| "$@%&*".contains(*sigil))?;
    let rest = chars.as_str();
    // `${name}` is `$name`.
    let (name, rest) = match rest.strip_prefix('{') {
        Some(inner) => inner.split_once('}')?,
        None => {
            let is_name = |c: char| c.is_alphanumeric() || "_:'".contains(c);
            let end = match rest.find(|c| !is_name(c)) {
                // `$^W` and `$!`.
                Some(0) if rest.starts_with('^') => 2,
                Some(0) => rest.chars().next()?.len_utf8(),
                Some(end) => end,
                None => rest.len(),
            };
            (rest.get(..end)?, rest.get(end..)?)
        }
    };
    // The symbol table has a control character in the name of `^W`.
    let name = match name.strip_prefix('^') {
        Some(rest) if !rest.is_empty() => {
            let first = rest.chars().next().filter(char::is_ascii)?;
            let control = char::from(first as u8 & 0x1f);
            format!("{control}{}", &rest[1..])
        }
        _ => name.to_string(),
    };
    let is_written = !name.is_empty() && !name.starts_with(['$', '@', '%', '&', '*', '{', ' ']);
    // `$$` is a variable, and so is `$&`. But `$$x` is a dereference, which is not read.
    let is_written = is_written || name.len() == 1 && rest.is_empty() && name != " ";
    is_written.then_some((sigil, name, rest))
}

/// Parses the subscripts in a text such as `->{key}[3]`.
fn subscripts(mut text: &str) -> Option<Vec<ElementSubscript>> {
    let mut steps = Vec::new();
    while !text.is_empty() {
        text = text.strip_prefix("->").unwrap_or(text);
        let close = match text.chars().next()? {
            '{' => '}',
            '[' => ']',
            _ => return None,
        };
        let inner = text[1..].trim_start();
        let quote = inner.chars().next().filter(|c| matches!(c, '\'' | '"'));
        let (inner, rest) = match quote {
            Some(quote) => {
                let (inner, rest) = inner[1..].split_once(quote)?;
                (inner, rest.trim_start().strip_prefix(close)?)
            }
            None => {
                let (inner, rest) = inner.split_once(close)?;
                (inner.trim(), rest)
            }
        };
        steps.push(match close {
            '}' => ElementSubscript::Key(inner.to_string()),
            _ => ElementSubscript::Number(inner.parse().ok()?),
        });
        text = rest;
    }
    Some(steps)
}
