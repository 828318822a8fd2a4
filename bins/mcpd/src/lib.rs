//! `mcpd`: receives what `mcp` sends to many hosts (TCP-XM §3.4).
//!
//! | module | contents |
//! | --- | --- |
//! | `args` | the command line |
//! | [`config`] | the configuration file, and what it shares with the options of `run` |
//! | `daemon` | `run --config`: reload, status, metrics |
//! | `listen` | admission of connections, and their limits |
//! | `waiting` | connections that have offered nothing yet |
//! | `session` | one control connection: [`mcp_control::Server`] and its driver |
//! | `worker` | the thread of one copy |
//! | `store` | files and folders below the folder of the configuration |
//! | `data` | the data connection |
//! | `activity`, [`status`], [`metrics`] | running copies and totals, and how they are shown |
//! | `top` | the tables of `mcpd top` |
//! | `events` | what `--json` prints |
//!
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod activity;
mod args;
pub mod config;
mod daemon;
mod data;
mod events;
mod listen;
pub mod metrics;
mod pieces;
mod relay;
mod session;
pub mod status;
mod store;
mod top;
mod waiting;
mod worker;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use cli::events::Events;
use cli::verbs;
use tokio::sync::watch;

use args::{Args, RunArgs, Verb};
use config::Receive;
use daemon::Mcpd;
use events::Event;
use listen::Shared;
use session::Outcome;

/// Returns the command line, from which man pages and completions are made.
pub fn command() -> clap::Command {
    <args::Args as clap::CommandFactory>::command()
}

/// Runs the program with these arguments, its name first.
pub fn main_from(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Args = match cli::args::parse(args) {
        Ok(args) => args,
        Err(code) => return code,
    };
    if let Some(path) = &args.new_key {
        return match control_stream::tls::write_new_secret(path) {
            Ok(()) => ExitCode::SUCCESS,
            Err(message) => cli::exit::fail(cli::exit::FAILED, message),
        };
    }
    let run_args = match &args.verb {
        Some(Verb::Run(run)) => run,
        _ => &args.run,
    };
    if let Err(message) = args.log.init(if run_args.quiet { "warn" } else { "info" }) {
        return cli::args::usage(message);
    }
    match args.verb {
        Some(Verb::Run(run_args)) => run(&run_args),
        None => run(&args.run),
        Some(Verb::Other(verb)) => verbs::main::<Mcpd>(verb),
    }
}

fn run(args: &RunArgs) -> ExitCode {
    linux_net::process::raise_descriptor_limit();
    if let Some(file) = &args.config {
        let program = Mcpd { json: args.json };
        return verbs::run::<Mcpd>(daemon_kit::daemon::run(program, file));
    }
    let receive = match args.receive() {
        Ok(receive) => receive,
        Err(message) => return cli::args::usage(message),
    };
    cli::interrupt::install();
    match run_in_foreground(args, &receive) {
        Ok(code) => cli::print::exit_code(code),
        Err(error) => cli::exit::fail(cli::exit::FAILED, format!("{error:#}")),
    }
}

fn run_in_foreground(args: &RunArgs, receive: &Receive) -> anyhow::Result<u8> {
    let settings = receive.settings().map_err(|message| anyhow!(message))?;
    let copies = if args.once { 1 } else { listen::MAX_COPIES };
    let shared = Arc::new(Shared::new(settings, Events::new(args.json, false), copies));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting")?;
    let serving = serve(args.once, receive, Arc::clone(&shared));
    let (outcome, stopped) = runtime.block_on(serving)?;
    let (result, code) = match outcome {
        Some(Outcome::Copied) if args.once && !stopped => ("copied", cli::exit::OK),
        _ if args.once && !stopped => ("failed", cli::exit::FAILED),
        Some(_) => ("stopped", cli::exit::INTERRUPTED),
        None => ("stopped", cli::exit::OK),
    };
    shared.events.emit(&Event::End {
        result,
        exit_code: code,
    });
    Ok(code)
}

/// Serves. Returns the outcome of the last copy that was running at the end, and whether a signal ended it.
async fn serve(
    once: bool,
    receive: &Receive,
    shared: Arc<Shared>,
) -> anyhow::Result<(Option<Outcome>, bool)> {
    let address = receive.address();
    let listener = listen::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let address = listener.local_addr()?;
    let (stop, stopped) = watch::channel(false);
    let stop = Arc::new(stop);
    let raised = Arc::clone(&stop);
    cli::interrupt::on_raise(move || {
        raised.send_replace(true);
    });
    if cli::interrupt::raised() {
        stop.send_replace(true);
    }
    shared.listening(address);
    let outcome = listen::serve(shared, listener, once, stopped.clone()).await;
    let signalled = *stopped.borrow();
    Ok((outcome, signalled))
}
