//! Exchanges between the two TCPs. Each succeeds, or fails with an error that names the
//! difference.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener};

use nix::sys::socket::{setsockopt, sockopt};

use super::segments::{Seen, Side, Trace};
use super::stage::{LIMIT, Pair, Role, Stage, patient};
use crate::prelude::*;

/// A story of one connection's end.
type Ending = fn(&Stage, Role) -> Result<()>;
/// A story without roles.
type Story = fn(&Stage) -> Result<()>;

/// How connections end.
pub(super) const ENDINGS: &[(&str, Ending)] = &[
    ("the engine closes first", |stage, role| {
        closes(stage, role, Side::Engine)
    }),
    ("the kernel closes first", |stage, role| {
        closes(stage, role, Side::Kernel)
    }),
    (
        "half-close: the engine asks and reads on",
        half_close_by_engine,
    ),
    (
        "half-close: the kernel asks and reads on",
        half_close_by_kernel,
    ),
    ("the engine resets", reset_by_engine),
    ("the kernel resets", reset_by_kernel),
];

/// Connections that are not.
pub(super) const REFUSALS: &[(&str, Story)] = &[
    ("the kernel refuses the engine", refused_by_kernel),
    ("the engine refuses the kernel", refused_by_engine),
];

/// Receivers that do not read for a while.
pub(super) const WINDOWS: &[(&str, Story)] = &[
    (
        "zero window of the kernel: the engine probes, and goes on",
        window_of_kernel,
    ),
    (
        "zero window of the engine: it answers the kernel's probes, and goes on",
        window_of_engine,
    ),
];

/// Bytes that neither side can guess from their place by a simple mistake.
fn content(salt: u64, len: usize) -> Vec<u8> {
    let mut state = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn same(what: &str, received: &[u8], sent: &[u8]) -> Result<()> {
    let (got, expected) = (received.len(), sent.len());
    ensure!(got == expected, "{what}: {got} of {expected} bytes");
    ensure!(received == sent, "{what}: bytes differ");
    Ok(())
}

/// Sends this many bytes each way at once, then closes both ends.
pub(super) fn exchange(stage: &Stage, role: Role, bytes: usize) -> Result<()> {
    let Pair {
        mut engine, kernel, ..
    } = stage.connect(role)?;
    let (from_engine, from_kernel) = (content(1, bytes), content(2, bytes));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| -> Result<Vec<u8>> {
            let mut received = Vec::with_capacity(bytes);
            (&kernel)
                .read_to_end(&mut received)
                .context("the kernel reads")?;
            Ok(received)
        });
        let writer = scope.spawn(|| -> Result<()> {
            (&kernel)
                .write_all(&from_kernel)
                .context("the kernel writes")?;
            Ok(kernel.shutdown(Shutdown::Write)?)
        });
        std::io::Write::write_all(&mut engine, &from_engine).context("the engine writes")?;
        engine.finish()?;
        let mut received = Vec::with_capacity(bytes);
        std::io::Read::read_to_end(&mut engine, &mut received).context("the engine reads")?;
        same("from the kernel", &received, &from_kernel)?;
        writer.join().ok().context("the writer")??;
        same(
            "from the engine",
            &reader.join().ok().context("the reader")??,
            &from_engine,
        )
    })
}

/// Exchanges a few bytes to prove the connection.
fn greet(pair: &mut Pair) -> Result<()> {
    std::io::Write::write_all(&mut pair.engine, b"hello")?;
    let mut bytes = [0; 5];
    pair.kernel.read_exact(&mut bytes)?;
    pair.kernel.write_all(&bytes)?;
    std::io::Read::read_exact(&mut pair.engine, &mut bytes)?;
    ensure!(&bytes == b"hello", "another greeting");
    Ok(())
}

/// Waits until both FINs, or a reset, have been seen.
fn settled() {
    std::thread::sleep(Duration::from_millis(50));
}

fn closes(stage: &Stage, role: Role, first: Side) -> Result<()> {
    let watch = stage.watch()?;
    let mut pair = stage.connect(role)?;
    greet(&mut pair)?;
    let mut rest = Vec::new();
    if first == Side::Engine {
        pair.engine.finish()?;
        ensure!(pair.kernel.read(&mut [0])? == 0, "the kernel reads no end");
        drop(pair.kernel);
        std::io::Read::read_to_end(&mut pair.engine, &mut rest)?;
    } else {
        pair.kernel.shutdown(Shutdown::Write)?;
        std::io::Read::read_to_end(&mut pair.engine, &mut rest)?;
        pair.engine.finish()?;
        ensure!(pair.kernel.read(&mut [0])? == 0, "the kernel reads no end");
        drop(pair.kernel);
    }
    ensure!(rest.is_empty(), "bytes after the end");
    drop(pair.engine);
    settled();
    let seen = watch.finish()?;
    ends_in_good_order(&seen, first)
}

