//! The kinds of values of pprof's flags and jeprof's options.

/// The kind of value that a flag of pprof or an option of jeprof takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlagKind {
    /// The flag takes no value. Another spelling turns the flag off.
    Bool,
    /// A whole number.
    Int,
    /// A number that may have a fraction.
    Float,
    /// A text.
    Text,
    /// A regular expression that an output format needs.
    Regex,
}

impl FlagKind {
    /// Returns the placeholder for the value in the help.
    pub(crate) fn value(self) -> &'static str {
        match self {
            Self::Bool => "",
            Self::Int => "=N",
            Self::Float => "=X",
            Self::Text => "=TEXT",
            Self::Regex => "=REGEX",
        }
    }
}
