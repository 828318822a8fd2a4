//! Many pairs of hosts, each with its own link, so that runs of a minute can run in parallel.

use super::traces::{self, Trace};
use crate::prelude::*;
use serde::Deserialize;

const PORT: u16 = 5_000;
/// One kbit of the thesis.
pub(super) const KBIT: u64 = 1_024;
/// A layer of the thesis, bits a second.
pub(super) const LAYER_BPS: u64 = 128 * KBIT;
/// Layers of the thesis.
pub(super) const LAYERS: usize = 8;
/// What waits at the slow link: about twenty packets, as is usual for routers. The thesis does not state it.
const QUEUE: usize = 32 << 10;
/// The hosts of the thesis were on one local network.
const DELAY: Duration = Duration::from_millis(1);
/// Loss in the tests of the thesis, percent.
const LOSS: u8 = 5;
/// One way to a base station of LTE, as is usual; the measurements do not state it.
const MOBILE_DELAY: Duration = Duration::from_millis(25);
/// Least that waits at a mobile link, bytes: two frames. Otherwise a second at its rate, since mobile links have long
/// queues; frames that wait keep their times when the rate changes, so a longer queue would outlast the change.
const MOBILE_QUEUE: u64 = 2 * 1_514;

/// A link: of the thesis's tests (§5.1), or of a mobile network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    /// 0: no limit. Of a mobile link, what it has in the first second.
    pub(super) kbit: u64,
    /// Percent of the frames of data.
    loss: u8,
    /// Its rate changes in time.
    trace: Option<&'static Trace>,
}

impl Limit {
    const FREE: Limit = Limit {
        kbit: 0,
        loss: 0,
        trace: None,
    };
    pub(super) const ALL: [Limit; 4] = [
        Limit::FREE,
        Limit::lossy(1_024, LOSS),
        Limit::lossy(512, LOSS),
        Limit::lossy(256, LOSS),
    ];
    pub(super) const LIMITED: [Limit; 3] = [
        Limit::lossy(1_024, LOSS),
        Limit::lossy(512, LOSS),
        Limit::lossy(256, LOSS),
    ];
    /// Half of the stream's rate at three rates of loss, and two mobile links.
    pub(super) const TODAY: [Limit; 5] = [
        Limit::lossy(512, 0),
        Limit::lossy(512, 1),
        Limit::lossy(512, 5),
        Limit::mobile(&traces::ATT_LTE),
        Limit::mobile(&traces::VERIZON_EVDO),
    ];

    pub(super) const fn lossy(kbit: u64, loss: u8) -> Limit {
        Limit {
            kbit,
            loss,
            trace: None,
        }
    }

    const fn mobile(trace: &'static Trace) -> Limit {
        Limit {
            kbit: 1,
            loss: 0,
            trace: Some(trace),
        }
    }

    /// Returns whether the rate is fixed.
    pub(super) fn is_fixed(self) -> bool {
        self.trace.is_none()
    }

    pub(super) fn name(self) -> String {
        match (self.trace, self.kbit) {
            (Some(trace), _) => trace.name.to_owned(),
            (None, 0) => "no limit, no loss".to_owned(),
            (None, kbit) => format!("{kbit} kbit/s, {} % loss", self.loss),
        }
    }

    /// A mobile link in a second of a run.
    fn mobile_shape(trace: &Trace, second: u64) -> Shape {
        let rate_bps = trace.rate_bps(second);
        Shape {
            delay: MOBILE_DELAY,
            rate_bps,
            queue_bytes: (rate_bps / 8).max(MOBILE_QUEUE) as usize,
            inbound_only: true,
            ..Shape::default()
        }
    }

    /// The link; data is lost, acknowledgements are not.
    pub(super) fn shape(self) -> Shape {
        if let Some(trace) = self.trace {
            return Limit::mobile_shape(trace, 0);
        }
        if self.kbit == 0 {
            return Shape::default().delayed(DELAY);
        }
        Shape {
            delay: DELAY,
            rate_bps: self.kbit * KBIT,
            queue_bytes: QUEUE,
            loss: f64::from(self.loss) / 100.0,
            inbound_only: true,
            ..Shape::default()
        }
    }
}

pub(super) struct Lanes {
    pub(super) network: Network,
    pairs: Vec<(NodeId, NodeId)>,
    links: Vec<LinkId>,
}

impl Lanes {
    /// A pair for each shape. With the same seed the same frames of each pair are lost: the first, the
    /// second and so on, whatever they carry.
    pub(super) fn build(shapes: &[Shape], seed: u64) -> Result<Lanes> {
        ensure!(shapes.len() <= 250, "{} lanes are too many", shapes.len());
        let mut plan = Plan::default();
        let pairs = shapes.iter().enumerate().map(|(at, shape)| {
            let (from, to) = (plan.host(&format!("s{at}")), plan.host(&format!("r{at}")));
            // Frames to the first node are lost.
            let link = plan.link(to, from, *shape);
            ((from, to), link)
        });
        let (pairs, links) = pairs.unzip();
        let network = Network::build(plan, seed)?;
        Ok(Lanes {
            network,
            pairs,
            links,
        })
    }