/// A FIN of each side, the expected one first, each acknowledged; no reset.
fn ends_in_good_order(seen: &Trace, first: Side) -> Result<()> {
    let fins: Vec<_> = seen.all.iter().filter(|segment| segment.fin).collect();
    let order: Vec<Side> = fins.iter().map(|fin| fin.from).collect();
    ensure!(order.first() == Some(&first), "the other side closed first");
    ensure!(order.contains(&Side::Engine), "no FIN of the engine");
    ensure!(order.contains(&Side::Kernel), "no FIN of the kernel");
    for fin in fins {
        let end = fin.seq.plus(fin.len as u32 + 1);
        let acked = seen.count(|other| other.from != fin.from && other.ack == end);
        ensure!(acked > 0, "a FIN was not acknowledged");
    }
    ensure!(seen.count(|segment| segment.rst) == 0, "a reset");
    Ok(())
}

fn half_close_by_engine(stage: &Stage, role: Role) -> Result<()> {
    let mut pair = stage.connect(role)?;
    let answer = content(3, 1 << 20);
    std::io::Write::write_all(&mut pair.engine, b"all of it, please")?;
    pair.engine.finish()?;
    let mut asked = Vec::new();
    pair.kernel.read_to_end(&mut asked)?;
    ensure!(asked == b"all of it, please", "another question");
    let kernel = std::thread::scope(|scope| {
        let writer = scope.spawn(|| pair.kernel.write_all(&answer));
        let mut received = Vec::new();
        let mut part = vec![0; answer.len()];
        std::io::Read::read_exact(&mut pair.engine, &mut part).context("the answer")?;
        received.extend(part);
        writer.join().ok().context("the writer")??;
        same("the answer", &received, &answer)
    });
    kernel?;
    drop(pair.kernel);
    ensure!(
        std::io::Read::read(&mut pair.engine, &mut [0])? == 0,
        "the engine reads no end"
    );
    Ok(())
}

fn half_close_by_kernel(stage: &Stage, role: Role) -> Result<()> {
    let mut pair = stage.connect(role)?;
    let answer = content(4, 1 << 20);
    pair.kernel.write_all(b"all of it, please")?;
    pair.kernel.shutdown(Shutdown::Write)?;
    let mut asked = Vec::new();
    std::io::Read::read_to_end(&mut pair.engine, &mut asked)?;
    ensure!(asked == b"all of it, please", "another question");
    std::io::Write::write_all(&mut pair.engine, &answer)?;
    pair.engine.finish()?;
    let mut received = Vec::new();
    pair.kernel.read_to_end(&mut received)?;
    same("the answer", &received, &answer)
}

fn reset_by_engine(stage: &Stage, role: Role) -> Result<()> {
    let watch = stage.watch()?;
    let mut pair = stage.connect(role)?;
    greet(&mut pair)?;
    pair.engine.abort();
    match pair.kernel.read(&mut [0]) {
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => bail!("the kernel reads {other:?}"),
    }
    let seen = watch.finish()?;
    one_reset_of_engine(&seen)
}

/// One reset of the engine, and one more for each segment of the kernel that crossed it: a host answers segments of
/// a connection that it no longer has with a reset (RFC 9293 §3.10.7.1).
fn one_reset_of_engine(seen: &Trace) -> Result<()> {
    let is_reset = |segment: &Seen| segment.rst && segment.from == Side::Engine;
    let first = seen.all.iter().position(is_reset);
    let after = &seen.all[first.context("no reset")? + 1..];
    let more = after.iter().filter(|segment| is_reset(segment)).count();
    let crossed = after.iter().filter(|segment| segment.from == Side::Kernel);
    let crossed = crossed.count();
    ensure!(
        more <= crossed,
        "{} resets, {crossed} segments crossed the first",
        more + 1
    );
    Ok(())
}

fn reset_by_kernel(stage: &Stage, role: Role) -> Result<()> {
    let mut pair = stage.connect(role)?;
    greet(&mut pair)?;
    let linger = nix::libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(&pair.kernel, sockopt::Linger, &linger)?;
    drop(pair.kernel);
    match std::io::Read::read(&mut pair.engine, &mut [0]) {
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(()),
        other => bail!("the engine reads {other:?}"),
    }
}

