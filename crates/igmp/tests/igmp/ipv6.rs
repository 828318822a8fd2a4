//! The tests of both families with MLD over IPv6.
#![allow(
    clippy::duplicate_mod,
    reason = "the same tests for each family, which `Addr` names"
)]

pub(crate) type Addr = core::net::Ipv6Addr;

#[path = "common.rs"]
mod common;
#[path = "conformance.rs"]
mod conformance;
#[path = "hostile.rs"]
mod hostile;
#[path = "member.rs"]
mod member;
#[path = "querier.rs"]
mod querier;
#[path = "refused.rs"]
mod refused;
