//! The functions and the nodes of the tree that a page shows.

/// A function of the tree, identified as in `top`: by a name in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportFunction {
    /// The name of the function.
    pub name: String,
    /// The name of the function, with the end of its file if other functions have the same name.
    pub label: String,
    /// The source file of the function; empty if unknown, or if the profiles have it in several
    /// files.
    pub file: String,
    /// The line where the function begins; 0 if unknown.
    pub start_line: i64,
    /// The module of the function.
    pub module: String,
    /// Whether the module is a library.
    pub is_library: bool,
}

/// A node of the tree: a line of a function, called from its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportNode {
    /// The node that called this node; `None` at the root. A parent comes before its children.
    pub parent: Option<u32>,
    /// The place, as a position in the places of the report.
    pub place: u32,
}

impl ReportFunction {
    /// Merges another row of the same function into this one.
    pub(crate) fn merge(&mut self, other: &Self) {
        if self.file != other.file {
            self.file.clear();
            self.start_line = 0;
        }
        self.is_library &= other.is_library;
    }
}