    /// The sender's and the receiver's host of a lane.
    pub(super) fn pair(&self, lane: usize) -> (NodeId, NodeId) {
        self.pairs[lane]
    }

    /// The receiver's address of a lane.
    pub(super) fn address(&self, lane: usize) -> Ipv4Addr {
        self.network.plan().address(self.pairs[lane].1)
    }

    /// Gives the link of a lane another shape.
    fn reshape(&mut self, lane: usize, shape: Shape) -> Result<()> {
        self.network
            .reshape(self.pairs[lane].1, self.links[lane], shape)
    }

    /// Starts `ldc-stream` at both ends of a lane; `send` are the arguments of the sender.
    pub(super) fn start(&self, lane: usize, send: &[String], seconds: u64) -> Result<Stream> {
        let (from, to) = self.pairs[lane];
        let mut keyed: Vec<String> = Vec::new();
        if send.iter().any(|word| word == "quic") {
            keyed = vec!["--key-file".to_owned(), key_file()?];
        }
        let recv = Launch::carried("ldc-stream")
            .named(format!("recv {lane}"))
            .args(["recv", "--json", "--quiet", "--clock", "shared"])
            .args(["--duration", &format!("{seconds}s")])
            .args(if keyed.is_empty() {
                &[][..]
            } else {
                &["--transport", "quic"]
            })
            .args(&keyed)
            .arg(PORT.to_string());
        let mut receiver = self.network.start(to, recv)?;
        receiver.wait_event("waiting", Duration::from_secs(20))?;
        let target = SocketAddr::from((self.address(lane), PORT));
        // Longer than the receiver listens: it sees the middle of a stream.
        let length = seconds + 2;
        let send = Launch::carried("ldc-stream")
            .named(format!("send {lane}"))
            .args(["send", "--json", "--quiet", "--linger", "1s"])
            .args(["--duration", &format!("{length}s")])
            .args(send)
            .args(&keyed)
            .arg(target.to_string());
        let sender = self.network.start(from, send)?;
        Ok(Stream { sender, receiver })
    }
}

/// The file with the key of both ends of all QUIC connections, which is written once.
fn key_file() -> Result<String> {
    let path = Path::new(SCRATCH).join("ldc.key");
    if !path.exists() {
        control_stream::tls::write_new_secret(&path).map_err(|error| anyhow!(error))?;
    }
    Ok(path.to_string_lossy().into_owned())
}

/// A run in progress.
pub(super) struct Stream {
    sender: Process,
    receiver: Process,
}

/// The final report of a run's receiver.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) seconds: f64,
    pub(super) bytes: u64,
    pub(super) on_time_bytes: u64,
    pub(super) windows: u64,
    pub(super) playable_s: f64,
    pub(super) usable_layers: f64,
    pub(super) layers: Vec<Layer>,
    pub(super) age_ms: Option<Ages>,
    pub(super) base_age_ms: Option<Ages>,
    pub(super) corrupt: u64,
    pub(super) out_of_order: u64,
}

impl Outcome {
    /// kbit/s at the receiver.
    pub(super) fn kbit_per_s(&self) -> f64 {
        self.bytes as f64 * 8.0 / KBIT as f64 / self.seconds
    }

    /// The part of the bytes that was on time.
    pub(super) fn on_time_percent(&self) -> f64 {
        self.on_time_bytes as f64 * 100.0 / self.bytes.max(1) as f64
    }

    /// The windows whose base layer did not arrive whole.
    pub(super) fn base_missing(&self) -> u64 {
        self.windows.saturating_sub(self.layers[0].windows_complete)
    }

    /// The part of the windows that this counts of the base layer.
    pub(super) fn base_percent(&self, count: fn(&Layer) -> u64) -> f64 {
        count(&self.layers[0]) as f64 * 100.0 / self.windows.max(1) as f64
    }
}

/// The mean of a figure over runs.
pub(super) fn mean_of<'o>(
    outcomes: impl IntoIterator<Item = &'o Outcome>,
    figure: impl Fn(&Outcome) -> f64,
) -> f64 {
    mean(outcomes.into_iter().map(figure))
}

/// The bytes of each layer, mean of the runs.
pub(super) fn layer_bytes(outcomes: &[Outcome]) -> Vec<f64> {
    let layer = |layer: usize| mean_of(outcomes, |one| one.layers[layer].bytes as f64);
    (0..LAYERS).map(layer).collect()
}

/// A plot of [`layer_bytes`], in KiB.
pub(super) fn layer_plot(limit: Limit) -> Plot {
    let names = (1..=LAYERS).map(|layer| format!("layer {layer}"));
    Plot::bars(&limit.name(), "KiB received", names)
}

