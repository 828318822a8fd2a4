//! TCP-XM: a TCP whose sender has many receivers.
//!
//! The wire formats: segments, their options, and the two options of TCP-XM.
#![no_std]
#![forbid(unsafe_code)]

mod seq;
pub mod wire;

pub use seq::Seq;
