//! `bfed-gateway`: a gateway of the Broadcast Federation for Linux.
//!
//! It drives the machines of [`bfed`]: a control node, which peers with other gateways over TCP and carries no
//! data, and data nodes, which forward over UDP (real-time sessions, congestion-controlled), over TCP
//! (bulk sessions) and through the native broadcast of their own network.
//!
//! # Processes and threads
//!
//! | verb | thread | work |
//! | --- | --- | --- |
//! | `run`, `control` | main | tokio, one thread: peers, data nodes, clients of the native network, status, metrics |
//! | `run`, `data` | one a data node (`bfed-data-N`) | its own sockets, its own machine, its own part of the native network's addresses |
//!
//! A process has as many data nodes as cores by default. Each registers with the control node, which spreads sessions
//! over all of them, on one machine or on several. A packet stays on one thread.
//!
//! # Slow receivers
//!
//! | session | queue | at the bound |
//! | --- | --- | --- |
//! | real-time | `limits.receiver-queue` for each receiver | the oldest frame is dropped: `drops{reason="queue_full"}` |
//! | bulk | the same, and at most 192 KiB beside it | while its socket takes nothing the source is not read: `plane{event="pauses"}`; a receiver that reads nothing for `limits.idle-timeout` is cut off: `drops{reason="stalled"}` |
//!
//! # Privileges
//!
//! None are needed except for ports below 1024, and none are kept: capabilities are dropped once the sockets are open,
//! and `daemon.user` changes the user.
//!
//! # What a reload changes
//!
//! SIGHUP reads the configuration again, whole or not at all. Peers, policies, names, timers and the
//! control node's limits change at once (what an OPEN says, hold time and tables, with each peering's
//! next session); the rest waits for a restart, and log and `status` name what differs
//! ([`needs_restart`](daemon_kit::daemon::Configuration::needs_restart)).
//!
//! # Metrics
//!
//! | metric | type | labels | meaning |
//! | --- | --- | --- | --- |
//! | `bfed_gateway_info` | gauge | version, gateway, mode, network | 1, and in its labels what is running |
//! | `bfed_gateway_uptime_seconds` | gauge |  | Seconds since the start |
//! | `bfed_gateway_reloads_total` | counter | result | Reloads, accepted and rejected |
//! | `bfed_gateway_active` | gauge |  | 1 where this is the active control node |
//! | `bfed_gateway_peers` | gauge | state | Peers configured, and those established |
//! | `bfed_gateway_routes` | gauge |  | Routes known, over all tables |
//! | `bfed_gateway_sessions` | gauge |  | Sessions whose trees go through this gateway |
//! | `bfed_gateway_nodes` | gauge |  | Data nodes registered |
//! | `bfed_gateway_control_total` | counter | event | What the control node did; `trees_examined`: sessions examined because routes, peers or data nodes changed |
//! | `bfed_gateway_routing_total` | counter | event | What routing did |
//! | `bfed_gateway_control_drops_total` | counter | reason | Messages dropped by the control node, by reason |
//! | `bfed_gateway_mediator_total` | counter | event | What the native network's mediator did |
//! | `bfed_gateway_mediator_client_sessions` | gauge |  | Sessions that clients of the native network's mediator have |
//! | `bfed_gateway_join_latency_seconds` | histogram |  | Time from a client's JOIN to the address of the session |
//! | `bfed_gateway_native_channels` | gauge | node | Channels of a data node in a network of groups |
//! | `bfed_gateway_native_readers` | gauge | node | Readers at a data node's HTTP server |
//! | `bfed_gateway_native_streams` | gauge | node | Streams at a data node's HTTP server |
//! | `bfed_gateway_node_sessions` | gauge | node | Sessions of a data node of this process |
//! | `bfed_gateway_node_edges` | gauge | node | Ways in and out of its flows |
//! | `bfed_gateway_node_streams` | gauge | node | Its TCP channels |
//! | `bfed_gateway_node_connected` | gauge | node | 1 while it has a control node |
//! | `bfed_gateway_plane_total` | counter | node, event | What a data node forwarded |
//! | `bfed_gateway_drops_total` | counter | node, reason | Packets and copies dropped, by reason |
//! | `bfed_gateway_sockets_total` | counter | node, event | What went through a data node's sockets |
//! | `bfed_gateway_native_total` | counter | node, event | What the native network did for a data node |
//!
//! # Exit codes
//!
//! 0: success, or stopped by a signal; 1: failed; 2: the command line or the configuration is wrong; 74: the result
//! could not be written to standard output.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod args;
pub mod config;
mod control;
mod daemon;
mod data;
mod limiter;
mod links;
pub mod metrics;
pub mod native;
mod page;
pub mod status;
#[cfg(feature = "top")]
mod top;

use std::ffi::OsString;
use std::process::ExitCode;

pub use daemon::open_with;
pub use data::{NotOpened, Opener};

use args::{Args, Verb};
use cli::verbs;
use config::{Config, Mode};

/// The program's name.
const PROGRAM: &str = "bfed-gateway";

const EXAMPLE: verbs::Example = verbs::Example {
    program: PROGRAM,
    source: "bins/bfed-gateway/examples/gateway.toml",
};

/// Returns the command line for man pages and completions.
pub fn command() -> clap::Command {
    <args::Args as clap::CommandFactory>::command()
}

/// Runs the program; the first argument is its name.
pub fn main_from(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Args = match cli::args::parse(arguments) {
        Ok(args) => args,
        Err(code) => return code,
    };
    if let Err(message) = args.log.init("info") {
        return cli::args::usage(message);
    }
    let run = |mode, file: args::File| {
        linux_net::process::raise_descriptor_limit();
        verbs::run(daemon::run(mode, &file.config), &EXAMPLE)
    };
    match args.verb {
        Verb::Run(file) => run(Mode::Whole, file),
        Verb::Control(file) => run(Mode::Control, file),
        Verb::Data(file) => run(Mode::Data, file),
        Verb::Check(args) => verbs::check(&args, &EXAMPLE, Config::load, Config::on_this_host),
        Verb::Status { what, json, at } => {
            let answer = status::query(&at.socket, what);
            verbs::status(answer, json, |answer| status::render(what, answer))
        }
        #[cfg(feature = "top")]
        Verb::Top { once, at } => verbs::top(&top::VIEW, at.socket, once),
        Verb::Drain { node, at } => {
            let answer = status::drain(&at.socket, node);
            verbs::status(answer, false, |_| {
                Some(format!("data node {node} drains\n"))
            })
        }
    }
}
