//! Answers besides data: a source's to single hosts, a replier's digests.

mod common;

use common::packets::{asked, point, report, request};
use common::{Sink, Source, content, files, host, receiver_config, seed, sender_config};
use ltp::store::HeapRing;
use ltp::wire::digests;
use ltp::wire::report::{ReportAck, Status};
use ltp::wire::request::Kind;
use ltp::{Destination, Duration, Error, Instant, Meta, Sender, SenderConfig, TurningPoint};

const SMALLEST: u16 = 300;

/// A receiver that has everything, in 20 blocks of small packets.
struct Replier {
    receiver: Sink,
    now: Instant,
}

impl Replier {
    fn new(targets: usize) -> Self {
        let bytes = content(20 * 1024, 1);
        let mut sender = sender_config(bytes.len());
        sender.block_exponent = 10;
        sender.max_packet_len = SMALLEST;
        let mut receiver = receiver_config();
        receiver.limits.targets = targets;
        let mut net = files(&bytes, 1, 1, sender, &receiver);
        net.run_until(Duration::from_secs(20), |net| net.all_complete());
        net.check_content(&bytes);
        Replier {
            receiver: net.take_receiver(0),
            now: net.now(),
        }
    }

    fn ask(&mut self, kind: Kind, range: (u32, u32), from: TurningPoint) -> Result<(), Error> {
        let session = self.receiver.session().expect("a session");
        let packet = request(session, kind, range, 0);
        self.receiver
            .handle_packet(self.now, &asked(Some(from)), &packet)
    }

    fn next_dmcast(&mut self) -> (TurningPoint, Vec<u8>) {
        let mut buffer = [0; 2048];
        let transmit = self.receiver.poll_transmit(self.now, &mut buffer);
        let transmit = transmit.expect("an answer");
        match transmit.destination {
            Destination::Dmcast(point) => (point, buffer[..transmit.len].to_vec()),
            other => panic!("{other:?}"),
        }
    }
}

/// A path that takes the source's packets takes these, too.
#[test]
fn digests_are_no_longer_than_the_sources_own_packets() {
    let mut replier = Replier::new(4);
    assert_eq!(replier.ask(Kind::Digests, (2, 17), point(1, 1)), Ok(()));
    let (_, packet) = replier.next_dmcast();
    assert!(packet.len() <= usize::from(SMALLEST), "{}", packet.len());
    let (repr, digests) = digests::Repr::parse(&packet).unwrap();
    assert_eq!((repr.first_block, digests.len()), (2, 7));
}

/// With room for one turning point, the one whose digests wait keeps it.
#[test]
fn digests_go_to_the_turning_point_of_the_request() {
    let mut replier = Replier::new(2);
    let (first, second) = (point(1, 1), point(2, 1));
    assert_eq!(replier.ask(Kind::Digests, (0, 3), first), Ok(()));
    let other = replier.ask(Kind::Data, (0, 3), second);
    assert_eq!(other, Err(Error::TargetsFull));
    let (to, packet) = replier.next_dmcast();
    assert_eq!((to, packet[0] & 0xf), (first, 4));
    assert_eq!(replier.ask(Kind::Data, (0, 3), second), Ok(()));
    let (to, packet) = replier.next_dmcast();
    assert_eq!((to, packet[0] & 0xf), (second, 2));
}

/// A sender that has sent everything, with the shortest buffer its driver may offer.
fn sent_all(config: SenderConfig, bytes: &[u8]) -> (Source, Instant) {
    let store = HeapRing::whole(bytes.to_vec());
    let mut sender = Sender::new(config, store, seed(3), Instant::ZERO).unwrap();
    let mut now = Instant::ZERO;
    let mut buffer = [0; 400];
    while sender.digest().is_none() {
        while sender.poll_transmit(now, &mut buffer).is_some() {}
        now = sender.poll_timeout().unwrap().max(now);
        sender.handle_timeout(now);
    }
    (sender, now)
}

/// What a sender says to single hosts within a second.
fn answers(sender: &mut Source, now: &mut Instant) -> Vec<Vec<u8>> {
    let mut buffer = [0; 400];
    let mut answers = Vec::new();
    for _ in 0..100 {
        while let Some(transmit) = sender.poll_transmit(*now, &mut buffer) {
            if let Destination::Unicast(_) = transmit.destination {
                answers.push(buffer[..transmit.len].to_vec());
            }
        }
        *now += Duration::from_millis(10);
        sender.handle_timeout(*now);
    }
    answers
}

/// What lies to the left of block 4095 are 12 values, more than a small packet takes: the answer
/// is that the source does not say, and the next answer follows.
#[test]
fn an_answer_longer_than_a_packet_does_not_hold_up_the_others() {
    let bytes = content(4096 * 1024, 3);
    let mut config = sender_config(bytes.len());
    config.block_exponent = 10;
    config.max_packet_len = 300;
    config.rate_bps = None;
    let (mut sender, mut now) = sent_all(config, &bytes);
    let session = sender.session();
    let meta = Meta::unicast(host(1));
    let left = request(session, Kind::Left, (4095, 4095), 0);
    let refused = sender.handle_packet(now, &meta, &left);
    assert_eq!(refused, Err(Error::RequestUnverified));
    let token = ReportAck::parse(&answers(&mut sender, &mut now)[0])
        .unwrap()
        .token;
    let left = request(session, Kind::Left, (4095, 4095), token);
    assert_eq!(sender.handle_packet(now, &meta, &left), Ok(()));
    let sync = request(session, Kind::Sync, (0, 0), 0);
    assert_eq!(sender.handle_packet(now, &meta, &sync), Ok(()));
    let answers = answers(&mut sender, &mut now);
    assert_eq!(answers.len(), 2);
    let (repr, values) = digests::Repr::parse(&answers[0]).unwrap();
    assert!(repr.left && values.is_empty());
    assert_eq!(answers[1][0] & 0xf, 3);
    assert_eq!(sender.stats().requests_unicast, 2);
}

#[test]
fn tokens_that_find_the_queue_full_are_counted() {
    let mut config = sender_config(1000);
    config.receivers = Some(1);
    let store = HeapRing::whole(vec![0; 1000]);
    let mut sender = Sender::new(config, store, seed(4), Instant::ZERO).unwrap();
    let report = report(sender.session(), 5, Status::Joined, 0, 0);
    let mut packet = [0; 40];
    report.emit(&mut packet);
    for number in 0..40 {
        let result = sender.handle_packet(Instant::ZERO, &Meta::unicast(host(number)), &packet);
        assert_eq!(result, Err(Error::ReportUnverified));
    }
    assert_eq!(sender.stats().answers_lost, 8);
    assert_eq!(sender.stats().drops.get(Error::ReportUnverified), 40);
}
