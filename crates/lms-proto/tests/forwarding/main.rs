//! Headers, encapsulation and the router's forwarding path.

mod carriers;
mod common;
mod encap;
mod flood;
mod hierarchy;
mod injected;
mod ipv4;
mod memory;
mod mutations;
mod net;
mod no_alloc;
mod policies;
mod prop_forward;
mod refusals;
mod verdicts;