/// One layer of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Layer {
    pub(super) bytes: u64,
    pub(super) on_time_bytes: u64,
    pub(super) windows_complete: u64,
    pub(super) windows_on_time: u64,
}

/// How old messages were, milliseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Ages {
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

impl Stream {
    /// The fields of the receiver's last `progress` event.
    pub(super) fn progress(&self) -> Value {
        self.receiver.last("progress").unwrap_or_default()
    }

    /// Waits for the receiver's account; the sender is ended then.
    pub(super) fn finish(mut self, limit: Duration) -> Result<Outcome> {
        self.receiver.wait(limit)?;
        let end: Option<Value> = self.receiver.last("end");
        let Some(end) = end else {
            anyhow::bail!("no account\n{}{}", self.receiver.tail(), self.sender.tail());
        };
        ensure!(
            end["exit_code"] == 0,
            "{}\n{}{}",
            end["message"],
            self.receiver.tail(),
            self.sender.tail()
        );
        let outcome: Outcome = serde_json::from_value(end).context("the receiver's account")?;
        ensure!(
            outcome.corrupt == 0 && outcome.out_of_order == 0,
            "{} messages with wrong bytes, {} out of order",
            outcome.corrupt,
            outcome.out_of_order
        );
        Ok(outcome)
    }
}

/// Arguments of a sender: how, and how messages are cut.
pub(super) fn sender_args(how: &[&str], message: u64, congestion: &str) -> Vec<String> {
    let mut args: Vec<String> = how.iter().map(|&word| word.to_owned()).collect();
    args.extend(["--layer-rate".to_owned(), LAYER_BPS.to_string()]);
    args.extend(["--message".to_owned(), message.to_string()]);
    args.extend(["--congestion".to_owned(), congestion.to_owned()]);
    args
}

/// Several senders over the same links.
pub(super) struct Comparison<'a> {
    pub(super) limits: &'a [Limit],
    pub(super) ways: &'a [&'a [&'a str]],
    /// Runs of each sender on each link.
    pub(super) runs: usize,
    pub(super) seconds: u64,
    /// Most bytes of a message.
    pub(super) message: u64,
    pub(super) congestion: &'a str,
    pub(super) seed: u64,
}

impl Comparison<'_> {
    /// Runs all side by side, every sender with the same losses: outcomes by sender, then by link.
    pub(super) fn play(&self, context: &Context) -> Result<Vec<Vec<Vec<Outcome>>>> {
        let limits = self.limits.iter();
        let shapes: Vec<Shape> = limits
            .flat_map(|limit| std::iter::repeat_n(limit.shape(), self.runs))
            .collect();
        let lanes = self.ways.iter().map(|_| Lanes::build(&shapes, self.seed));
        let mut lanes: Vec<Lanes> = lanes.collect::<Result<_>>()?;
        let (count, seconds) = (lanes.len() * shapes.len(), self.seconds);
        context.note(format!(
            "{count} streams side by side, {seconds} s, {}",
            self.congestion
        ));
        let mut streams = Vec::new();
        for lane in 0..shapes.len() {
            for (lanes, how) in lanes.iter().zip(self.ways) {
                let args = sender_args(how, self.message, self.congestion);
                streams.push(lanes.start(lane, &args, seconds)?);
            }
        }
        self.follow_traces(&mut lanes)?;
        let mut outcomes = finish_all(streams, seconds)?.into_iter();
        let empty = vec![Vec::new(); self.limits.len()];
        let mut by_way = vec![empty; lanes.len()];
        for lane in 0..shapes.len() {
            for way in &mut by_way {
                way[lane / self.runs].extend(outcomes.next());
            }
        }
        Ok(by_way)
    }

    /// Changes the rates of the mobile links second by second, until the runs end.
    fn follow_traces(&self, lanes: &mut [Lanes]) -> Result<()> {
        let count = self.limits.len() * self.runs;
        let limits = (0..count).map(|lane| self.limits[lane / self.runs]);
        let mobile: Vec<(usize, &Trace)> = limits
            .enumerate()
            .filter_map(|(lane, limit)| Some((lane, limit.trace?)))
            .collect();
        if mobile.is_empty() {
            return Ok(());
        }
        let begun = Instant::now();
        for second in 0..self.seconds {
            for (lane, trace) in &mobile {
                for lanes in &mut *lanes {
                    lanes.reshape(*lane, Limit::mobile_shape(trace, second))?;
                }
            }
            let next = begun + Duration::from_secs(second + 1);
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }
}

/// Waits for the accounts of streams, in their order.
pub(super) fn finish_all(streams: Vec<Stream>, seconds: u64) -> Result<Vec<Outcome>> {
    let limit = Duration::from_secs(seconds + 30);
    streams
        .into_iter()
        .map(|stream| stream.finish(limit))
        .collect()
}
