//! `mcp`: copies a file or a folder to many hosts at once (TCP-XM §3.4). `mcpd` is the other end.
//!
//! | module | contents |
//! | --- | --- |
//! | `args`, `hosts` | the command line; the hosts to copy to |
//! | `tree` | the files to copy |
//! | `copy`, `member` | the copy as a whole; the state of each host |
//! | `host` | the control connection to one host: [`mcp_control::Client`] |
//! | `reader` | the thread that reads, compares and sends |
//! | `data` | the data connection |
//! | `relay` | hosts that relay to hosts |
//! | `hold` | signals from the copy to the sending thread |
//! | `show`, `events` | messages and progress bars; the events of `--json` |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod args;
mod copy;
mod data;
mod events;
mod hold;
mod host;
mod hosts;
mod member;
mod reader;
mod relay;
mod resend;
mod show;
mod tree;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, anyhow};
use cli::events::Events;
use cli::units::{BitRate, ByteSize};
use control_stream::tls::Credentials;
use mcp_control::ClientConfig;
use mcp_control::wire::hello::Capabilities;
use mcp_control::wire::offer::CopyId;
use proto_core::clock::Clock;
use tokio::sync::watch;

use args::Args;
use copy::Copy;
use data::Options;
use events::{Event, SeparateHost};
use host::Common;
use hosts::{Family, Target};
use member::{Member, Stage};
use show::Show;
use tree::Tree;

/// Exit code when every host failed.
const ALL_FAILED: u8 = 4;

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
    if let Err(message) = args.log.init("warn") {
        return cli::args::usage(message);
    }
    let addressed = targets(&args).and_then(|targets| {
        let addresses = targets.iter().filter_map(Target::address);
        let family = Family::common(addresses.chain(args.group))?;
        Ok((targets, family))
    });
    let (targets, family) = match addressed {
        Ok(addressed) => addressed,
        Err(message) => return cli::args::usage(message),
    };
    cli::interrupt::install();
    linux_net::process::raise_descriptor_limit();
    match run(&args, targets, family) {
        Ok(code) => cli::print::exit_code(code),
        Err(error) => cli::exit::fail(cli::exit::FAILED, format!("{error:#}")),
    }
}

/// Returns the hosts of the command line and of the file, without duplicates.
fn targets(args: &Args) -> Result<Vec<Target>, String> {
    let mut all = args.hosts.clone();
    if let Some(path) = &args.hosts_file {
        all.extend(hosts::read(path)?);
    }
    let mut seen = BTreeSet::new();
    all.retain(|target| seen.insert((target.host.clone(), target.port)));
    if all.is_empty() {
        return Err("no hosts: name some, or give --hosts-file".to_owned());
    }
    Ok(all)
}

