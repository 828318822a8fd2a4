//! Native networks on real sockets, each test in a network namespace of its own.

mod announced;
mod common;
mod external;
mod http;
mod ip;
mod ltp;
mod ssm;
mod tokens;
