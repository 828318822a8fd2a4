//! Builds small networks out of Linux namespaces and runs every experiment of polycast in them.
//!
//! `lab list` names the scenarios, `lab run NAME --out DIR` runs one and writes its table, JSON and
//! plot, `lab report --out DIR` runs all and writes one page, `lab demo` shows the main job in under a
//! minute. `lab` carries the programs themselves: it
//! starts itself again as `lab lms-send ...`, so one build is enough for any experiment.
//!
//! | to add | where |
//! | --- | --- |
//! | a scenario | a file in `scenarios/`, one line in [`scenarios::all`] |
//! | a program | one line in [`programs`] |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod capture;
mod cli;
pub mod demo;
pub mod demo_sim;
pub mod emulator;
pub mod mroute;
pub mod net;
pub mod packets;
mod page;
pub mod plot;
pub mod programs;
pub mod report;
pub mod sandbox;
pub mod scenario;
pub mod scenarios;
pub mod session;
mod simulated;
pub mod transfer;

pub use cli::main_from;