fn run(args: &Args, targets: Vec<Target>, family: Family) -> anyhow::Result<u8> {
    let credentials = args.key_file.as_deref().map(Credentials::read);
    let credentials = credentials
        .transpose()
        .map_err(|message| anyhow!(message))?;
    let sealed = credentials.is_some() && !args.no_encryption;
    let options = Options::new(args, sealed)?;
    let tree = Arc::new(Tree::read(&args.source, args.to.as_deref())?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting")?;
    let ran = runtime.block_on(converse(args, targets, family, credentials, options, tree));
    // Do not wait for name lookups that are still running.
    runtime.shutdown_background();
    ran
}

/// Returns what this side supports, and what every host must support.
fn capabilities(options: &Options) -> Capabilities {
    let carrier = options.carrier.capability();
    if options.sealed {
        carrier.with(Capabilities::AEAD)
    } else {
        carrier
    }
}

async fn converse(
    args: &Args,
    targets: Vec<Target>,
    family: Family,
    credentials: Option<Credentials>,
    options: Options,
    tree: Arc<Tree>,
) -> anyhow::Result<u8> {
    let (stop, stopped) = watch::channel(false);
    let stop = Arc::new(stop);
    let raised = Arc::clone(&stop);
    cli::interrupt::on_raise(move || {
        raised.send_replace(true);
    });
    if cli::interrupt::raised() {
        stop.send_replace(true);
    }
    let events = Events::new(args.json, false);
    let seed = linux_net::process::random::<32>()?;
    let id = CopyId(std::array::from_fn(|at| seed[at]));
    let capabilities = capabilities(&options);
    let manifest = Arc::clone(&tree.manifest);
    let name = manifest.entries().first().map(|top| top.path.to_string());
    events.emit(&Event::Opened {
        copy: id.to_string(),
        name: name.unwrap_or_default(),
        entries: manifest.len(),
        bytes: manifest.bytes(),
        hosts: targets.len(),
        secure: credentials.is_some(),
    });
    for (path, reason) in &tree.skipped {
        let mut shown = String::new();
        // Writing to a String cannot fail.
        let _ = mcp_control::path::show(path.as_os_str().as_encoded_bytes(), &mut shown);
        cli::print_message!("warning: {shown} is not copied: {reason}");
        events.emit(&Event::Skipped {
            path: shown,
            reason,
        });
    }
    let common = Common {
        manifest,
        config: ClientConfig::new(id, capabilities),
        credentials,
        insecure: args.insecure,
        clock: Clock::new(),
        deadline: Instant::now() + args.timeout(),
        again: args.connect_timeout.is_some(),
        timeout: args.timeout(),
        family,
        from: options.addresses(),
    };
    let labels: Vec<String> = targets.iter().map(|target| target.text.clone()).collect();
    let show = Show::new(!args.quiet && !args.json, labels.into_iter());
    let mut copy = Copy::start(tree, targets, common, stopped, events, show)?;
    let ran = copy
        .run(&options, args.min_receivers as usize, args.retries)
        .await;
    if let Err(error) = &ran {
        let text = error.to_string();
        let failed = mcp_control::Failed::new(mcp_control::Reason::Interrupted, None, &text);
        copy.give_up(&failed).await;
    }
    let code = finish(&copy, ran.is_err(), args.json);
    ran.map(|()| code)
}

/// Reports the result and returns the exit code.
fn finish(copy: &Copy, unstarted: bool, json: bool) -> u8 {
    let is_failed = |stage: &Stage| matches!(stage, Stage::Failed { .. });
    let failed: Vec<_> = copy
        .members
        .iter()
        .filter(|m| is_failed(&m.stage))
        .collect();
    let verified = copy
        .members
        .iter()
        .filter(|m| m.stage == Stage::Verified)
        .count();
    let (result, code) = match (failed.len(), verified) {
        _ if copy.interrupted => ("interrupted", cli::exit::INTERRUPTED),
        _ if unstarted => ("failed", cli::exit::FAILED),
        (0, _) => ("verified", cli::exit::OK),
        (_, 0) => ("all_failed", ALL_FAILED),
        _ => ("some_failed", cli::exit::UNCONFIRMED),
    };
    let seconds = copy.began.elapsed().as_secs_f64();
    let bytes = copy.tree.manifest.bytes();
    let goodput_bps = (copy.verified_bytes as f64 * 8.0 / seconds.max(1e-3)) as u64;
    copy.events.emit(&Event::End {
        result,
        exit_code: code,
        verified,
        failed: failed.iter().map(|m| m.target.text.as_str()).collect(),
        bytes,
        seconds,
        goodput_bps,
        limiting: copy.limited_by(),
        separate: copy.members.iter().filter_map(separate).collect(),
        relayed: copy.members.iter().filter(|m| m.relayed).count(),
        fed_bytes: copy.fed_bytes,
        bypassed: &copy.bypassed,
    });
    if !json {
        // Input for --hosts-file of the next run.
        for member in &failed {
            if let Stage::Failed { message, .. } = &member.stage {
                cli::print_result!("{}  # {message}", member.target);
            }
        }
    }
    let mut sent = match copy.arrived {
        0 => "nothing sent".to_owned(),
        sent => format!("{} sent", ByteSize(sent)),
    };
    if goodput_bps > 0 {
        sent += &format!(", {}", BitRate(goodput_bps));
    }
    if copy.arrived > 0 {
        let used = copy.members.iter().filter(|m| m.used_multicast).count();
        sent += match used {
            0 => ", no host used multicast".to_owned(),
            used => format!(", {} used multicast", hosts(used)),
        }
        .as_str();
        let relayed = copy.members.iter().filter(|m| m.relayed).count();
        if relayed > 0 {
            sent += &format!(", {} received it over links", hosts(relayed));
        }
    }
    copy.show.say(format_args!(
        "{verified} of {} verified: {} in {seconds:.1} s, {sent}",
        hosts(copy.members.len()),
        ByteSize(bytes),
    ));
    for host in copy.members.iter().filter_map(separate) {
        copy.show.say(format_args!(
            "{} was served separately: {}, the others {}",
            host.host,
            BitRate(host.rate_bps),
            BitRate(host.others_bps)
        ));
    }
    if let Some(host) = copy.limited_by() {
        let (words, option) = (host.words(), &host.option);
        copy.show
            .say(format_args!("{words} ({option} serves it separately)"));
    }
    code
}

/// Returns the rates of a host that was served separately, and of the others.
fn separate(member: &Member) -> Option<SeparateHost<'_>> {
    let (rate_bps, others_bps) = member.separate?.rates_bps();
    Some(SeparateHost {
        host: &member.target.text,
        rate_bps,
        others_bps,
    })
}

/// Returns a number of hosts in words.
fn hosts(count: usize) -> String {
    format!("{count} host{}", if count == 1 { "" } else { "s" })
}
