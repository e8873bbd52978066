//! Writes expressions and literals as text.

use super::super::{NameNode, NodeId};
use super::NamePrinter;

impl NamePrinter<'_, '_> {
    pub(super) fn expression(&mut self, id: NodeId) {
        match self.node(id) {
            NameNode::Parameter(0) => self.push("this"),
            NameNode::Parameter(number) => {
                self.push("{parm#");
                self.push_number(*number);
                self.push("}");
            }
            NameNode::Literal(of, is_negative, digits) => self.literal(*of, *is_negative, digits),
            NameNode::Unary(sign, of) => self.unary(sign, *of),
            NameNode::Postfix(of, sign) => {
                self.operand(*of);
                self.push(sign);
            }
            NameNode::Binary("[]", left, right) => {
                self.operand(*left);
                self.push("[");
                self.whole(*right);
                self.push("]");
            }
            NameNode::Binary(sign, left, right) => {
                // Without parentheses the argument list would end here.
                let is_closing = *sign == ">";
                if is_closing {
                    self.push("(");
                }
                self.operand(*left);
                self.push(sign);
                self.operand(*right);
                if is_closing {
                    self.push(")");
                }
            }
            NameNode::Conditional(condition, yes, no) => {
                self.operand(*condition);
                self.push("?");
                self.operand(*yes);
                self.push(" : ");
                self.operand(*no);
            }
            NameNode::Fold(first, sign, second, is_left) => {
                self.push("(");
                match (second, is_left) {
                    (Some(second), _) => {
                        self.operand(*first);
                        self.push(sign);
                        self.push("...");
                        self.push(sign);
                        self.operand(*second);
                    }
                    (None, true) => {
                        self.push("...");
                        self.push(sign);
                        self.operand(*first);
                    }
                    (None, false) => {
                        self.operand(*first);
                        self.push(sign);
                        self.push("...");
                    }
                }
                self.push(")");
            }
            NameNode::Call(callee, arguments) => {
                // If the callee is a function, only its name is written, without parameters.
                match self.node(*callee) {
                    NameNode::Function { name, .. } => self.operand(*name),
                    _ => self.operand(*callee),
                }
                self.parameters(arguments);
            }
            NameNode::NamedCast(word, to, of) => {
                self.push(word);
                self.arguments(&[*to]);
                self.parameters(&[*of]);
            }
            NameNode::Cast(to, of) => {
                self.push("(");
                self.whole(*to);
                self.push(")");
                self.parameters(of);
            }
            NameNode::Braces(of, parts) => {
                if let Some(of) = of {
                    self.whole(*of);
                }
                self.push("{");
                self.list(parts);
                self.push("}");
            }
            NameNode::Word(word, of) => {
                self.push(word);
                self.push("(");
                self.whole(*of);
                self.push(")");
            }
            NameNode::New(scope, places, of, with) => {
                self.push(scope);
                self.push("new ");
                if !places.is_empty() {
                    self.parameters(places);
                    self.push(" ");
                }
                self.whole(*of);
                if let Some(with) = with {
                    self.parameters(with);
                }
            }
            NameNode::Global(of) => {
                self.push("::");
                self.whole(*of);
            }
            NameNode::Count(of) => {
                let length = match self.node(*of) {
                    NameNode::Pack(arguments) => Some(arguments.len()),
                    _ => self.pack_length(*of),
                };
                match length {
                    Some(length) => self.push_number(length as u64),
                    None => {
                        self.push("sizeof...(");
                        self.whole(*of);
                        self.push(")");
                    }
                }
            }
            _ => self.is_refused = true,
        }
    }

    pub(super) fn literal(&mut self, of: NodeId, is_negative: bool, digits: &str) {
        let suffix = match self.node(of) {
            NameNode::Builtin("bool", _) if digits == "0" => return self.push("false"),
            NameNode::Builtin("bool", _) if digits == "1" => return self.push("true"),
            NameNode::Builtin(_, suffix) => *suffix,
            _ => None,
        };
        if suffix.is_none() {
            self.push("(");
            self.whole(of);
            self.push(")");
        }
        if is_negative {
            self.push("-");
        }
        let is_bits = matches!(
            self.node(of),
            NameNode::Builtin("float" | "double" | "long double" | "__float128", _)
        );
        match is_bits {
            true => self.push(&format!("[{digits}]")),
            false => self.push(digits),
        }
        self.push(suffix.unwrap_or(""));
    }

    /// Whether `name` is a member that is not a template.
    fn is_plain_member(&self, name: NodeId) -> bool {
        match self.node(name) {
            NameNode::Qualified(_, inner) => !matches!(self.node(*inner), NameNode::Template(..)),
            _ => false,
        }
    }

    pub(super) fn unary(&mut self, sign: &str, of: NodeId) {
        self.push(sign);
        match self.node(of) {
            // The address of a member is written with its name only.
            NameNode::Function { name, .. } if sign == "&" && self.is_plain_member(*name) => {
                self.whole(*name);
            }
            _ => self.operand(of),
        }
    }

    /// Writes an operand, in parentheses unless it is a plain name.
    pub(super) fn operand(&mut self, id: NodeId) {
        let is_plain = matches!(
            self.node(id),
            NameNode::Text(_)
                | NameNode::Qualified(..)
                | NameNode::Braces(..)
                | NameNode::Parameter(_)
        );
        if is_plain {
            return self.whole(id);
        }
        self.push("(");
        self.whole(id);
        self.push(")");
    }
}
