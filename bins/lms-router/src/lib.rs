//! `lms-router`: an LMS router for Linux, beside whatever routes multicast on the host.
//!
//! It captures LMS requests, directed multicasts, IGMP and LMS-HIER messages in a packet ring,
//! lets the machine of [`lms_proto`] decide, and sends what comes out. Data packets never pass
//! through it: the kernel forwards these, by the routes of a routing daemon
//! (`source.kind = "kernel"`), of another program (`"static"`), or of the built-in IGMP proxy
//! (`"igmp-proxy"`).
//!
//! # Threads
//!
//! | thread | what it does |
//! | --- | --- |
//! | data (`lms-data`) | `ppoll` over packet ring, netlink, the kernel's questions and commands; owns the machine; forwards up to 64 packets in place for one `sendmmsg`, with no allocation |
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
//! # Metrics
//!
//! | metric | type | labels | what it says |
//! | --- | --- | --- | --- |
//! | `lms_router_info` | gauge | version, source, policy | 1, and in its labels what is running |
//! | `lms_router_uptime_seconds` | gauge |  | Seconds since the start |
//! | `lms_router_reloads_total` | counter | result | Reloads, accepted and rejected |
//! | `lms_router_groups` | gauge |  | Multicast routes known |
//! | `lms_router_neighbours` | gauge |  | Pairs of a group and a downstream neighbour whose cost is known |
//! | `lms_router_interfaces` | gauge |  | Interfaces in use |
//! | `lms_router_packets_total` | counter | verdict | LMS packets by what became of them |
//! | `lms_router_drops_total` | counter | reason | LMS packets dropped, by reason |
//! | `lms_router_hierarchy_total` | counter | event | Replier hierarchy: messages, elections, what was refused |
//! | `lms_router_routes_total` | counter | event | Multicast routes: changes, what was refused |
//! | `lms_router_queues_total` | counter | event | Packet ring and sender: what passed and what was lost there |
//! | `lms_router_igmp_total` | counter | event | IGMP proxy: messages, what was refused |
//! | `lms_router_interface_packets_total` | counter | interface, kind | Packets of one interface: received, requests_sent, dmcasts_sent, control_sent, dropped, too_long |
//!
//! Verdicts, reasons and events are the names that `status counters` shows.
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
#[cfg(feature = "top")]
mod top;

use std::ffi::OsString;
use std::process::ExitCode;

use args::{Args, Verb, What};
use cli::verbs;
use config::Config;

/// What the program calls itself.
const PROGRAM: &str = "lms-router";

const EXAMPLE: verbs::Example = verbs::Example {
    program: PROGRAM,
    source: "bins/lms-router/lms-router.toml",
};

/// The command line, as `--help` shows it: man pages and completions are made of it.
pub fn command() -> clap::Command {
    <args::Args as clap::CommandFactory>::command()
}

/// Runs the program with its arguments, the first of which is its name.
pub fn main_from(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Args = match cli::args::parse(arguments) {
        Ok(args) => args,
        Err(code) => return code,
    };
    if let Err(message) = args.log.init("info") {
        return cli::args::usage(message);
    }
    match args.verb {
        Verb::Run(file) => verbs::run(daemon::run(&file.config), &EXAMPLE),
        Verb::Check(args) => verbs::check(&args, &EXAMPLE, Config::load, Config::on_this_host),
        #[cfg(feature = "top")]
        Verb::Top { once, socket } => verbs::top(&top::VIEW, socket, once),
        Verb::Status { what, json, socket } => {
            let show = What::show(what);
            let answer = status::query(&socket, show);
            verbs::status(answer, json, |answer| status::render(show, answer))
        }
    }
}