fn refused_by_kernel(stage: &Stage) -> Result<()> {
    let endpoint = stage.endpoint(0, |_| {})?;
    let mut stream = endpoint.connect(stage.kernel_address())?;
    match std::io::Read::read(&mut stream, &mut [0]) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
        other => bail!("the engine reads {other:?}"),
    }
}

fn refused_by_engine(stage: &Stage) -> Result<()> {
    // It holds the port and does not listen.
    let endpoint = stage.endpoint(0, |_| {})?;
    let connected = stage.kernel_connects(&endpoint);
    let refused = connected.as_ref().err().and_then(|error| {
        let error = error.downcast_ref::<std::io::Error>()?;
        Some(error.kind() == ErrorKind::ConnectionRefused)
    });
    ensure!(refused == Some(true), "the kernel is told {connected:?}");
    Ok(())
}

/// How long nothing is read: time for the window to close and for a few probes, on a busy machine too.
const CLOSED: Duration = Duration::from_secs(4);

/// Probes that a side sent while the other's window was closed: they repeat the octet before the
/// window, or send one behind it (RFC 9293 §3.8.6.1).
fn probes(seen: &Trace, prober: Side) -> usize {
    let mut closed = None;
    let mut probes = 0;
    for segment in &seen.all {
        if segment.from != prober {
            closed = (segment.window == 0 && !segment.rst).then_some(segment.ack);
        } else if let Some(edge) = closed {
            let before = segment.len == 0 && segment.seq == edge.minus(1);
            let behind = segment.len == 1 && segment.seq == edge;
            probes += usize::from(before || behind);
        }
    }
    probes
}

fn answers(seen: &Trace, side: Side) -> usize {
    seen.count(|segment| segment.from == side && segment.window == 0 && !segment.syn)
}

fn window_of_kernel(stage: &Stage) -> Result<()> {
    let watch = stage.watch()?;
    let small = |listener: &TcpListener| Ok(setsockopt(listener, sockopt::RcvBuf, &16_384)?);
    let mut pair = stage.connect_with(Role::Client, |_| {}, small)?;
    let sent = content(5, 1 << 20);
    std::io::Write::write_all(&mut pair.engine, &sent)?;
    pair.engine.finish()?;
    std::thread::sleep(CLOSED);
    let mut received = Vec::new();
    pair.kernel.read_to_end(&mut received)?;
    same("after the window opened", &received, &sent)?;
    let seen = watch.finish()?;
    ensure!(answers(&seen, Side::Kernel) > 0, "the window never closed");
    let probes = probes(&seen, Side::Engine);
    ensure!((2..40).contains(&probes), "{probes} probes of the engine");
    Ok(())
}

fn window_of_engine(stage: &Stage) -> Result<()> {
    let watch = stage.watch()?;
    let (endpoint, listener) =
        stage.engine_listens(|config| config.machine.receive_buffer = 65_536)?;
    let kernel = patient(stage.kernel_connects(&endpoint)?)?;
    let mut engine = listener.wait(Some(LIMIT))?;
    let sent = content(6, 4 << 20);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| -> Result<()> {
            (&kernel).write_all(&sent)?;
            Ok(kernel.shutdown(Shutdown::Write)?)
        });
        std::thread::sleep(CLOSED);
        let mut received = Vec::new();
        std::io::Read::read_to_end(&mut engine, &mut received)?;
        writer.join().ok().context("the writer")??;
        same("after the window opened", &received, &sent)
    })?;
    let seen = watch.finish()?;
    let probes = probes(&seen, Side::Kernel);
    ensure!(probes >= 2, "{probes} probes of the kernel");
    let answers = answers(&seen, Side::Engine);
    ensure!(answers >= probes, "{answers} answers to {probes} probes");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tcpxm::Seq;

    use super::*;

    fn segment(from: Side, rst: bool) -> Seen {
        Seen {
            from,
            source: Ipv4Addr::UNSPECIFIED,
            to: Ipv4Addr::UNSPECIFIED,
            seq: Seq(0),
            ack: Seq(0),
            window: 0,
            len: 0,
            syn: false,
            fin: false,
            rst,
            timestamps: false,
            scale: None,
            may_sack: false,
            sacks: 0,
            mss: None,
            group: false,
        }
    }

    #[test]
    fn a_second_reset_answers_a_segment_that_crossed_the_first() {
        let (reset, other) = (segment(Side::Engine, true), segment(Side::Kernel, false));
        let judge = |all: &[Seen]| one_reset_of_engine(&Trace { all: all.to_vec() }).is_ok();
        assert!(judge(&[other, reset]));
        assert!(judge(&[reset, other, reset]));
        assert!(!judge(&[other, reset, reset]));
        assert!(!judge(&[other, other]));
    }
}
