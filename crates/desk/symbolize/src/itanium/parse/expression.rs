//! The grammar of expressions and literals, which occur in template arguments, array lengths and
//! `decltype`.

use super::super::operators::{self, OperatorForm};
use super::super::{NameNode, NodeId};
use super::NameParser;

impl<'a> NameParser<'a> {
    pub(super) fn expression(&mut self) -> Option<NodeId> {
        self.nested(Self::expression_inside)
    }

    pub(super) fn expression_inside(&mut self) -> Option<NodeId> {
        let next = self.rest().get(1).copied().unwrap_or(0);
        match (self.peek(), next) {
            (b'L', _) => self.literal(),
            (b'T', _) => self.parameter(),
            (b'0'..=b'9', _) | (b'o', b'n') | (b'd', b'n') => self.simple_name(),
            (b's', b'r') => self.dependent_name(),
            (b'g', b's') => {
                self.eat("gs");
                let of = self.expression()?;
                match self.node_mut(of) {
                    NameNode::New(scope, ..) => {
                        *scope = "::";
                        Some(of)
                    }
                    _ => self.node(NameNode::Global(of)),
                }
            }
            (b'f', b'p') => {
                self.eat("fp");
                if self.eat("T") {
                    return self.node(NameNode::Parameter(0));
                }
                self.function_parameter()
            }
            (b'f', b'L') if self.rest().get(2).is_some_and(u8::is_ascii_digit) => {
                self.eat("fL");
                self.number()?;
                self.expect("p")?;
                self.function_parameter()
            }
            (b'f', b'l' | b'r' | b'L' | b'R') => self.fold(),
            (b's', b'p') => {
                self.eat("sp");
                let of = self.expression()?;
                self.node(NameNode::Expansion(of))
            }
            (b's', b'Z') => {
                self.eat("sZ");
                let of = match self.peek() {
                    b'T' => self.parameter()?,
                    _ => self.expression()?,
                };
                self.node(NameNode::Count(of))
            }
            (b's', b'P') => {
                self.eat("sP");
                let arguments = self.until_end(Self::template_argument)?;
                let pack = self.node(NameNode::Pack(arguments))?;
                self.node(NameNode::Count(pack))
            }
            (b't', b'l') => {
                self.eat("tl");
                let of = self.r#type()?;
                let parts = self.until_end(Self::expression)?;
                self.node(NameNode::Braces(Some(of), parts))
            }
            (b'i', b'l') => {
                self.eat("il");
                let parts = self.until_end(Self::expression)?;
                self.node(NameNode::Braces(None, parts))
            }
            (b'c', b'v') => {
                self.eat("cv");
                let to = self.r#type()?;
                let of = match self.eat("_") {
                    true => self.until_end(Self::expression)?,
                    false => vec![self.expression()?],
                };
                self.node(NameNode::Cast(to, of))
            }
            _ => self.operation(),
        }
    }

    pub(super) fn function_parameter(&mut self) -> Option<NodeId> {
        self.take(|b| matches!(b, b'r' | b'V' | b'K'));
        let number = self.index()?;
        self.node(NameNode::Parameter(number.checked_add(1)?))
    }

    pub(super) fn fold(&mut self) -> Option<NodeId> {
        let kind = *self.rest().get(1)?;
        self.take_two()?;
        let (name, _) = operators::find(self.take_two()?)?;
        let first = self.expression()?;
        let second = match kind {
            b'L' | b'R' => Some(self.expression()?),
            _ => None,
        };
        self.node(NameNode::Fold(
            first,
            name,
            second,
            matches!(kind, b'l' | b'L'),
        ))
    }

    pub(super) fn take_two(&mut self) -> Option<&'a [u8]> {
        let two = self.rest().get(..2)?;
        self.advance(2);
        Some(two)
    }

    pub(super) fn operation(&mut self) -> Option<NodeId> {
        let (name, form) = operators::find(self.rest().get(..2)?)?;
        self.advance(2);
        match form {
            OperatorForm::Unary if name == "throw" => self.node(NameNode::Text("throw")),
            OperatorForm::Unary | OperatorForm::Delete => {
                let of = self.expression()?;
                self.node(NameNode::Unary(name, of))
            }
            OperatorForm::Step => {
                let is_before = self.eat("_");
                let of = self.expression()?;
                self.node(match is_before {
                    true => NameNode::Unary(name, of),
                    false => NameNode::Postfix(of, name),
                })
            }
            OperatorForm::Binary => {
                let left = self.expression()?;
                let right = match name {
                    "." | "->" => self.member()?,
                    _ => self.expression()?,
                };
                self.node(NameNode::Binary(name, left, right))
            }
            OperatorForm::Conditional => {
                let condition = self.expression()?;
                let (yes, no) = (self.expression()?, self.expression()?);
                self.node(NameNode::Conditional(condition, yes, no))
            }
            OperatorForm::Call => {
                let callee = self.expression()?;
                let arguments = self.until_end(Self::expression)?;
                self.node(NameNode::Call(callee, arguments))
            }
            OperatorForm::NamedCast => {
                let (to, of) = (self.r#type()?, self.expression()?);
                self.node(NameNode::NamedCast(name, to, of))
            }
            OperatorForm::OfType => {
                let of = self.r#type()?;
                self.node(NameNode::Word(name, of))
            }
            OperatorForm::OfExpression => {
                let of = self.expression()?;
                self.node(NameNode::Word(name, of))
            }
            OperatorForm::New => {
                let mut places = Vec::new();
                while !self.eat("_") {
                    places.push(self.expression()?);
                }
                let of = self.r#type()?;
                let with = match self.eat("E") {
                    true => None,
                    false => {
                        if !self.eat("pi") {
                            self.expect("il")?;
                        }
                        Some(self.until_end(Self::expression)?)
                    }
                };
                self.node(NameNode::New("", places, of, with))
            }
        }
    }

    /// Reads the member name after a point or an arrow.
    pub(super) fn member(&mut self) -> Option<NodeId> {
        match self.rest() {
            [b's', b'r', ..] => self.dependent_name(),
            [b'0'..=b'9', ..] | [b'o', b'n', ..] | [b'd', b'n', ..] => self.simple_name(),
            _ => self.expression(),
        }
    }

    pub(super) fn literal(&mut self) -> Option<NodeId> {
        self.nested(|parser| {
            parser.expect("L")?;
            let is_name = parser.eat("_Z");
            // Older compilers left the underscore out.
            if is_name || parser.rest().starts_with(b"Z") && parser.eat("Z") {
                let name = parser.encoding()?;
                parser.expect("E")?;
                return Some(name);
            }
            let of = parser.r#type()?;
            let is_negative = parser.eat("n");
            let value = parser.take(|b| b != b'E' && b.is_ascii());
            parser.expect("E")?;
            parser.node(NameNode::Literal(of, is_negative, value))
        })
    }
}
