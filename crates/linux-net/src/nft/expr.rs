//! Expressions of nftables rules, as `linux/netfilter/nf_tables.h` numbers them.

use crate::netlink::Message;

/// The one register the rules use (`NFT_REG_1`, 16 bytes).
const REGISTER: u32 = 1;
const NETWORK_HEADER: u32 = 1;

/// How a rule ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict {
    /// The packet is dropped.
    Drop,
    /// Jumps to another chain of the table, which may return.
    Jump(&'static str),
}

#[derive(Clone, Debug)]
enum Expression {
    Load { offset: u32, len: u32 },
    Mask(Vec<u8>),
    Compare { operator: u32, value: Vec<u8> },
    Count(String),
    End(Verdict),
}

/// The expressions of a rule, in order: each continues with the next, or ends the rule.
#[derive(Clone, Debug, Default)]
pub(super) struct Expressions(Vec<Expression>);

impl Expressions {
    pub(super) fn new() -> Self {
        Self::default()
    }

    // Not `mut self`: rustc 1.95 and 1.96 may hand the same argument to two calls when both are
    // a constant such as `new()` (rust-lang/rust#158830), and a callee that changes it in place
    // then frees it twice.
    fn push(self, expression: Expression) -> Self {
        let Self(mut expressions) = self;
        expressions.push(expression);
        Self(expressions)
    }

    /// Loads bytes of the packet, counted from the start of its IP header; ends the rule where there are
    /// none.
    pub(super) fn load(self, offset: u32, len: u32) -> Self {
        self.push(Expression::Load { offset, len })
    }

    /// Ends the rule unless these bytes are there; none always are.
    pub(super) fn starts_with(self, offset: u32, bytes: &[u8]) -> Self {
        match bytes {
            [] => self,
            _ => self.load(offset, bytes.len() as u32).equals(bytes),
        }
    }

    /// Masks the loaded value.
    pub(super) fn mask(self, mask: &[u8]) -> Self {
        self.push(Expression::Mask(mask.to_vec()))
    }

    /// Ends the rule unless the loaded value equals `value`.
    pub(super) fn equals(self, value: &[u8]) -> Self {
        self.push(Expression::Compare {
            operator: 0,
            value: value.to_vec(),
        })
    }

    /// Ends the rule unless it is greater.
    pub(super) fn greater(self, value: &[u8]) -> Self {
        self.push(Expression::Compare {
            operator: 4,
            value: value.to_vec(),
        })
    }

    /// Counts the packet in a named counter of the table.
    pub(super) fn count(self, counter: &str) -> Self {
        self.push(Expression::Count(counter.to_owned()))
    }

    /// Ends the rule.
    pub(super) fn then(self, verdict: Verdict) -> Self {
        self.push(Expression::End(verdict))
    }

    pub(super) fn append_to(&self, message: Message) -> Message {
        self.0.iter().fold(message, |m, expression| {
            m.nest(1, |m| expression.append_to(m))
        })
    }
}

impl Expression {
    fn append_to(&self, m: Message) -> Message {
        let value = |m: Message, kind: u16, bytes: &[u8]| m.nest(kind, |m| m.attr(1, bytes));
        match self {
            Self::Load { offset, len } => m.attr_name(1, "payload").nest(2, |m| {
                m.attr_be32(1, REGISTER)
                    .attr_be32(2, NETWORK_HEADER)
                    .attr_be32(3, *offset)
                    .attr_be32(4, *len)
            }),
            Self::Mask(mask) => m.attr_name(1, "bitwise").nest(2, |m| {
                let m = m
                    .attr_be32(1, REGISTER)
                    .attr_be32(2, REGISTER)
                    .attr_be32(3, mask.len() as u32);
                value(value(m, 4, mask), 5, &vec![0; mask.len()])
            }),
            Self::Compare {
                operator,
                value: bytes,
            } => m.attr_name(1, "cmp").nest(2, |m| {
                value(m.attr_be32(1, REGISTER).attr_be32(2, *operator), 3, bytes)
            }),
            Self::Count(counter) => m.attr_name(1, "objref").nest(2, |m| {
                m.attr_be32(1, super::NFT_OBJECT_COUNTER)
                    .attr_name(2, counter)
            }),
            Self::End(verdict) => m.attr_name(1, "immediate").nest(2, |m| {
                // Register 0 holds the verdict.
                m.attr_be32(1, 0).nest(2, |m| {
                    m.nest(2, |m| match verdict {
                        Verdict::Drop => m.attr_be32(1, 0),
                        Verdict::Jump(chain) => {
                            m.attr_be32(1, (-3_i32).cast_unsigned()).attr_name(2, chain)
                        }
                    })
                })
            }),
        }
    }
}
