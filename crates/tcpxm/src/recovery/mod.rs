//! Loss detection: when segments were sent, what became of them, what is lost, how fast it is repaired.

mod carried;
pub(crate) mod log;
pub(crate) mod prr;
pub(crate) mod rto;
pub(crate) mod scoreboard;

pub(crate) use carried::Carried;
pub(crate) use log::SentLog;
pub(crate) use prr::{Disorder, Prr};
pub(crate) use rto::Rtt;
pub(crate) use scoreboard::{Delivered, Scoreboard};
