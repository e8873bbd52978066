//! The grammar of types.

use super::super::{ExceptionSpecification, NameNode, NodeId};
use super::{NameKind, NameParser};

impl<'a> NameParser<'a> {
    pub(super) fn r#decltype(&mut self) -> Option<NodeId> {
        if !self.eat("Dt") {
            self.expect("DT")?;
        }
        let expression = self.expression()?;
        self.expect("E")?;
        self.node(NameNode::Decltype(expression))
    }

    pub(super) fn r#type(&mut self) -> Option<NodeId> {
        self.nested(Self::type_inside)
    }

    pub(super) fn type_inside(&mut self) -> Option<NodeId> {
        if let Some((name, suffix)) = self.builtin() {
            return self.node(NameNode::Builtin(name, suffix));
        }
        let next = self.rest().get(1).copied().unwrap_or(0);
        let found = match (self.peek(), next) {
            (b'r' | b'V' | b'K', _) => {
                let words = self.qualifier_words();
                // The qualifiers of a function type are a part of that type.
                let is_function = matches!(
                    self.rest(),
                    [b'F', ..] | [b'D', b'o' | b'O' | b'w' | b'x', ..]
                );
                let mut of = match is_function {
                    true => self.function_type()?,
                    false => self.r#type()?,
                };
                for word in words.into_iter().filter(|word| !word.is_empty()) {
                    of = self.node(NameNode::Qualifier(of, word))?;
                }
                of
            }
            (b'P', _) => self.prefix(NameNode::Pointer)?,
            (b'R', _) => self.prefix(NameNode::Reference)?,
            (b'O', _) => self.prefix(NameNode::RvalueReference)?,
            (b'C', _) => self.prefix(|of| NameNode::After(of, " _Complex"))?,
            (b'G', _) => self.prefix(|of| NameNode::After(of, " _Imaginary"))?,
            (b'U', b'0'..=b'9') => {
                self.at += 1;
                let mut word = self.source_name()?;
                if self.peek() == b'I' {
                    let arguments = self.template_arguments(false)?;
                    word = self.node(NameNode::Template(word, arguments))?;
                }
                let of = self.r#type()?;
                self.node(NameNode::VendorQualifier(of, word))?
            }
            (b'u', _) => {
                self.at += 1;
                self.source_name()?
            }
            (b'F', _) | (b'D', b'o' | b'O' | b'w' | b'x') => self.function_type()?,
            (b'A', _) => self.array()?,
            (b'M', _) => {
                self.at += 1;
                let class = self.r#type()?;
                let member = self.r#type()?;
                self.node(NameNode::MemberPointer(class, member))?
            }
            (b'T', b's' | b'u' | b'e') => {
                self.at += 2;
                self.class()?
            }
            (b'T', _) => {
                let (parameter, number) = self.numbered_parameter()?;
                self.substitutions.push((parameter, number));
                if self.peek() != b'I' || self.is_early {
                    return Some(parameter);
                } else {
                    let arguments = self.template_arguments(false)?;
                    self.node(NameNode::Template(parameter, arguments))?
                }
            }
            (b'D', b'p') => {
                self.at += 2;
                let pattern = self.r#type()?;
                self.node(NameNode::Expansion(pattern))?
            }
            (b'D', b't' | b'T') => self.r#decltype()?,
            (b'D', b'v') => self.vector()?,
            (b'D', b'B' | b'U') => {
                self.at += 2;
                let bits = match self.peek().is_ascii_digit() {
                    true => {
                        let digits = self.take(|b| b.is_ascii_digit());
                        self.node(NameNode::Text(digits))?
                    }
                    false => self.expression()?,
                };
                self.expect("_")?;
                self.node(NameNode::BitInt(bits, next == b'U'))?
            }
            (b'S', b't') => self.class()?,
            (b'S', _) => {
                let known = self.substitution()?;
                if self.peek() != b'I' {
                    return Some(known);
                }
                let arguments = self.template_arguments(false)?;
                self.node(NameNode::Template(known, arguments))?
            }
            _ => self.class()?,
        };
        self.substitutions.push((found, None));
        Some(found)
    }

    /// Reads the name of a class. `T_` and so on do not refer to its template arguments, but to the
    /// arguments of the function that has the class as a parameter.
    pub(super) fn class(&mut self) -> Option<NodeId> {
        let before = std::mem::replace(&mut self.is_naming, false);
        let name = self.name(&mut NameKind::default());
        self.is_naming = before;
        name
    }

    pub(super) fn prefix(&mut self, make: impl FnOnce(NodeId) -> NameNode<'a>) -> Option<NodeId> {
        self.at += 1;
        let of = self.r#type()?;
        self.node(make(of))
    }

    pub(super) fn builtin(&mut self) -> Option<(&'static str, Option<&'static str>)> {
        let long = [
            ("DF16_", "_Float16"),
            ("DF16b", "std::bfloat16_t"),
            ("DF32_", "_Float32"),
            ("DF32x", "_Float32x"),
            ("DF64_", "_Float64"),
            ("DF64x", "_Float64x"),
            ("DF128_", "_Float128"),
            ("DF128x", "_Float128x"),
            ("Dd", "decimal64"),
            ("De", "decimal128"),
            ("Df", "decimal32"),
            ("Dh", "half"),
            ("Di", "char32_t"),
            ("Ds", "char16_t"),
            ("Du", "char8_t"),
            ("Da", "auto"),
            ("Dc", "decltype(auto)"),
            ("Dn", "decltype(nullptr)"),
        ];
        for (code, name) in long {
            if self.eat(code) {
                return Some((name, None));
            }
        }
        let found = match self.peek() {
            b'v' => ("void", None),
            b'w' => ("wchar_t", None),
            b'b' => ("bool", None),
            b'c' => ("char", None),
            b'a' => ("signed char", None),
            b'h' => ("unsigned char", None),
            b's' => ("short", None),
            b't' => ("unsigned short", None),
            b'i' => ("int", Some("")),
            b'j' => ("unsigned int", Some("u")),
            b'l' => ("long", Some("l")),
            b'm' => ("unsigned long", Some("ul")),
            b'x' => ("long long", Some("ll")),
            b'y' => ("unsigned long long", Some("ull")),
            b'n' => ("__int128", None),
            b'o' => ("unsigned __int128", None),
            b'f' => ("float", None),
            b'd' => ("double", None),
            b'e' => ("long double", None),
            b'g' => ("__float128", None),
            b'z' => ("...", None),
            _ => return None,
        };
        self.at += 1;
        Some(found)
    }

    pub(super) fn function_type(&mut self) -> Option<NodeId> {
        let exceptions = if self.eat("Do") {
            ExceptionSpecification::None
        } else if self.eat("DO") {
            let condition = self.expression()?;
            self.expect("E")?;
            ExceptionSpecification::NoneIf(condition)
        } else if self.eat("Dw") {
            ExceptionSpecification::Only(self.until_end(Self::r#type)?)
        } else {
            ExceptionSpecification::Silent
        };
        self.eat("Dx");
        self.expect("F")?;
        self.eat("Y");
        let returns = self.r#type()?;
        let mut parameters = Vec::new();
        let mut reference = "";
        loop {
            if self.eat("E") {
                break;
            } else if self.eat("RE") {
                reference = " &";
                break;
            } else if self.eat("OE") {
                reference = " &&";
                break;
            } else if self.rest().starts_with(b"vE")
                || self.rest().starts_with(b"vRE")
                || self.rest().starts_with(b"vOE")
            {
                self.at += 1;
            } else {
                parameters.push(self.r#type()?);
            }
        }
        self.node(NameNode::FunctionType {
            returns,
            parameters,
            exceptions,
            reference,
        })
    }

    pub(super) fn array(&mut self) -> Option<NodeId> {
        self.expect("A")?;
        let length = match self.peek() {
            b'_' => None,
            b'0'..=b'9' => {
                let digits = self.take(|b| b.is_ascii_digit());
                Some(self.node(NameNode::Text(digits))?)
            }
            _ => Some(self.expression()?),
        };
        self.expect("_")?;
        let of = self.r#type()?;
        self.node(NameNode::Array(length, of))
    }

    pub(super) fn vector(&mut self) -> Option<NodeId> {
        self.expect("Dv")?;
        let length = match self.eat("_") {
            true => self.expression()?,
            false => {
                let digits = self.take(|b| b.is_ascii_digit());
                self.node(NameNode::Text(digits))?
            }
        };
        self.expect("_")?;
        let of = self.r#type()?;
        self.node(NameNode::Vector(length, of))
    }
}
