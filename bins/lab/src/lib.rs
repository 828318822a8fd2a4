//! Builds small networks out of Linux namespaces and runs every experiment of polycast in them.
//!
//! `lab list` names the scenarios, `lab run NAME --out DIR` runs one and writes its table, JSON and
//! plot, `lab report --out DIR` runs all and writes one page, `lab demo` shows the main job in under a
//! minute. `lab` carries the programs themselves: it
//! starts itself again as `lab lms-send ...`, so one build is enough for any experiment.
//!
//! | to add | where |
//! | --- | --- |
//! | a scenario | a file in `scenarios/`, one line in `scenarios::all` |
//! | a program | one line in `programs` |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod cli;
mod daemon;
mod demo;
mod packets;
mod page;
mod prelude;
mod programs;
mod sandbox;
mod scenarios;
mod session;
mod shaper;
mod transfer;

pub use cli::main_from;
