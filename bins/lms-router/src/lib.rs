//! `lms-router`: an LMS router for Linux, beside whatever routes multicast on the host.
//!
//! It captures LMS requests, directed multicasts, IGMP and LMS-HIER messages in a packet ring,
//! drives the machine of [`lms_proto`], and sends its output. Data packets never pass
//! through it: the kernel forwards these, by the routes of a routing daemon
//! (`source.kind = "kernel"`), of another program (`"static"`), or of the built-in IGMP proxy
//! (`"igmp-proxy"`).
//!
//! # Threads
//!
//! | thread | task |
//! | --- | --- |
//! | data (`lms-data`) | `ppoll` over packet ring, netlink, the kernel's upcalls and commands; owns the machine; forwards up to 64 packets in place for one `sendmmsg`, with no allocation |
//! | control (main) | tokio, one thread: signals, reloads, status socket, metrics; talks to the data thread by a bounded channel and an eventfd |
//!
//! # Privileges
//!
//! Opening takes CAP_NET_RAW (ring, sender) and CAP_NET_ADMIN (guard, routing of the IGMP proxy).
//! Then all capabilities go, and no_new_privs stays. Measured: interfaces that appear later,
//! multicast routes, the proxy's routes and interfaces all work with none. The one exception:
//! where `[[replier.static]]` names neighbours, CAP_NET_ADMIN is kept, to have the kernel find
//! their link addresses out. `daemon.user` also changes the user; the configuration must be
//! readable for that user, or reloads are rejected.
//!
//! # What a reload changes
//!
//! SIGHUP reads the configuration again, whole or not at all. Routes (static), interfaces,
//! replier policy and rates change at once. `daemon.*`, `metrics.listen`, `source.kind` and the
//! proxy's section, the sizes of tables and `capture.*` wait for a restart: the log and `status`
//! name those that differ ([`needs_restart`](daemon_kit::daemon::Configuration::needs_restart)).
//!
//! # Exit codes
//!
//! 0: all well, or `run` was ended by SIGTERM or SIGINT; 1: failed; 2: the command line or the
//! configuration is wrong; 74: the result could not be written to standard output.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod args;
pub mod config;
mod control;
mod daemon;
mod data;
pub mod metrics;
pub mod status;
mod top;

use std::ffi::OsString;
use std::process::ExitCode;

use args::{Args, Verb};
use cli::verbs;
use daemon::Router;

/// Returns the command line, from which man pages and completions are generated.
pub fn command() -> clap::Command {
    <args::Args as clap::CommandFactory>::command()
}

/// Runs the program. The first argument is its name.
pub fn main_from(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = cli::args::start(arguments, |args: &Args| &args.log, "info");
    match args.map(|args| args.verb) {
        Err(code) => code,
        Ok(Verb::Run(file)) => verbs::run::<Router>(daemon_kit::daemon::run(Router, &file.config)),
        Ok(Verb::Other(verb)) => verbs::main::<Router>(verb),
    }
}
