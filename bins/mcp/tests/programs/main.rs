//! Both programs as users run them, over loopback, multicast included.

mod common;
mod copy;
mod network;
mod troubles;
mod trust;
