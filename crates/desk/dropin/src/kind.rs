//! What a flag of pprof's or an option of jeprof's takes.

/// What a flag of another tool takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlagKind {
    /// Nothing; another spelling turns it off.
    Bool,
    /// A whole number.
    Int,
    /// A number.
    Float,
    /// A text.
    Text,
    /// A regular expression that a format is about.
    Regex,
}

impl FlagKind {
    /// How the value stands behind the flag in the help.
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
