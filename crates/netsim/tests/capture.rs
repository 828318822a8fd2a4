//! Captures are read back by another library, and by tshark where it is installed.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use netsim::ip::Datagram;
use netsim::{Duration, Filter, Instant, Io, LinkConfig, Loss, Node, NodeId, Port, Sim};

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(buf)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Speaker {
    left: u8,
    next: Instant,
}
struct Ear;

fn datagram(number: u8) -> Vec<u8> {
    Datagram {
        source: "10.0.0.1:1000".parse().unwrap(),
        destination: "232.0.0.1:2000".parse().unwrap(),
        ttl: 8,
        options: &[],
        payload: &[number; 20],
    }
    .emit()
}

impl Node for Speaker {
    fn handle_packet(&mut self, _now: Instant, _port: Port, _packet: &[u8], _io: &mut Io<'_>) {}
    fn handle_timeout(&mut self, _now: Instant, io: &mut Io<'_>) {
        io.send(Port(0), &datagram(self.left));
        self.left -= 1;
        self.next += Duration::from_micros(100_001);
    }
    fn poll_timeout(&self) -> Option<Instant> {
        (self.left > 0).then_some(self.next)
    }
}

impl Node for Ear {
    fn handle_packet(&mut self, _now: Instant, _port: Port, _packet: &[u8], _io: &mut Io<'_>) {}
}

fn captured(filter: fn(NodeId) -> Filter) -> (Vec<u8>, u64) {
    let mut sim: Sim = Sim::new([3; 32]);
    let speaker = sim.add_node(Box::new(Speaker {
        left: 30,
        next: Instant::from_millis(1500),
    }));
    let ear = sim.add_node(Box::new(Ear));
    let config = LinkConfig::new()
        .delay(Duration::from_millis(7))
        .loss(Loss::Bernoulli(0.2));
    let link = sim.add_link(speaker, ear, config);
    let file = Shared::default();
    sim.capture(filter(ear), file.clone()).unwrap();
    sim.run_to_rest();
    sim.finish_captures().unwrap();
    let bytes = file.0.lock().unwrap().clone();
    (bytes, sim.link_stats(link)[0].delivered)
}

#[test]
fn packets_and_times_come_back_from_the_file() {
    let (file, _) = captured(|_| Filter::Sent);
    let mut reader = pcap_file::pcap::PcapReader::new(&file[..]).unwrap();
    assert_eq!(reader.header().datalink, pcap_file::DataLink::RAW);
    let mut time = std::time::Duration::from_millis(1500);
    let mut number = 30;
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap();
        assert_eq!(packet.timestamp, time);
        assert_eq!(*packet.data, datagram(number)[..]);
        time += std::time::Duration::from_micros(100_001);
        number -= 1;
    }
    assert_eq!(number, 0);
}

#[test]
fn a_nodes_capture_has_what_arrived_there() {
    let (file, delivered) = captured(Filter::Node);
    let mut reader = pcap_file::pcap::PcapReader::new(&file[..]).unwrap();
    let mut packets = 0;
    while let Some(packet) = reader.next_packet() {
        assert!(packet.unwrap().timestamp.as_micros() >= 1_507_000);
        packets += 1;
    }
    assert_eq!(packets, delivered);
    assert!(packets < 30, "some were lost");
}

#[test]
fn tshark_reads_it_too() {
    let (file, _) = captured(|_| Filter::Sent);
    let tshark = Command::new("tshark")
        .args([
            "-r",
            "-",
            "-T",
            "fields",
            "-e",
            "frame.time_relative",
            "-e",
            "ip.src",
            "-e",
            "udp.length",
        ])
        .args([
            "-o",
            "ip.check_checksum:TRUE",
            "-Y",
            "udp && ip.checksum.status == 1",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut tshark) = tshark else {
        eprintln!("tshark is not installed: nothing to compare with");
        return;
    };
    tshark.stdin.take().unwrap().write_all(&file).unwrap();
    let output = String::from_utf8(tshark.wait_with_output().unwrap().stdout).unwrap();
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines.len(), 30, "{output}");
    assert_eq!(lines[1], "0.100001000\t10.0.0.1\t28");
}

#[test]
fn a_full_disk_is_reported_at_the_end() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
            self.0 = self
                .0
                .checked_sub(buf.len())
                .ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(buf.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut sim: Sim = Sim::new([3; 32]);
    let speaker = sim.add_node(Box::new(Speaker {
        left: 30,
        next: Instant::ZERO,
    }));
    let ear = sim.add_node(Box::new(Ear));
    sim.add_link(speaker, ear, LinkConfig::new());
    assert!(sim.capture(Filter::Sent, Full(10)).is_err());
    sim.capture(Filter::Sent, Full(500)).unwrap();
    sim.run_to_rest();
    let error = sim.finish_captures().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}
