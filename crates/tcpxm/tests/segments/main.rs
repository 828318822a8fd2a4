//! Single segments, made by hand: what RFC 9293, RFC 5961 and RFC 7323 ask for, and what forgers and
//! floods get.

mod batches;
mod closing;
mod connection;
mod corners;
mod deferred;
mod flight;
mod floods;
mod group;
mod hand;
mod handshake;
mod interleaved;
mod keyed;
mod losses;
mod members;
mod multicast;
mod path;
mod receiving;
mod recovery;
mod runs;
mod timers;
mod windows;
