//! The real program on loopback.

mod announced;
mod authorisation;
mod browser;
mod common;
mod external;
mod floods;
mod ltp;
mod metrics;
mod peering;
mod refusal;
mod reload;
mod resolved;

mod startup;
#[path = "../support/mod.rs"]
mod support;
mod versions;
