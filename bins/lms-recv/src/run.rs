//! From arguments to a transfer, and from its end to an exit code.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use cli::assist::{Assist, Carriage};
use cli::units::ByteSize;
use ltp::Start;
use ltp_linux::{Cancel, Error, Group, InterfaceError, ReceiveConfig, Receiver, Recovery, Sink};

use crate::args::{self, Args};
use crate::events::Counters;
use crate::news::News;
use crate::outcome::Outcome;

pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let mut news = News::new(args);
    let mut receiver = match open(args, &mut news) {
        Ok(receiver) => receiver,
        Err(error) => {
            let outcome = failed(args, error);
            news.end(&outcome, Counters::default());
            return Ok(outcome.code());
        }
    };
    let outcome = match receiver.run(&mut |event| news.tell(event)) {
        Ok(_) => Outcome::Complete,
        Err(error) => failed(args, error.into()),
    };
    receiver.close();
    let kernel_drops = receiver.kernel_drops();
    if kernel_drops > 0 && !receiver.has_lms() {
        tracing::info!(kernel_drops, "packets came faster than they were taken");
    }
    let mut counters = Counters::new(receiver.stats(), kernel_drops);
    counters.dropped += receiver.relay_dropped();
    news.end(&outcome, counters);
    Ok(outcome.code())
}

fn open(args: &Args, news: &mut News) -> anyhow::Result<Receiver> {
    let cancel = Cancel::new()?;
    let raised = cancel.clone();
    cli::interrupt::on_raise(move || raised.cancel());
    if cli::interrupt::raised() {
        cancel.cancel();
    }
    let config = config(args)?;
    let sink = if args.is_stream() {
        // The descriptor itself: no line buffer in between.
        let out = io::stdout().as_fd().try_clone_to_owned();
        Sink::stream(File::from(out.map_err(Error::Write)?))
    } else {
        let folder = Sink::folder(&args.output).fsync(args.sync);
        match &args.name {
            Some(name) => folder.named(name),
            None => folder,
        }
    };
    let receiver = Receiver::open(&config, sink, cancel, &mut |event| news.tell(event))?;
    Ok(receiver)
}

fn config(args: &Args) -> anyhow::Result<ReceiveConfig> {
    let mut group = Group::new(args.group.group);
    group.interface = args.group.interface.clone();
    group.local_address = args.address;
    group.ttl = args.group.ttl;
    group.key = args.group.key().map_err(anyhow::Error::msg)?;
    let mut config = ReceiveConfig::new(group);
    config.source = args.source;
    config.recovery = recovery(&args.assist().map_err(anyhow::Error::msg)?)?;
    config.replier.enabled = !args.no_replier;
    config.replier.cost = args.replier_cost;
    config.replier.repair_unelected = args.answer_unelected;
    config.start = match args.start {
        args::Start::Beginning => Start::Beginning,
        args::Start::Now => Start::Now,
    };
    config.timeout = args.timeout;
    config.wait = args.wait;
    config.linger = args.linger;
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

/// A failure, in the words of the command line.
fn failed(args: &Args, error: anyhow::Error) -> Outcome {
    let message = match error.downcast_ref() {
        Some(Error::Canceled) => return Outcome::Interrupted,
        Some(Error::Write(source)) => {
            let closed = source.kind() == io::ErrorKind::BrokenPipe;
            let message = format!("cannot write to standard output: {source}");
            return Outcome::Unwritten((!closed).then_some(message));
        }
        Some(Error::Incomplete(incomplete)) => {
            return Outcome::Failed(incomplete.to_string(), incomplete.missing.clone());
        }
        Some(Error::Output {
            wanted: Some(length),
            ..
        }) => {
            let message = format!("{error} ({} wanted)", ByteSize(*length));
            return Outcome::Failed(message, vec![(0, *length)]);
        }
        Some(Error::Output { .. }) => error.to_string(),
        Some(Error::Interface(InterfaceError::NoRoute(_))) => format!("{error} with --interface"),
        Some(Error::Lms(source)) => format!("--assist lms: {source}"),
        Some(Error::IsFolder(path)) => format!(
            "{} is a folder: give the file another --name",
            path.display()
        ),
        Some(Error::NoSender { waited, .. }) => format!(
            "no sender was heard on {} for {:.1} s: is it running, is the interface the right one, \
             is the --ttl of the sender large enough, is the key the same?",
            args.group.group,
            waited.as_secs_f64()
        ),
        _ => format!("{error:#}"),
    };
    Outcome::Failed(message, Vec::new())
}
