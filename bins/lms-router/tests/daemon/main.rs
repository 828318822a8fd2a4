//! The daemon as a process, in networks of namespaces that the tests build.

mod carriers;
mod common;
mod forward;
mod hierarchy;
mod injected;
mod lifecycle;
mod shared_link;
mod sources;
mod status;
mod xdp;
