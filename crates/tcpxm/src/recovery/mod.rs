//! Loss detection: send times, delivery, losses, and the rate of repairs.

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
