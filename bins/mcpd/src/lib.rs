//! `mcpd`: receives what `mcp` sends to many hosts (TCP-XM §3.4).
//!
//! | module | what |
//! | --- | --- |
//! | `args` | the command line |
//! | `listen` | who may connect, and how many at a time |
//! | `waiting` | connections that have offered nothing yet |
//! | `session` | one control connection: [`mcp_control::Server`] and what it asks for |
//! | `worker` | the thread of one copy |
//! | `store` | files and folders below `--dir` |
//! | `data` | the data connection |
//! | `events` | what `--json` prints |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod args;
mod data;
mod events;
mod listen;
mod pieces;
mod session;
mod store;
mod waiting;
mod worker;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use anyhow::{Context, anyhow};
use cli::events::Events;
use control_stream::tls::Credentials;
use mcp_control::ServerConfig;
use mcp_control::wire::hello::Capabilities;
use proto_core::clock::Clock;
use tokio::sync::{Semaphore, watch};

use args::Args;
use events::Event;
use listen::Shared;
use session::Outcome;

/// The command line, as `--help` shows it: man pages and completions are made of it.
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
    if let Err(message) = args
        .log
        .init(if args.quiet { "warn" } else { "info" })
        .and_then(|()| args.check())
    {
        return cli::args::usage(message);
    }
    cli::interrupt::install();
    linux_net::process::raise_descriptor_limit();
    match run(&args) {
        Ok(code) => cli::print::exit_code(code),
        Err(error) => cli::exit::fail(cli::exit::FAILED, format!("{error:#}")),
    }
}

fn run(args: &Args) -> anyhow::Result<u8> {
    let credentials = args.key_file.as_deref().map(Credentials::read);
    let credentials = credentials
        .transpose()
        .map_err(|message| anyhow!(message))?;
    let carriers = args.carriers().map_err(|message| anyhow!(message))?;
    let capabilities = if credentials.is_some() && !args.no_aead {
        carriers.with(Capabilities::AEAD)
    } else {
        carriers
    };
    let shared = Arc::new(Shared {
        folder: args.dir.clone(),
        config: ServerConfig::new(capabilities),
        credentials,
        clock: Clock::new(),
        events: Events::new(args.json, false),
        copies: Arc::new(Semaphore::new(if args.once {
            1
        } else {
            listen::MAX_COPIES
        })),
        fsync: args.fsync,
        refusals: Mutex::default(),
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting")?;
    let (outcome, stopped) = runtime.block_on(serve(args, Arc::clone(&shared)))?;
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

/// Serves; how the last copy ended that was under way at the end, and whether a signal ended it.
async fn serve(args: &Args, shared: Arc<Shared>) -> anyhow::Result<(Option<Outcome>, bool)> {
    let address = args.address();
    let listener = listen::bind(address).with_context(|| format!("cannot listen on {address}"))?;
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
    let secure = shared.credentials.is_some();
    let folder = shared.folder.display().to_string();
    tracing::info!(%address, folder, secure, "listening");
    shared.events.emit(&Event::Listening {
        address,
        folder,
        secure,
    });
    let outcome = listen::serve(shared, listener, args.once, stopped.clone()).await;
    let signalled = *stopped.borrow();
    Ok((outcome, signalled))
}
