//! Table of the C++ operators, and their codes of two letters in linker names.

/// How an expression with an operator is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperatorForm {
    Unary,
    /// `++` and `--`. The operator is written after the operand, or before it if an underscore
    /// follows the code.
    Step,
    Binary,
    Conditional,
    Call,
    /// `static_cast` and similar casts.
    NamedCast,
    /// A word with a type in parentheses, as in `sizeof`. [`OfExpression`](Self::OfExpression) has
    /// an expression in the parentheses instead.
    OfType,
    OfExpression,
    New,
    Delete,
}

/// The letters of each operator, its name after `operator`, and its form. Sorted by letters.
pub(super) const OPERATORS: [(&str, &str, OperatorForm); 64] = [
    ("aN", "&=", OperatorForm::Binary),
    ("aS", "=", OperatorForm::Binary),
    ("aa", "&&", OperatorForm::Binary),
    ("ad", "&", OperatorForm::Unary),
    ("an", "&", OperatorForm::Binary),
    ("at", "alignof ", OperatorForm::OfType),
    ("aw", "co_await ", OperatorForm::Unary),
    ("az", "alignof ", OperatorForm::OfExpression),
    ("cc", "const_cast", OperatorForm::NamedCast),
    ("cl", "()", OperatorForm::Call),
    ("cm", ",", OperatorForm::Binary),
    ("co", "~", OperatorForm::Unary),
    ("dV", "/=", OperatorForm::Binary),
    ("da", "delete[] ", OperatorForm::Delete),
    ("dc", "dynamic_cast", OperatorForm::NamedCast),
    ("de", "*", OperatorForm::Unary),
    ("dl", "delete ", OperatorForm::Delete),
    ("ds", ".*", OperatorForm::Binary),
    ("dt", ".", OperatorForm::Binary),
    ("dv", "/", OperatorForm::Binary),
    ("eO", "^=", OperatorForm::Binary),
    ("eo", "^", OperatorForm::Binary),
    ("eq", "==", OperatorForm::Binary),
    ("ge", ">=", OperatorForm::Binary),
    ("gt", ">", OperatorForm::Binary),
    ("ix", "[]", OperatorForm::Binary),
    ("lS", "<<=", OperatorForm::Binary),
    ("le", "<=", OperatorForm::Binary),
    ("ls", "<<", OperatorForm::Binary),
    ("lt", "<", OperatorForm::Binary),
    ("mI", "-=", OperatorForm::Binary),
    ("mL", "*=", OperatorForm::Binary),
    ("mi", "-", OperatorForm::Binary),
    ("ml", "*", OperatorForm::Binary),
    ("mm", "--", OperatorForm::Step),
    ("na", "new[]", OperatorForm::New),
    ("ne", "!=", OperatorForm::Binary),
    ("ng", "-", OperatorForm::Unary),
    ("nt", "!", OperatorForm::Unary),
    ("nw", "new", OperatorForm::New),
    ("nx", "noexcept", OperatorForm::OfExpression),
    ("oR", "|=", OperatorForm::Binary),
    ("oo", "||", OperatorForm::Binary),
    ("or", "|", OperatorForm::Binary),
    ("pL", "+=", OperatorForm::Binary),
    ("pl", "+", OperatorForm::Binary),
    ("pm", "->*", OperatorForm::Binary),
    ("pp", "++", OperatorForm::Step),
    ("ps", "+", OperatorForm::Unary),
    ("pt", "->", OperatorForm::Binary),
    ("qu", "?", OperatorForm::Conditional),
    ("rM", "%=", OperatorForm::Binary),
    ("rS", ">>=", OperatorForm::Binary),
    ("rc", "reinterpret_cast", OperatorForm::NamedCast),
    ("rm", "%", OperatorForm::Binary),
    ("rs", ">>", OperatorForm::Binary),
    ("sc", "static_cast", OperatorForm::NamedCast),
    ("ss", "<=>", OperatorForm::Binary),
    ("st", "sizeof ", OperatorForm::OfType),
    ("sz", "sizeof ", OperatorForm::OfExpression),
    ("te", "typeid ", OperatorForm::OfExpression),
    ("ti", "typeid ", OperatorForm::OfType),
    ("tr", "throw", OperatorForm::Unary),
    ("tw", "throw ", OperatorForm::Unary),
];

/// Returns the operator with these two letters.
pub(super) fn find(letters: &[u8]) -> Option<(&'static str, OperatorForm)> {
    let found = OPERATORS.binary_search_by(|(code, _, _)| code.as_bytes().cmp(letters));
    let (_, name, form) = OPERATORS[found.ok()?];
    Some((name, form))
}
