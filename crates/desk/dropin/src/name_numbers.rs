//! Numbers for names, as callgrind's format compresses them: a name is written out only at its
//! first use.

use std::collections::HashMap;

/// The names of one kind that were used before, with their numbers.
#[derive(Default)]
pub(crate) struct NameNumbers(HashMap<String, usize>);

impl NameNumbers {
    /// Returns `(n) name` at the first use of a name and `(n)` later. An empty name gives an empty
    /// text.
    pub(crate) fn name(&mut self, name: &str) -> String {
        if name.is_empty() {
            return String::new();
        }
        if let Some(number) = self.0.get(name) {
            return format!("({number})");
        }
        let number = self.0.len() + 1;
        self.0.insert(name.to_string(), number);
        format!("({number}) {name}")
    }
}
