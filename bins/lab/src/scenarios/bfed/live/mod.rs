//! `live`: a film from an IP multicast island to viewers of an HTTP one, two hops away, and how far behind the source
//! they see it.
//!
//! ```text
//!   ffmpeg -- 239.1.2.3 --> gateway 1 --- 20 ms --- gateway 2 --- 20 ms --- gateway 3 --> viewers
//!                                        (loss)                                           and a browser
//! ```

mod film;
mod viewers;

use std::collections::{BTreeMap, HashMap};
use std::sync::PoisonError;
use std::thread::JoinHandle;

use bfed_client::session_path;
use headless::Browser;
use sims::report::Picture as Shot;

use self::film::{Film, Picture};
use self::viewers::Seen;
use super::federation::{Design, Federation, Kind, Peering};
use crate::prelude::*;

/// A live film across three gateways to browsers, players and programs
#[derive(Debug, clap::Args)]
pub(crate) struct Live {
    /// Time that is watched, for each setting (quick: 6)
    #[arg(long, default_value_t = 30.0, default_value_if("quick", "true", "6"))]
    #[arg(value_parser = within::<f64>(3.0..=3600.0))]
    seconds: f64,
    /// Rate of the film in bit/s
    #[arg(long, default_value_t = 2_000_000)]
    rate: u64,
    /// Delay of each hop between gateways, in milliseconds
    #[arg(long, default_value_t = 20)]
    delay: u64,
    /// Loss on the first hop in percent, several with commas (quick: 0)
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "0,2",
        default_value_if("quick", "true", "0")
    )]
    loss: Vec<f64>,
}

const GROUP: &str = "239.1.2.3:5004";
const SESSION: &str = "bfed://1/239.1.2.3/5004/?content=real-time";
/// The islands of the source and of the viewers, and the hops between them.
const SOURCE: usize = 0;
const VIEWERS: usize = 2;
const HOPS: u64 = 2;
/// The ports of the servers of an HTTP island, the second with MoQ.
const SERVER: u16 = 8081;
const MOQ_SERVER: u16 = 8082;
/// The viewer of HLS, in reports.
const HLS: &str = "HLS";
/// The viewer of Media over QUIC, in reports.
const MOQ: &str = "MoQ";
/// What it may be behind the hops between gateways, at the 95th percentile.
const MOQ_LIMIT_MS: f64 = 150.0;
/// What a viewer of HLS may be behind the source, at the 95th percentile.
const HLS_LIMIT_S: f64 = 2.5;
/// For the film to arrive before it is watched.
const WARM_UP: Duration = Duration::from_secs(3);
/// What a browser has to show: seconds that its clock advances, and colours of the pattern.
const ADVANCE: Duration = Duration::from_secs(3);
const COLOURS: f64 = 6.0;

impl Scenario for Live {
    const NAME: &'static str = "live";
    const FIGURE: &'static str = "Broadcast Federation §3 to §5, with today's viewers";

    fn run(&self, context: &Context) -> Result<Report> {
        let mut report = Report::new(Self::NAME, "a live film, three gateways, viewers of HTTP");
        if installed("ffmpeg").is_none() {
            report.skip("all of it", "ffmpeg is not installed: there is no film");
            return Ok(report);
        }
        report.note(match headless::is_installed() {
            true => "watched by headless chromium, and by programs that note when each picture is complete",
            false => "chromium is not installed: watched by programs alone, which note when each picture is complete",
        });
        let mut table = Table::with_header(
            format!(
                "{} Mbit/s, {HOPS} hops of {} ms; times in ms after the source sent a picture",
                self.rate as f64 / 1e6,
                self.delay
            ),
            "viewer | loss, % | first picture after | pictures | missing | damaged | median | p95 | most",
        );
        let certificate = installed("openssl")
            .map(|_| headless::pinned_certificate(Path::new(SCRATCH)))
            .transpose()?;
        if certificate.is_none() {
            report.skip(
                "MoQ",
                "openssl is not installed: the listener has no certificate",
            );
        }
        for &loss in &self.loss {
            context.note(format!("loss of {loss} % on the first hop"));
            let setting = Setting {
                live: self,
                loss,
                federation: self.build(loss, certificate.as_ref())?,
                certificate: certificate
                    .as_ref()
                    .map(|[certificate, _]| certificate.clone()),
            };
            setting.play(&mut report, &mut table)?;
        }
        report.tables.push(table);
        report.note(
            "a picture is complete when the next one begins, at the source and at viewers alike; a player of HLS \
             shows it later by the distance from the end of the playlist that the playlist demands (PART-HOLD-BACK), which \
             the targets include",
        );
        Ok(report)
    }
}

