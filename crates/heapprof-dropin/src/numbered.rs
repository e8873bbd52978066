//! Names by number, as callgrind's format compresses them: a name itself comes with its first use
//! only.

use std::collections::HashMap;

/// The names of one kind that were used.
#[derive(Default)]
pub(crate) struct Numbered(HashMap<String, usize>);

impl Numbered {
    /// `(n) name` at first, `(n)` then; nothing for no name.
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
