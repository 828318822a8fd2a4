//! Both programs as users run them, over loopback, multicast included.

#[path = "../../../cli/tests/unwritable/mod.rs"]
mod broken_output;
mod common;
mod copy;
mod faulty;
mod flights;
mod islands;
mod network;
mod pace;
mod relay;
mod routed;
mod troubles;
mod trust;
mod unwritable;
