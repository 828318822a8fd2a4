//! Receives a session into a file: `receive SESSION MEDIATOR FILE`, for example
//! `receive 'bfed://1/239.1.2.3/5004/?framing=numbered' 239.255.98.102 film.ts`.
#![allow(missing_docs)]

use std::fs::File;
use std::io::{self, Write};
use std::time::Duration;

use bfed_client::{Cancel, Event, JoinOptions, Session, Sink, Status};

struct Output(File);

impl Sink for Output {
    fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn event(&mut self, event: Event) {
        eprintln!("{event:?}");
    }
}

pub(crate) fn run(arguments: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let [session, mediator, file] = arguments else {
        return Err("usage: receive SESSION MEDIATOR FILE".into());
    };
    let mut output = Output(File::create(file)?);
    let mut options = JoinOptions::new(session.parse()?);
    options.mediators = vec![mediator.parse()?];
    let mut session = Session::join(options, &Cancel::new()?, &mut output)?;
    while session.step(Duration::from_secs(1), &mut output)? == Status::Open {}
    let (stats, incomplete) = (session.stats(), session.incomplete());
    session.leave();
    eprintln!("{} bytes, {} frames missing", stats.bytes, stats.lost);
    incomplete.map_or(Ok(()), |incomplete| Err(incomplete.into()))
}

#[allow(dead_code, reason = "a test calls `run`")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    run(&std::env::args().skip(1).collect::<Vec<_>>())
}
