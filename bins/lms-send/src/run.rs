//! From arguments to a transfer, and from its end to an exit code.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use anyhow::{Context, bail};
use cli::assist::{Assist, Carriage};
use cli::units::ByteSize;
use ltp::SenderStats;
use ltp_linux::{
    Cancel, Error, Group, InterfaceError, Recovery, SendConfig, SendOutcome, Sender, Source,
    Unconfirmed,
};

use crate::args::Args;
use crate::events::Event;
use crate::news::News;
use crate::outcome::Outcome;
use crate::receivers::Fate;

/// Receivers that the message of an incomplete transfer names.
const MAX_NAMED: usize = 16;

pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let mut news = News::new(args);
    let outcome = match open(args, &mut news) {
        Ok(mut sender) => {
            let ended = sender.run(&mut |event| news.tell(event));
            let outcome = outcome(&sender, ended);
            return Ok(end(&mut sender, &mut news, &outcome));
        }
        Err(error) => failed(error),
    };
    let end = Event::end(&outcome, &SenderStats::default(), (0, 0), &[], 0.0);
    news.end(&outcome, &end, "", &[]);
    Ok(outcome.code())
}

fn open(args: &Args, news: &mut News) -> anyhow::Result<Sender> {
    let cancel = Cancel::new()?;
    let raised = cancel.clone();
    cli::interrupt::on_raise(move || raised.cancel());
    if cli::interrupt::raised() {
        cancel.cancel();
    }
    let config = config(args)?;
    let source = source(args)?;
    let sender = Sender::open(&config, source, cancel, &mut |event| news.tell(event))?;
    Ok(sender)
}

fn config(args: &Args) -> anyhow::Result<SendConfig> {
    let mut group = Group::new(args.group.group);
    group.interface = args.group.interface.clone();
    group.local_address = args.source;
    group.ttl = args.group.ttl;
    group.key = args.group.key().map_err(anyhow::Error::msg)?;
    let mut config = SendConfig::new(group);
    config.recovery = recovery(&args.assist().map_err(anyhow::Error::msg)?)?;
    config.rate_bps = args.rate.bits();
    config.receivers = args.receivers;
    config.start_wait = args.start_wait;
    config.linger = args.linger;
    config.timeout = args.timeout;
    config.name = args.name.clone();
    config.digest_first = !args.start_at_once;
    config.mtu = args.mtu;
    config.segmentation = !args.no_gso;
    config.buffer_bytes = args.buffer.0;
    Ok(config)
}

fn recovery(assist: &Assist) -> anyhow::Result<Recovery> {
    Ok(match assist {
        Assist::None => Recovery::Source,
        Assist::Lms => Recovery::Lms,
        Assist::Dyram(carriage, _) => Recovery::Dyram {
            relays: assist.relays().map_err(anyhow::Error::msg)?,
            carriage: match carriage {
                Carriage::Relays => ltp_linux::Carriage::Relays,
                Carriage::Multicast => ltp_linux::Carriage::Multicast,
            },
        },
    })
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

/// A failure, in the words of the command line.
fn failed(error: anyhow::Error) -> Outcome {
    let message = match error.downcast_ref() {
        Some(Error::Canceled) => return Outcome::Interrupted,
        Some(Error::Interface(InterfaceError::NoRoute(_))) => format!("{error} with --interface"),
        Some(Error::PacketTooBig(source)) => format!("lower --mtu: {source}"),
        _ => format!("{error:#}"),
    };
    Outcome::Failed(message)
}

fn outcome(sender: &Sender, ended: Result<SendOutcome, Error>) -> Outcome {
    let why = match ended {
        Ok(SendOutcome::Complete) => return Outcome::Complete,
        Ok(SendOutcome::Unconfirmed(why)) => why,
        Ok(_) => return Outcome::Sent,
        Err(error) => return failed(error.into()),
    };
    Outcome::Unconfirmed(match why {
        Unconfirmed::Unheard => "sent, but nobody below the relay acknowledged any of it: is lms-recv \
                                 running, with the same --group, this host as --source, and a relay of \
                                 the same tree?"
            .to_owned(),
        Unconfirmed::Stalled => format!("sent{}", stalled_names(sender)),
        Unconfirmed::Receivers { expected } => unconfirmed(sender, expected),
        _ => "sent, but something below the relay stood still and lacks part of it".to_owned(),
    })
}

fn unconfirmed(sender: &Sender, expected: u32) -> String {
    let (joined, complete) = sender.receivers();
    let mut message = if complete < expected {
        let lacking = expected - complete;
        format!("{lacking} of {expected} receivers did not confirm")
    } else {
        format!("{complete} receivers confirmed, but not every one that joined")
    };
    if joined < expected {
        message += &format!("; {} never joined", expected - joined);
    }
    let all = Fate::all(sender);
    if all.len() > joined as usize && complete < expected {
        message += "; receivers at one address count as one";
    }
    let lacking: Vec<&Fate> = all.iter().filter(|fate| fate.is_lacking()).collect();
    for fate in lacking.iter().take(MAX_NAMED) {
        let reason = fate.reason.unwrap_or("did not confirm");
        message += &format!("; {} {reason}", fate.address);
    }
    let more = lacking.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        message += &format!("; and {more} more");
    }
    message + &stalled_names(sender)
}

/// The receivers that relays no longer wait for, for a message.
fn stalled_names(sender: &Sender) -> String {
    let name = |(address, relay)| {
        format!("; {address} did not advance (relay {relay} stopped waiting for it)")
    };
    sender.stalled().map(name).collect()
}

fn end(sender: &mut Sender, news: &mut News, outcome: &Outcome) -> u8 {
    sender.close();
    let (_, complete) = sender.receivers();
    let seconds = sender.elapsed().as_secs_f64();
    let all = Fate::all(sender);
    let end = Event::end(outcome, sender.stats(), sender.receivers(), &all, seconds);
    let size = ByteSize(sender.progress().0);
    let plural = if complete == 1 { "" } else { "s" };
    let words = format!("{size} in {seconds:.1} s, {complete} receiver{plural} confirmed");
    news.end(outcome, &end, &words, &all);
    outcome.code()
}
