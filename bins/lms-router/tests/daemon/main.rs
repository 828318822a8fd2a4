//! The daemon as a process, in networks of namespaces that the tests build.

mod common;
mod forward;
mod hierarchy;
mod lifecycle;
mod sources;
mod status;
