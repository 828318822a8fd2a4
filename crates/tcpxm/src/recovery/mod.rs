//! Loss detection: when segments were sent, what became of them, what is lost.

pub(crate) mod log;
pub(crate) mod rto;
pub(crate) mod scoreboard;

pub(crate) use log::SentLog;
pub(crate) use rto::Rtt;
pub(crate) use scoreboard::{Delivered, Scoreboard};
