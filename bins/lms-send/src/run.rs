//! From arguments to a transfer, and from its end to an exit code.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use anyhow::{Context, bail};
use cli::transfer::cancel_on_interrupt;
use ltp_linux::{
    Error, InterfaceError, Rate, SendConfig, SendOutcome, Sender, Source, Unconfirmed,
};

use crate::args::Args;
use crate::outcome::Outcome;
use crate::receivers::{Disposition, plural};
use crate::reporter::Reporter;

/// Receivers that the message of an incomplete transfer names.
const MAX_NAMED: usize = 16;

pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let mut reporter = Reporter::new(args)?;
    let outcome = match open(args, &mut reporter) {
        Ok(mut sender) => {
            let ended = sender.run(&mut |event| reporter.handle_event(event));
            let outcome = outcome(&sender, ended);
            sender.close();
            reporter.end(&outcome, Some(&sender));
            outcome
        }
        Err(error) => {
            let outcome = failed(error);
            reporter.end(&outcome, None);
            outcome
        }
    };
    Ok(outcome.code())
}

fn open(args: &Args, reporter: &mut Reporter) -> anyhow::Result<Sender> {
    let cancel = cancel_on_interrupt()?;
    let config = config(args)?;
    let source = source(args)?;
    let mut observer = |event| reporter.handle_event(event);
    Ok(Sender::open(&config, source, cancel, &mut observer)?)
}

fn config(args: &Args) -> anyhow::Result<SendConfig> {
    let group = args
        .transfer
        .group(args.source)
        .map_err(anyhow::Error::msg)?;
    let recovery = args.transfer.recovery();
    let mut config = SendConfig::new(group);
    config.recovery = recovery.map_err(anyhow::Error::msg)?;
    config.rate = match args.rate {
        Some(cli::units::Rate::Limit(rate)) => Rate::Fixed(rate.0),
        Some(cli::units::Rate::Unlimited) => Rate::Unlimited,
        None => Rate::default(),
    };
    config.min_rate_bps = args.min_rate.map(|rate| rate.0);
    config.parity = args.parity.0;
    config.receivers = args.receivers;
    config.connect_timeout = args.connect_timeout;
    config.linger = args.linger;
    config.timeout = args.timeout;
    config.name = args.name.clone();
    config.digest_first = !args.no_digest;
    config.mtu = args.mtu;
    config.segmentation = !args.no_gso;
    config.buffer_bytes = args.buffer.0;
    Ok(config)
}

fn source(args: &Args) -> anyhow::Result<Source> {
    if args.is_stream() {
        let fd = io::stdin().as_fd().try_clone_to_owned();
        return Ok(Source::stream(fd.context("standard input")?));
    }
    let shown = args.file.display();
    let file = File::open(&args.file).with_context(|| format!("cannot open {shown}"))?;
    let metadata = file
        .metadata()
        .with_context(|| format!("cannot read {shown}"))?;
    if metadata.is_dir() {
        bail!("{shown} is a folder: send it with `tar c {shown} | lms-send ... -`");
    }
    if metadata.is_file() {
        let length = metadata.len();
        return Ok(Source::open_file(file, args.file.clone(), length));
    }
    let name = args.file.file_name().unwrap_or_default();
    Ok(Source::stream(file).named(name.to_string_lossy()))
}

/// Turns an error into a result whose message names options of the command line.
fn failed(error: anyhow::Error) -> Outcome {
    let message = match error.downcast_ref() {
        Some(Error::Canceled) => return Outcome::Interrupted,
        Some(Error::Interface(InterfaceError::NoRoute(_))) => format!("{error} with --interface"),
        Some(Error::NameTooLong) => format!("{error} with --name"),
        Some(Error::PacketTooBig(source)) => format!("lower --mtu: {source}"),
        _ => format!("{error:#}"),
    };
    Outcome::Failed(message)
}

fn outcome(sender: &Sender, ended: Result<SendOutcome, Error>) -> Outcome {
    match ended {
        Ok(SendOutcome::Complete) => Outcome::Complete,
        Ok(_) => Outcome::Sent,
        Err(Error::Unconfirmed(why)) => Outcome::Unconfirmed(unconfirmed(sender, why)),
        Err(error) => failed(error.into()),
    }
}

fn unconfirmed(sender: &Sender, why: Unconfirmed) -> String {
    match why {
        Unconfirmed::Unheard => "sent, but no receiver below the relay acknowledged anything: is lms-recv \
                                 running, with the same --group, this host as --source, and a relay of \
                                 the same tree?"
            .to_owned(),
        Unconfirmed::Stalled => format!("sent{}", stalled_names(sender)),
        Unconfirmed::Receivers {
            expected,
            joined,
            confirmed,
        } => lacking_names(sender, expected, joined, confirmed),
        _ => "sent, but a receiver below the relay did not advance and lacks part of it".to_owned(),
    }
}

/// Says how many hosts did not confirm, and names the receivers that lack something.
fn lacking_names(sender: &Sender, expected: u32, joined: u32, confirmed: u32) -> String {
    let mut message = if confirmed < expected {
        let lacking = expected - confirmed;
        format!("{lacking} of {} did not confirm", plural(expected))
    } else {
        format!(
            "{} confirmed, but not every one that joined",
            plural(confirmed)
        )
    };
    if joined < expected {
        let never = expected - joined;
        message +=
            &format!("; {never} never joined: is lms-recv running there, of the same release?");
    }
    let all = Disposition::all(sender);
    if all.len() > joined as usize && confirmed < expected {
        message += "; receivers at one address count as one";
    }
    let lacking: Vec<&Disposition> = all.iter().filter(|one| one.is_lacking()).collect();
    for one in lacking.iter().take(MAX_NAMED) {
        let reason = one.reason.unwrap_or("did not confirm");
        message += &format!("; {} {reason}", one.address);
    }
    let more = lacking.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        message += &format!("; and {more} more");
    }
    message + &stalled_names(sender)
}

/// Returns the receivers that relays no longer wait for, for a message.
fn stalled_names(sender: &Sender) -> String {
    let name = |(address, relay)| {
        format!("; {address} did not advance (relay {relay} stopped waiting for it)")
    };
    sender.stalled().map(name).collect()
}
