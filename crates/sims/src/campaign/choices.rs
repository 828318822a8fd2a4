//! Options of an LTP session, drawn at random: the same for LTP alone, with LMS, through DyRAM.

use ltp::digest::{Digest, Hashing};
use ltp::store::HeapRing;
use ltp::{Parity, Receiver, ReceiverConfig, ReceiverEvent, Sender, SenderConfig};
use netsim::{Duration, Instant, Rng};

use super::outcome::End;
use super::profile::NetworkProfile;
use crate::simulated::GROUP;

/// A peer that is silent for this long is given up. Outages that end are shorter.
const SILENCE: Duration = Duration::from_secs(60);

/// One session of LTP.
#[derive(Clone)]
pub(super) struct Choices {
    pub(super) content: std::rc::Rc<[u8]>,
    pub(super) sender: SenderConfig,
    pub(super) receiver: ReceiverConfig,
    /// The content arrives gradually, and the source's ring holds this many bytes of it.
    pub(super) stream: Option<usize>,
}

impl Choices {
    pub(super) fn draw(profile: &NetworkProfile) -> Self {
        let rng = &mut profile.choices();
        let content: std::rc::Rc<[u8]> = profile.content(length(rng)).into();
        let receivers = profile.tree().receivers().count() as u32;
        let mut sender = SenderConfig::new(GROUP.into());
        let mut receiver = ReceiverConfig::new(GROUP.into());
        sender.block_exponent = rng.between(10, 14) as u8;
        sender.max_packet_len = rng.between(300, 1300) as u16;
        sender.first_sequence = 0u32.wrapping_sub(rng.below(40) as u32);
        let most = profile.rate_bps().map_or(1e8, |rate| rate as f64 * 1.1);
        sender.rate_bps = Some((most * (0.1 + 0.9 * rng.unit())) as u64);
        sender.receiver_timeout = SILENCE;
        sender.linger = SILENCE;
        receiver.source_timeout = SILENCE;
        receiver.gap_delay = Duration::from_micros(rng.below(5_000));
        receiver.limits.window_blocks = 1 << rng.between(1, 8);
        receiver.limits.requests = rng.between(1, 64) as usize;
        if rng.chance(0.3) {
            sender.key = Some([7; 32]);
            receiver.key = sender.key;
        }
        let stream = (profile.is_calm() && rng.chance(0.3))
            .then(|| (rng.between(2, 30) as usize) << sender.block_exponent);
        if stream.is_some() || rng.chance(0.5) {
            sender.receivers = Some(receivers);
            sender.connect_timeout = Duration::from_secs(if stream.is_some() { 120 } else { 5 });
            sender.window_blocks = rng.chance(0.5).then(|| rng.between(2, 20) as u32);
        }
        match stream {
            Some(_) => {}
            None => {
                sender.length = Some(content.len() as u64);
                // By this the receivers of a restarted source know its content again.
                if !profile.is_calm() || rng.chance(0.5) {
                    sender.digest = Some(digest(&content, sender.key));
                }
            }
        }
        if rng.chance(0.3) {
            sender.congestion = true;
            sender.rate_bps = rng.chance(0.5).then_some(most as u64);
        }
        if rng.chance(0.4) {
            let parities = [Parity::OnRequest, Parity::Percent(20), Parity::Auto];
            sender.parity = Some(parities[rng.below(3) as usize]);
            receiver.limits.parity = [0, 4, 512][rng.below(3) as usize];
        }
        Self {
            content,
            sender,
            receiver,
            stream,
        }
    }

    /// A description for replaying a seed.
    pub(super) fn describe(&self) -> String {
        let (sender, receiver) = (&self.sender, &self.receiver);
        format!(
            "{} bytes, blocks of 2^{}, packets of {}, {:?} bit/s{}, parity {:?} (receivers hold {}), receivers known: {:?}, window {:?}, stream: {:?}, key: {}, blocks and asks of receivers: {}, {}",
            self.content.len(),
            sender.block_exponent,
            sender.max_packet_len,
            sender.rate_bps,
            if sender.congestion {
                " at most, TFMCC"
            } else {
                ""
            },
            sender.parity,
            receiver.limits.parity,
            sender.receivers,
            sender.window_blocks,
            self.stream,
            sender.key.is_some(),
            receiver.limits.window_blocks,
            receiver.limits.requests
        )
    }

    /// The source's machine.
    pub(super) fn sender(&self, seed: [u8; 32], now: Instant) -> Sender<'static, HeapRing> {
        let store = match self.stream {
            Some(capacity) => HeapRing::new(capacity),
            None => HeapRing::whole(&self.content[..]),
        };
        Sender::new(self.sender.clone(), store, seed, now).expect("the choices are sound")
    }

    /// A receiver's machine.
    pub(super) fn receiver(
        &self,
        config: ReceiverConfig,
        seed: [u8; 32],
        now: Instant,
    ) -> Receiver<'static, HeapRing> {
        let block = 1 << self.sender.block_exponent;
        let capacity = self.content.len().next_multiple_of(block).max(2 * block);
        Receiver::new(config, HeapRing::new(capacity), seed, now)
    }

    /// The result of this receiver, whose final event is `last`.
    pub(super) fn end(
        &self,
        receiver: &Receiver<'static, HeapRing>,
        last: Option<&ReceiverEvent>,
    ) -> End {
        match last {
            Some(ReceiverEvent::Complete { .. }) => {
                let bytes = receiver.store().as_bytes().get(..self.content.len());
                if bytes == Some(&self.content[..]) {
                    End::Whole
                } else {
                    End::Wrong
                }
            }
            Some(ReceiverEvent::Failed { failure, .. }) => End::Named(failure.to_string()),
            _ => End::Open,
        }
    }
}

/// Some are empty, most small.
fn length(rng: &mut Rng) -> usize {
    match rng.below(20) {
        0 => 0,
        1 => 1 + rng.below(2000) as usize,
        _ => rng.below(150_000) as usize,
    }
}

fn digest(content: &[u8], key: Option<[u8; 32]>) -> Digest {
    Hashing::new(key).whole(content)
}

/// The final event of a receiver.
#[derive(Default)]
pub(super) struct FinalEvent(Option<ReceiverEvent>);

impl FinalEvent {
    pub(super) fn handle_event(&mut self, event: &ReceiverEvent) {
        if matches!(
            event,
            ReceiverEvent::Complete { .. } | ReceiverEvent::Failed { .. }
        ) {
            self.0 = Some(event.clone());
        }
    }

    pub(super) fn get(&self) -> Option<&ReceiverEvent> {
        self.0.as_ref()
    }
}
