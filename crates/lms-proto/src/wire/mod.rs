//! Wire formats, as drawn in `docs/wire.md`.
//!
//! Each format is a view over bytes (`new_checked`, getters, setters) and a value (`parse`,
//! `buffer_len`, `emit`). Parsers are total: any bytes give a value or an error, never a panic.

pub(crate) mod checksum;
pub mod encap;
pub mod found;
pub mod hier;
pub mod ipv4;
pub mod ipv6;
pub mod option;
pub mod udp;
