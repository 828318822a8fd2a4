//! What the programs of polycast share, so that they look and behave alike.
//!
//! | module | what |
//! | --- | --- |
//! | [`args`] | parsing a command line: help and usage errors with the right exit code |
//! | [`assist`] | `--assist`: who helps with repairs |
//! | [`exit`] | the exit codes every program uses |
//! | [`mod@print`] | results and messages, and what happens when they cannot be written |
//! | [`logging`] | `--log`, `--log-format`: tracing, as text or JSON, on standard error |
//! | `metrics` | Prometheus metrics over HTTP, for daemons (feature `metrics`) |
//! | `daemon` | configuration, status socket, metrics tables of the daemons (feature `daemon`) |
//! | `secure` | `--key-file`: TLS 1.3 of control connections, both sides proved (feature `control`) |
//! | `conversation` | a machine at one end of a byte stream, driven in tokio (feature `control`) |
//! | `copying` | what `mcp` and `mcpd` share (feature `copying`) |
//! | [`units`] | `100M` as a bit rate, `64MiB` as a size, `2.5s` as a time |
//! | [`clock`] | the clock that machines are driven with |
//! | [`multicast`] | `--group`, `--interface`, `--ttl`, `--key-file`: where a group is and how it is reached |
//! | [`limits`] | the limit on open file descriptors |
//! | [`interrupt`] | Ctrl-C and SIGTERM as a flag |
//! | [`progress`], [`bars`] | a progress bar, or several, on a terminal only |
//! | [`events`] | `--json`: one event a line |
//! | [`names`] | a file name from the network, made harmless |
//! | [`output`] | a file that appears under its name only when it is whole |
#![forbid(unsafe_code)]
// Printing that panics where the output cannot be written: `print` has the rule.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod args;
pub mod assist;
pub mod bars;
pub mod clock;
#[cfg(feature = "control")]
pub mod conversation;
#[cfg(feature = "copying")]
pub mod copying;
#[cfg(feature = "daemon")]
pub mod daemon;
pub mod events;
pub mod exit;
pub mod interrupt;
pub mod limits;
pub mod logging;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod multicast;
pub mod names;
pub mod output;
pub mod print;
pub mod progress;
#[cfg(feature = "control")]
pub mod secure;
pub mod units;
