//! Receives a file into a folder: `receive_file 239.1.2.3:5000 /tmp lo`.

use std::path::Path;

use anyhow::Context as _;
use ltp_linux::{Cancel, Error, Group, ReceiveConfig, ReceiveEvent, Received, Receiver, Sink};

/// Receives one file into `folder`, under the sender's name, and shows how far it is.
pub(crate) fn receive_file(group: Group, folder: &Path, cancel: Cancel) -> Result<Received, Error> {
    let config = ReceiveConfig::new(group);
    let mut receiver = Receiver::open(&config, Sink::folder(folder), cancel, &mut |_| {})?;
    let received = receiver.run(&mut |event| match event {
        ReceiveEvent::Waiting { interface } => eprintln!("waiting for a sender on {interface}"),
        ReceiveEvent::Opened { source, name, .. } => eprintln!("{name} from {source}"),
        ReceiveEvent::Progress { bytes, .. } => eprintln!("{bytes} bytes"),
        _ => {}
    });
    receiver.close();
    received
}

#[allow(dead_code, reason = "a test includes this file")]
fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: receive_file GROUP:PORT FOLDER [INTERFACE]";
    let mut group = Group::new(args.next().context(usage)?.parse()?);
    let folder = args.next().context(usage)?;
    group.interface = args.next();
    println!(
        "{:?}",
        receive_file(group, folder.as_ref(), Cancel::new()?)?
    );
    Ok(())
}
