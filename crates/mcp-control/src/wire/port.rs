//! SUGGEST and PORT: agreement on the carrier of the data, and on its ports (TCP-XM §3.4).
//!
//! ```text
//!  SUGGEST (client)
//! +-------------------------------+-------------------------------+
//! |  number of the suggestion     |  carrier:     |  0            |
//! |                               |  17 UDP, 6 IP |               |
//! +-------------------------------+---------------+---------------+
//! |  source port                  |  suggested destination port   |
//! +-------------------------------+-------------------------------+
//!
//!  PORT (server)
//! +-------------------------------+-------------------------------+
//! |  number of the suggestion     |  verdict: 0 confirmed,        |
//! |                               |  1 taken, try this one        |
//! +-------------------------------+-------------------------------+
//! |  port                         |  0                            |
//! +-------------------------------+-------------------------------+
//! ```

use core::ops::RangeInclusive;

use super::plan::Carrier;
use super::{Message, ParseError, Type, put_u16, u16_at};
use crate::limits::MAX_SUGGESTIONS;

/// A SUGGEST.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Suggest {
    /// 1, 2, ... up to [`MAX_SUGGESTIONS`].
    pub number: u16,
    /// How data will travel: the ports are its.
    pub carrier: Carrier,
    /// The port that data comes from, not 0.
    pub source: u16,
    /// The port that data may go to, not 0.
    pub destination: u16,
}

impl Message for Suggest {
    const TYPE: Type = Type::Suggest;
    const LENGTHS: RangeInclusive<usize> = 8..=8;

    fn parse_body(body: &[u8]) -> Result<Self, ParseError> {
        if body[3] != 0 {
            return Err(ParseError::Reserved);
        }
        let suggest = Suggest {
            number: u16_at(body, 0),
            carrier: Carrier::parse(body[2])?,
            source: u16_at(body, 4),
            destination: u16_at(body, 6),
        };
        let counted = (1..=MAX_SUGGESTIONS).contains(&suggest.number);
        if !counted || suggest.source == 0 || suggest.destination == 0 {
            return Err(ParseError::Value);
        }
        Ok(suggest)
    }

    fn emit_body(&self, body: &mut [u8]) {
        put_u16(body, 0, self.number);
        (body[2], body[3]) = (self.carrier as u8, 0);
        put_u16(body, 4, self.source);
        put_u16(body, 6, self.destination);
    }
}

/// A PORT.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Port {
    /// The suggestion that this answers.
    pub number: u16,
    /// The suggested port is free, and reserved until the next suggestion or the end.
    pub confirmed: bool,
    /// The suggested port, or another that is free here; not 0.
    pub port: u16,
}

impl Message for Port {
    const TYPE: Type = Type::Port;
    const LENGTHS: RangeInclusive<usize> = 8..=8;

    fn parse_body(body: &[u8]) -> Result<Self, ParseError> {
        if u16_at(body, 6) != 0 {
            return Err(ParseError::Reserved);
        }
        let (number, port) = (u16_at(body, 0), u16_at(body, 4));
        let verdict = u16_at(body, 2);
        let counted = (1..=MAX_SUGGESTIONS).contains(&number);
        if !counted || verdict > 1 || port == 0 {
            return Err(ParseError::Value);
        }
        Ok(Port {
            number,
            confirmed: verdict == 0,
            port,
        })
    }

    fn emit_body(&self, body: &mut [u8]) {
        put_u16(body, 0, self.number);
        put_u16(body, 2, u16::from(!self.confirmed));
        put_u16(body, 4, self.port);
        put_u16(body, 6, 0);
    }
}
