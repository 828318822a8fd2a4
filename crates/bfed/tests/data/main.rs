//! Data nodes: forwarding, queues, rates, what control says, hostile packets.

mod fake;
mod forward;
mod memory;
mod rates;
mod shortcut;
mod watch;
mod whole;
