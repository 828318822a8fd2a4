//! From arguments to a transfer, and from its end to an exit code.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use cli::transfer::cancel_on_interrupt;
use cli::units::ByteSize;
use ltp_linux::{Error, InterfaceError, ReceiveConfig, Receiver, Sink, Start};

use crate::args::{self, Args};
use crate::outcome::Outcome;
use crate::reporter::Reporter;

pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let mut reporter = Reporter::new(args)?;
    let outcome = match open(args, &mut reporter) {
        Ok(mut receiver) => {
            let outcome = match receiver.run(&mut |event| reporter.handle_event(event)) {
                Ok(_) => Outcome::Complete,
                Err(error) => failed(args, error.into()),
            };
            receiver.close();
            reporter.end(&outcome, Some(&receiver));
            outcome
        }
        Err(error) => {
            let outcome = failed(args, error);
            reporter.end(&outcome, None);
            outcome
        }
    };
    Ok(outcome.code())
}

fn open(args: &Args, reporter: &mut Reporter) -> anyhow::Result<Receiver> {
    let cancel = cancel_on_interrupt()?;
    let config = config(args)?;
    let sink = if args.is_stream() {
        // The descriptor itself: no line buffer in between.
        let out = io::stdout().as_fd().try_clone_to_owned();
        Sink::stream(File::from(out.map_err(Error::Write)?))
    } else {
        let folder = Sink::folder(&args.output).fsync(args.fsync);
        match &args.name {
            Some(name) => folder.named(name),
            None => folder,
        }
    };
    let mut observer = |event| reporter.handle_event(event);
    Ok(Receiver::open(&config, sink, cancel, &mut observer)?)
}

fn config(args: &Args) -> anyhow::Result<ReceiveConfig> {
    let group = args
        .transfer
        .group(args.address)
        .map_err(anyhow::Error::msg)?;
    let recovery = args.transfer.recovery();
    let mut config = ReceiveConfig::new(group);
    config.source = args.source;
    config.recovery = recovery.map_err(anyhow::Error::msg)?;
    config.replier.enabled = !args.no_replier;
    config.replier.cost = args.replier_cost;
    config.replier.repair_unelected = args.repair_unelected;
    config.start = match args.start {
        args::Start::Beginning => Start::Beginning,
        args::Start::Now => Start::Now,
    };
    config.timeout = args.timeout;
    config.connect_timeout = args.connect_timeout;
    config.linger = args.linger;
    config.buffer_bytes = args.buffer.0;
    Ok(config)
}

/// Turns an error into a result whose message names options of the command line.
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
        Some(Error::NoSender {
            waited,
            other_version: None,
            ..
        }) => format!(
            "no sender was heard on {} for {:.1} s: is it running, is the interface the right one, \
             is the --ttl of the sender large enough, is the key the same?",
            args.transfer.group,
            waited.as_secs_f64()
        ),
        _ => format!("{error:#}"),
    };
    Outcome::Failed(message, Vec::new())
}
