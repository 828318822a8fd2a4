//! What the programs of polycast share, so that they look and behave alike.
//!
//! | module | what |
//! | --- | --- |
//! | [`args`] | parsing a command line: help and usage errors with the right exit code |
//! | [`exit`] | the exit codes every program uses |
//! | [`mod@print`] | results and messages, and what happens when they cannot be written |
//! | [`logging`] | `--log`, `--log-format`: tracing, as text or JSON, on standard error |
//! | `verbs` | what `run`, `check`, `status` and `top` of the daemons print and answer (feature `daemon`) |
//! | `transfer` | what `lms-send` and `lms-recv` share (feature `transfer`) |
//! | `address` | groups, hosts and relays as users write them (feature `transfer`) |
//! | [`units`] | `100M` as a bit rate, `64MiB` as a size, `2.5s` as a time |
//! | [`interrupt`] | Ctrl-C and SIGTERM as a flag |
//! | [`progress`], [`bars`] | a progress bar, or several, on a terminal only |
//! | [`events`] | `--json`: one event a line |
#![forbid(unsafe_code)]
// Printing that panics where the output cannot be written: `print` has the rule.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

#[cfg(feature = "transfer")]
pub mod address;
pub mod args;
pub mod bars;
pub mod events;
pub mod exit;
pub mod interrupt;
pub mod logging;
pub mod print;
pub mod progress;
#[cfg(feature = "transfer")]
pub mod transfer;
pub mod units;
#[cfg(feature = "daemon")]
pub mod verbs;
