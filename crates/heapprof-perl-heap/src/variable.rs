//! Finds a value by what a program calls it: `$Foo::x`, `%CACHE`, `@{$x}[3]` written as `$x->[3]`.

use crate::found::Found;
use crate::step::Step;
use crate::values::Phase;

/// Why nothing was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoVariable {
    /// It is not written as a variable.
    #[error("is no variable, such as '$Foo::x', '%CACHE', '$x->{{key}}[3]' or '&sub my $x'")]
    NotWritten,
    /// There is no such package.
    #[error("there is no package {0}")]
    NoPackage(String),
    /// There is no such symbol, or it has nothing of the kind.
    #[error("there is no {0}")]
    NoSymbol(String),
    /// A step leads nowhere.
    #[error("{0} has no {1}")]
    NoElement(String, String),
}

impl Found {
    /// The value that a program calls so: a sigil and a name, and then elements. A sub may be
    /// followed by one of its variables, as in `&foo my $x`.
    ///
    /// # Errors
    /// It may not be there, or not be written so.
    pub fn variable(&self, text: &str) -> Result<u32, NoVariable> {
        let text = text.trim();
        let mut chars = text.chars();
        let sigil = chars.next().filter(|sigil| "$@%&*".contains(*sigil));
        let sigil = sigil.ok_or(NoVariable::NotWritten)?;
        let rest = chars.as_str();
        let is_name = |c: char| c.is_alphanumeric() || "_:'".contains(c);
        // Names such as `$!` and `$^W` have one or two other characters.
        let end = match rest.find(|c| !is_name(c)) {
            Some(0) => rest.char_indices().nth(1).map_or(rest.len(), |(at, _)| at),
            Some(end) => end,
            None => rest.len(),
        };
        let (name, mut rest) = rest.split_at(end);
        if name.is_empty() {
            return Err(NoVariable::NotWritten);
        }
        // `$x{a}` is an element of `%x`, and `$x[0]` one of `@x`.
        let slot = match (sigil, rest.chars().next()) {
            ('$', Some('{')) => '%',
            ('$', Some('[')) => '@',
            (sigil, _) => sigil,
        };
        let mut at = self.symbol(slot, name)?;
        if let ('&', Some(variable)) = (sigil, rest.trim_start().strip_prefix("my ")) {
            return self.of_sub(at, variable.trim(), name);
        }
        let mut done = format!("{sigil}{name}");
        while !rest.is_empty() {
            let step;
            (step, rest) = subscript(rest).ok_or(NoVariable::NotWritten)?;
            let element = self.element(at, step);
            at = element.ok_or_else(|| NoVariable::NoElement(done.clone(), step.to_string()))?;
            done += step;
        }
        Ok(at)
    }

    /// What a symbol has in a slot.
    fn symbol(&self, slot: char, name: &str) -> Result<u32, NoVariable> {
        let mut roots = self.values.roots().iter();
        let main = roots.find(|root| root.phase == Phase::Symbols);
        let missing = || NoVariable::NoSymbol(format!("{slot}{name}"));
        let mut table = main.ok_or_else(missing)?.number;
        let name = name.replace('\'', "::");
        let name = name.strip_prefix("main::").unwrap_or(&name);
        let name = name.strip_prefix("::").unwrap_or(name);
        let (mut rest, is_table) = match name.strip_suffix("::") {
            Some(package) => (package, true),
            None => (name, false),
        };
        while let Some((package, inner)) = rest.split_once("::") {
            table = self.package(table, package)?;
            rest = inner;
        }
        if is_table {
            return self.package(table, rest);
        }
        let key = self.key(table, rest).ok_or_else(missing)?;
        if slot == '*' {
            return Ok(key);
        }
        let mut edges = self.values.edges(key).iter();
        let found = edges.find(|edge| edge.step == Step::Slot(slot as u8));
        match found {
            Some(edge) => Ok(edge.to),
            // A sub may stand there without a symbol, as a reference.
            None if slot == '&' => self.referent(key).ok_or_else(missing),
            None => Err(missing()),
        }
    }

    /// The table of a package inside another one.
    fn package(&self, table: u32, name: &str) -> Result<u32, NoVariable> {
        let symbol = self.key(table, &format!("{name}::"));
        let slot = symbol.and_then(|symbol| {
            let mut edges = self.values.edges(symbol).iter();
            edges.find(|edge| edge.step == Step::Slot(b'%'))
        });
        slot.map(|edge| edge.to)
            .ok_or_else(|| NoVariable::NoPackage(name.to_string()))
    }

    /// What a hash has under a key.
    fn key(&self, hash: u32, key: &str) -> Option<u32> {
        let mut edges = self.values.edges(hash).iter();
        let is_it = |step| matches!(step, Step::Key(id) if self.values.text(id) == key);
        edges.find(|edge| is_it(edge.step)).map(|edge| edge.to)
    }

    /// What a reference refers to.
    fn referent(&self, number: u32) -> Option<u32> {
        let mut edges = self.values.edges(number).iter();
        edges
            .find(|edge| edge.step == Step::Referent)
            .map(|edge| edge.to)
    }

    /// An element, `{key}` or `[number]`, of a value or of what it refers to.
    fn element(&self, of: u32, step: &str) -> Option<u32> {
        let of = self.referent(of).unwrap_or(of);
        let inner = &step[1..step.len() - 1];
        if step.starts_with('{') {
            return self.key(of, inner.trim_matches(['"', '\'']));
        }
        let count = self.values.edges(of).iter();
        let count = count.filter_map(|edge| match edge.step {
            Step::Element(number) => Some(number + 1),
            _ => None,
        });
        let number: i64 = inner.parse().ok()?;
        let number = match number {
            0.. => number,
            _ => number + i64::from(count.max()?),
        };
        let number = u32::try_from(number).ok()?;
        let mut edges = self.values.edges(of).iter();
        edges
            .find(|edge| edge.step == Step::Element(number))
            .map(|edge| edge.to)
    }

    /// A variable of a sub, at the first depth that has it.
    fn of_sub(&self, sub: u32, variable: &str, name: &str) -> Result<u32, NoVariable> {
        let pads = self.values.edges(sub).iter();
        let pads = pads.filter(|edge| matches!(edge.step, Step::Pad(_)));
        let mut variables = pads.flat_map(|pad| self.values.edges(pad.to));
        let is_it = |step| matches!(step, Step::Variable(id) if self.values.text(id) == variable);
        let found = variables.find(|edge| is_it(edge.step));
        found.map(|edge| edge.to).ok_or_else(|| {
            NoVariable::NoElement(format!("&{name}"), format!("variable {variable}"))
        })
    }
}

/// The first subscript of a text, and the rest.
fn subscript(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix("->").unwrap_or(text);
    let close = match text.chars().next()? {
        '{' => '}',
        '[' => ']',
        _ => return None,
    };
    let end = text.find(close)? + 1;
    (end > 2).then(|| text.split_at(end))
}