impl Live {
    fn build(&self, loss: f64, certificate: Option<&[PathBuf; 2]>) -> Result<Federation> {
        let shape = Shape::default().delayed(Duration::from_millis(self.delay));
        let home = match certificate {
            Some(_) => Kind::Moq,
            None => Kind::Http,
        };
        let designs = [Kind::Ip, Kind::Ssm, home].map(Design::new);
        let peerings = [Peering::new(0, 1), Peering::new(1, 2)];
        let mut federation = Federation::build(&designs, &peerings, shape, "")?;
        federation.start_all()?;
        federation.settle()?;
        // The first hop alone, and not while gateways find each other.
        let lossy = Shape {
            loss: loss / 100.0,
            ..shape
        };
        federation.reshape_between(0, 1, lossy)?;
        Ok(federation)
    }
}

/// One run.
struct Setting<'a> {
    live: &'a Live,
    /// Percent.
    loss: f64,
    federation: Federation,
    /// The certificate of the listener for MoQ.
    certificate: Option<PathBuf>,
}

/// A viewer on a thread of its own.
type Viewer = JoinHandle<Result<Seen>>;

impl Setting<'_> {
    fn play(self, report: &mut Report, table: &mut Table) -> Result<()> {
        let group = GROUP.parse()?;
        let start = || Film::start(group, self.live.rate);
        let film = self.within(SOURCE, start)?;
        let stream = self.watch(viewers::stream, "/s/")?;
        let hls = self.watch(viewers::hls, "/hls/")?;
        let moq = self
            .certificate
            .clone()
            .map(|certificate| self.watch_moq(certificate));
        if headless::is_installed() {
            self.browse(report)?;
        }
        let mut all = vec![("stream", stream), (HLS, hls)];
        if let Some(moq) = moq.transpose()? {
            all.push((MOQ, moq));
        }
        for (name, viewer) in all {
            let ended = viewer
                .join()
                .map_err(|_| anyhow!("a viewer has panicked"))?;
            let seen = ended.with_context(|| format!("{name}\n{}", self.federation.account()))?;
            let sent = film.sent.lock().unwrap_or_else(PoisonError::into_inner);
            let figures = Figures::new(name, &sent, &seen);
            self.judge(report, name, &figures, &seen);
            table.row(figures.row(name, self.loss));
            report.datum(&format!("{name}, {} % loss", self.loss), &figures);
        }
        drop(film);
        let ended = self.federation.stop();
        report.holds("gateways end in an orderly way", ended);
        Ok(())
    }

    fn within<T: Send>(&self, island: usize, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let host = self.federation.host(island);
        self.federation.network.within(host, work)
    }

    /// Where the viewers find the session: `/s/` for the stream, `/hls/`, `/play/`.
    fn url(&self, kind: &str) -> String {
        let server = SocketAddr::from((self.federation.address(VIEWERS), SERVER));
        let path = session_path(SESSION, 0).replacen("/s/", kind, 1);
        match kind {
            "/hls/" => format!("http://{server}{path}/index.m3u8"),
            _ => format!("http://{server}{path}"),
        }
    }

    /// Starts a viewer.
    fn watch(&self, view: fn(&str, Duration) -> Result<Seen>, kind: &str) -> Result<Viewer> {
        let url = self.url(kind);
        let time = WARM_UP + Duration::from_secs_f64(self.live.seconds);
        // A thread is in the network of the one that starts it.
        self.within(VIEWERS, || Ok(std::thread::spawn(move || view(&url, time))))
    }

    /// Starts a viewer of MoQ.
    fn watch_moq(&self, certificate: PathBuf) -> Result<Viewer> {
        let server = SocketAddr::from((self.federation.address(VIEWERS), MOQ_SERVER));
        let url = format!("https://{server}/");
        let time = WARM_UP + Duration::from_secs_f64(self.live.seconds);
        let view = move || viewers::moq(&url, &certificate, time);
        self.within(VIEWERS, || Ok(std::thread::spawn(view)))
    }

    /// Plays the session in a browser.
    fn browse(&self, report: &mut Report) -> Result<()> {
        let url = self.url("/play/");
        let (clock, colours, png) = self.within(VIEWERS, || {
            let mut browser = Browser::open(&url)?;
            let began = browser.plays(ADVANCE, Duration::from_secs(60));
            let colours = browser.colours()?;
            Ok((began, colours, browser.screenshot()?))
        })?;
        let name = format!("chromium, HLS, {} % loss", self.loss);
        if let Err(error) = &clock {
            report.note(format!("{name}: {error:#}"));
        }
        report.holds(format!("{name}: the clock advances"), clock.is_ok());
        report.check(
            format!("{name}: colours of the test pattern in the picture"),
            colours as f64,
            "",
            Bound::AtLeast(COLOURS),
        );
        report.pictures.push(Shot {
            name: format!("hls-{}", self.loss),
            png,
        });
        Ok(())
    }

    fn judge(&self, report: &mut Report, name: &str, figures: &Figures, seen: &Seen) {
        let loss = self.loss;
        report.holds(
            format!("{name}, {loss} % loss: pictures arrive"),
            figures.pictures > 0,
        );
        report.check(
            format!("{name}, {loss} % loss: pictures that are missing or damaged"),
            (figures.missing + figures.damaged.unwrap_or_default()) as f64,
            "",
            Bound::Exactly(0.0),
        );
        if name == MOQ {
            report.timed(
                format!("MoQ, {loss} % loss: behind the source beyond the hops, 95th percentile"),
                figures.p95_ms - (HOPS * self.live.delay) as f64,
                "ms",
                Bound::AtMost(MOQ_LIMIT_MS),
            );
        }
        if name == HLS {
            let behind = figures.p95_ms / 1e3 + seen.hold_back.as_secs_f64();
            report.timed(
                format!("HLS, {loss} % loss: behind the source when shown, 95th percentile"),
                behind,
                "s",
                Bound::AtMost(HLS_LIMIT_S),
            );
        }
    }
}

