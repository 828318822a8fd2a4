//! The sockets on the real kernel, in networks of namespaces that the tests build.

mod channels;
mod common;
mod ipv6;
mod link;
mod packet;
mod pipe;
mod queue;
mod routes;
mod segments;
mod trains;
mod udp;
