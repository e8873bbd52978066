//! Operators by their two letters.

/// How an operator's expression is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Unary,
    /// `++` and `--`. They are written after the operand, unless an underscore follows the letters.
    Step,
    Binary,
    Conditional,
    Call,
    /// `static_cast` and similar casts.
    NamedCast,
    /// A word with its operand in parentheses. The operand is a type here and an expression in
    /// `OfExpression`.
    OfType,
    OfExpression,
    New,
    Delete,
}

/// The letters of each operator, its name after `operator`, and its form. They are ordered by
/// letters.
pub(super) const OPERATORS: [(&str, &str, Form); 64] = [
    ("aN", "&=", Form::Binary),
    ("aS", "=", Form::Binary),
    ("aa", "&&", Form::Binary),
    ("ad", "&", Form::Unary),
    ("an", "&", Form::Binary),
    ("at", "alignof ", Form::OfType),
    ("aw", "co_await ", Form::Unary),
    ("az", "alignof ", Form::OfExpression),
    ("cc", "const_cast", Form::NamedCast),
    ("cl", "()", Form::Call),
    ("cm", ",", Form::Binary),
    ("co", "~", Form::Unary),
    ("dV", "/=", Form::Binary),
    ("da", "delete[] ", Form::Delete),
    ("dc", "dynamic_cast", Form::NamedCast),
    ("de", "*", Form::Unary),
    ("dl", "delete ", Form::Delete),
    ("ds", ".*", Form::Binary),
    ("dt", ".", Form::Binary),
    ("dv", "/", Form::Binary),
    ("eO", "^=", Form::Binary),
    ("eo", "^", Form::Binary),
    ("eq", "==", Form::Binary),
    ("ge", ">=", Form::Binary),
    ("gt", ">", Form::Binary),
    ("ix", "[]", Form::Binary),
    ("lS", "<<=", Form::Binary),
    ("le", "<=", Form::Binary),
    ("ls", "<<", Form::Binary),
    ("lt", "<", Form::Binary),
    ("mI", "-=", Form::Binary),
    ("mL", "*=", Form::Binary),
    ("mi", "-", Form::Binary),
    ("ml", "*", Form::Binary),
    ("mm", "--", Form::Step),
    ("na", "new[]", Form::New),
    ("ne", "!=", Form::Binary),
    ("ng", "-", Form::Unary),
    ("nt", "!", Form::Unary),
    ("nw", "new", Form::New),
    ("nx", "noexcept", Form::OfExpression),
    ("oR", "|=", Form::Binary),
    ("oo", "||", Form::Binary),
    ("or", "|", Form::Binary),
    ("pL", "+=", Form::Binary),
    ("pl", "+", Form::Binary),
    ("pm", "->*", Form::Binary),
    ("pp", "++", Form::Step),
    ("ps", "+", Form::Unary),
    ("pt", "->", Form::Binary),
    ("qu", "?", Form::Conditional),
    ("rM", "%=", Form::Binary),
    ("rS", ">>=", Form::Binary),
    ("rc", "reinterpret_cast", Form::NamedCast),
    ("rm", "%", Form::Binary),
    ("rs", ">>", Form::Binary),
    ("sc", "static_cast", Form::NamedCast),
    ("ss", "<=>", Form::Binary),
    ("st", "sizeof ", Form::OfType),
    ("sz", "sizeof ", Form::OfExpression),
    ("te", "typeid ", Form::OfExpression),
    ("ti", "typeid ", Form::OfType),
    ("tr", "throw", Form::Unary),
    ("tw", "throw ", Form::Unary),
];

/// The operator with these two letters.
pub(super) fn find(letters: &[u8]) -> Option<(&'static str, Form)> {
    let found = OPERATORS.binary_search_by(|(code, _, _)| code.as_bytes().cmp(letters));
    let (_, name, form) = OPERATORS[found.ok()?];
    Some((name, form))
}