/// What a viewer saw, compared with what the source sent.
#[derive(Debug, Serialize)]
struct Figures {
    first_ms: f64,
    pictures: usize,
    /// Pictures between the first and the last that it did not see.
    missing: usize,
    /// Pictures of another length: packets are missing. Not known with HLS, which adds tables to each part.
    damaged: Option<usize>,
    median_ms: f64,
    p95_ms: f64,
    most_ms: f64,
}

impl Figures {
    fn new(name: &str, sent: &HashMap<u64, Picture>, seen: &Seen) -> Figures {
        let (first, last) = (seen.pictures.keys().next(), seen.pictures.keys().last());
        let due = sent
            .keys()
            .filter(|&time| first <= Some(time) && Some(time) <= last);
        let both = seen.pictures.values();
        let both = both.filter_map(|picture| Some((sent.get(&picture.time)?, picture)));
        let differ = |(sent, seen): &(&Picture, &Picture)| sent.len != seen.len;
        // Of each piece, the last picture: a player cannot show the end of a part before it has all of it.
        let mut pieces = BTreeMap::new();
        for (sent, seen) in both.clone() {
            pieces.insert(seen.piece, (seen.at - sent.at).as_secs_f64() * 1e3);
        }
        let mut behind: Vec<f64> = pieces.into_values().collect();
        behind.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let at = (behind.len() as f64 * share) as usize;
            behind
                .get(at.min(behind.len().saturating_sub(1)))
                .copied()
                .unwrap_or(f64::NAN)
        };
        Figures {
            first_ms: seen
                .first
                .map_or(f64::NAN, |first| first.as_secs_f64() * 1e3),
            pictures: seen.pictures.len(),
            missing: due.filter(|time| !seen.pictures.contains_key(time)).count(),
            damaged: (name != HLS).then(|| both.filter(differ).count()),
            median_ms: at(0.5),
            p95_ms: at(0.95),
            most_ms: at(1.0),
        }
    }

    fn row(&self, name: &str, loss: f64) -> [Cell; 9] {
        [
            name.into(),
            Cell::number(loss, 1),
            Cell::number(self.first_ms, 0),
            self.pictures.into(),
            self.missing.into(),
            self.damaged.map_or("-".into(), Cell::from),
            Cell::number(self.median_ms, 0),
            Cell::number(self.p95_ms, 0),
            Cell::number(self.most_ms, 0),
        ]
    }
}
