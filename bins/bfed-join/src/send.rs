//! Publishes a session.

use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroU64;
use std::time::Instant;

use bfed_client::{Cancel, Error, PublishOptions, Published, Publisher};
use cli::events::{Events, hex};
use cli::{exit, interrupt};

use crate::args::Send;
use crate::events::{End, Event};

fn options(args: &Send) -> Result<PublishOptions, String> {
    let common = &args.common;
    let mut options = PublishOptions::new(common.session.clone());
    options.flow = common.flow();
    options.server.clone_from(&args.server);
    options.interface.clone_from(&common.interface);
    options.ttl = args.ttl;
    options.rate = NonZeroU64::new(args.rate.0.max(1));
    options.token = common.token()?;
    Ok(options)
}

/// Runs `send`; returns the exit code.
pub(crate) fn run(args: &Send) -> Result<u8, String> {
    let events = Events::new(args.common.json, false);
    let shown = args.input.display();
    let input: Box<dyn Read> = match args.input.as_os_str() == "-" {
        true => Box::new(io::stdin()),
        false => {
            Box::new(File::open(&args.input).map_err(|error| format!("--input {shown}: {error}"))?)
        }
    };
    let cancel = Cancel::new().map_err(|error| error.to_string())?;
    let raise = cancel.clone();
    interrupt::on_raise(move || raise.cancel());
    let publisher = Publisher::open(&options(args)?, &cancel);
    let mut publisher = publisher.map_err(|error| error.to_string())?;
    let started = Instant::now();
    let pumped = pump(args, input, &mut publisher, &events);
    let sent = publisher.published();
    let done = pumped.and_then(|()| publisher.finish().map(drop));
    report(&events, done, &sent, started)
}

/// Reports the result; returns the exit code.
fn report(
    events: &Events,
    done: Result<(), Error>,
    sent: &Published,
    started: Instant,
) -> Result<u8, String> {
    let (result, code, message) = match done {
        _ if interrupt::raised() => ("interrupted", exit::INTERRUPTED, "interrupted".into()),
        Ok(()) => ("complete", exit::OK, String::new()),
        Err(error) => ("failed", exit::FAILED, error.to_string()),
    };
    events.emit(&Event::End(Box::new(End {
        result,
        exit_code: code,
        message: &message,
        seconds: started.elapsed().as_secs_f64(),
        bytes: sent.bytes,
        digest: hex(&sent.digest),
        frames: sent.frames,
        lost: 0,
        late: 0,
        skipped_bytes: 0,
        datagrams: sent.frames,
        requests: 0,
        damped: 0,
        moved: 0,
    })));
    if code == exit::FAILED {
        cli::print_message!("error: {message}");
    }
    Ok(code)
}

/// Fills the buffer, except at the end of the input; returns the number of bytes read.
fn fill(input: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match input.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// Publishes the input frame by frame until its end or an interrupt.
fn pump(
    args: &Send,
    mut input: Box<dyn Read>,
    publisher: &mut Publisher,
    events: &Events,
) -> Result<(), Error> {
    let (mut payload, started) = (vec![0; args.frame.into()], Instant::now());
    let mut progress = 1;
    while !interrupt::raised() {
        let len = fill(&mut *input, &mut payload)?;
        if len == 0 {
            break;
        }
        match publisher.send(&payload[..len]) {
            Err(Error::Cancelled) => break,
            sent => sent?,
        }
        let elapsed = started.elapsed();
        if elapsed.as_secs() >= progress {
            progress = elapsed.as_secs() + 1;
            let sent = publisher.published();
            events.emit(&Event::Progress {
                seconds: elapsed.as_secs_f64(),
                bytes: sent.bytes,
                frames: sent.frames,
                lost: 0,
            });
        }
    }
    Ok(())
}
