//! What receivers that were let in, and lie, do to the rate of a group, in virtual time.

use std::cell::RefCell;
use std::rc::Rc;

use netsim::{LinkConfig, Loss};
use tcpxm::{Config, CongestionControl, Duration, Instant, Stats};

use crate::common::{Dice, Disguise, Net, Plan, config};
use crate::group::{assert_delivered, group, group_net, start};
use crate::liars::{Clock, Echo, Flood, Gaps, Hold, Late, Optimist, Outage};

const CONTROLS: [CongestionControl; 2] = [CongestionControl::Cubic, CongestionControl::Bbr];

fn machine(control: CongestionControl) -> Config {
    let mut machine = config();
    machine.congestion_control = control;
    machine.receive_buffer = 4 << 20;
    machine
}

/// The link of an honest receiver: 20 Mbit/s, and a queue of twice the product.
fn narrow() -> LinkConfig {
    wide().rate_bps(20_000_000).queue_packets(25)
}

fn wide() -> LinkConfig {
    LinkConfig::new()
        .delay(Duration::from_millis(5))
        .rate_bps(100_000_000)
        .queue_packets(1000)
}

type Liar = (Box<dyn Disguise>, LinkConfig);

/// What a transfer to honest receivers and liars, which come after them, was like.
#[derive(Debug)]
struct Outcome {
    /// When the last honest receiver had everything.
    ms: i64,
    /// Packets dropped by the full queues before honest receivers, and all sent there.
    dropped: u64,
    burst: usize,
    sent: u64,
    stats: Stats,
}

/// Most packets in a time.
fn most_within(times: &[Instant], period: Duration) -> usize {
    let counts = times.iter().enumerate().map(|(at, &time)| {
        let end = times.partition_point(|&other| other <= time + period);
        end - at
    });
    counts.max().unwrap_or(0)
}

/// A transfer.
struct Case {
    control: CongestionControl,
    len: u64,
    /// The links of the sender, of honest receivers and of liars, which come after them.
    sender: LinkConfig,
    honest: Vec<LinkConfig>,
    liars: Vec<Liar>,
    min_rate_bps: Option<u64>,
}

/// To three honest receivers.
fn case(control: CongestionControl) -> Case {
    Case {
        control,
        len: 6 << 20,
        sender: LinkConfig::new(),
        honest: vec![narrow(); 3],
        liars: Vec::new(),
        min_rate_bps: None,
    }
}

/// Runs until all honest receivers have everything.
fn run(case: Case) -> Outcome {
    let Case {
        control,
        len,
        sender,
        honest,
        liars,
        min_rate_bps,
    } = case;
    let what = format!("{control:?}, {} liars", liars.len());
    let trusting = Plan {
        trusting: true,
        ..Plan::default()
    };
    let links = honest
        .iter()
        .copied()
        .chain(liars.iter().map(|liar| liar.1));
    let hosts: Vec<_> = links
        .map(|link| (machine(control), trusting.clone(), link))
        .collect();
    let mut wanted = group(hosts.len());
    wanted.min_rate_bps = min_rate_bps;
    wanted.initial_rto = Some(Duration::from_millis(200));
    let mut net = group_net(11, (machine(control), sender), hosts);
    net.prunes = true;
    let first = honest.len() + 1;
    net.switch(|switch| {
        for (number, liar) in (first..).zip(liars) {
            switch.disguises.insert(number as u16, liar.0);
        }
    });
    // All that goes to the first honest receiver, after slow start.
    let times = Rc::new(RefCell::new(Vec::new()));
    let record = Rc::clone(&times);
    net.switch(|switch| {
        switch.drop = Some(Box::new(move |now, port, _| {
            if port == 1 && now > Instant::from_millis(700) {
                record.borrow_mut().push(now);
            }
            false
        }));
    });
    start(&mut net, &wanted, len);
    let honest = 1..first;
    let done = |net: &Net| {
        let mut honest = honest.clone();
        honest.all(|host| net.host(host).finished_at.is_some())
    };
    assert!(net.run(400, done), "{what}: {:?}", net.host(0).events);
    assert_delivered(&net, honest.clone(), len, &what);
    let finished = honest.clone().filter_map(|host| net.host(host).finished_at);
    let down = honest.map(|host| net.sim.link_stats(net.links[host])[0]);
    let (dropped, sent) = down.fold((0, 0), |(dropped, sent), link| {
        (dropped + link.queue_full, sent + link.sent)
    });
    if std::env::var_os("WHO").is_some() {
        for h in 1..net.hosts.len() {
            println!(
                "host {h} left {:?} fin {:?}",
                net.host(h).left_at,
                net.host(h).finished_at
            );
        }
    }
    Outcome {
        ms: finished.max().map_or(0, |at| at.total_millis()),
        dropped,
        burst: most_within(&times.borrow(), Duration::from_millis(10)),
        sent,
        stats: net.host(0).endpoint.stats().clone(),
    }
}

/// The liar's path takes more, as much, or less than the others' paths, and it lies always or alternately. Without a
/// queue before them, drops would show that the group sends more than the honest receivers' paths take.
#[test]
fn who_acknowledges_what_it_has_not_got_raises_nobodys_rate() {
    for control in CONTROLS {
        let honest = run(case(control));
        let liars: [(&str, Option<i64>, LinkConfig); 6] = [
            ("wide", None, wide()),
            ("same", None, narrow()),
            ("narrow", None, narrow().rate_bps(4_000_000)),
            ("each 100 ms", Some(100), wide()),
            ("each 300 ms", Some(300), wide()),
            ("each second", Some(1000), wide()),
        ];
        for (name, period, link) in liars {
            let optimist = match period {
                Some(ms) => Optimist::changing(Duration::from_millis(ms as u64)),
                None => Optimist::default(),
            };
            let lied = run(Case {
                liars: vec![(Box::new(optimist), link)],
                ..case(control)
            });
            let case = format!("{control:?}, {name}: {lied:?} instead of {honest:?}");
            println!("{case}");
            assert!(lied.dropped <= lied.sent / 80 + honest.dropped, "{case}");
            // At 20 Mbit/s 17 packets arrive in 10 ms, and 21 when BBR probes. The windows of BBR take 36.
            let most = match (control, period) {
                (CongestionControl::Bbr, None) => 24,
                _ => 45,
            };
            assert!(lied.burst <= most, "{case}");
            // Who is slow half of the time has the influence of a slow receiver.
            let most = if period.is_none() && name != "narrow" {
                11
            } else {
                60
            };
            assert!(lied.ms * 10 <= honest.ms * most, "{case}");
        }
    }
}

/// Bounds: as slow as with a receiver that loses as much; of multicast, what two of them report as lost, once; of
/// unicast, what each of them does.
#[test]
fn false_losses_cost_what_a_receiver_with_losses_costs() {
    for control in CONTROLS {
        let honest = run(case(control));
        let lossy: Liar = (
            Box::new(Late::new(Hold::Random(Duration::ZERO), 1)),
            wide().loss(Loss::Bernoulli(0.5)),
        );
        let genuine = run(Case {
            liars: vec![lossy],
            ..case(control)
        });
        for (count, min_rate_bps) in [
            (1, None),
            (2, None),
            (1, Some(10_000_000)),
            (2, Some(10_000_000)),
        ] {
            let liars = (0..count).map(|_| -> Liar {
                let round = Duration::from_millis(20);
                (Box::new(Gaps::admitted_after(round)), wide())
            });
            let lied = run(Case {
                liars: liars.collect(),
                min_rate_bps,
                ..case(control)
            });
            let case = format!("{control:?}, {count} liars, {min_rate_bps:?}: {lied:?}");
            println!("{case}, instead of {honest:?}");
            let stats = &lied.stats;
            let (group, each) = (stats.multicast_bytes_sent, stats.unicast_bytes_sent);
            let alone = honest.stats.multicast_bytes_sent;
            let most = if count == 1 { alone * 102 } else { alone * 200 };
            assert!(group * 100 <= most, "{case}");
            if min_rate_bps.is_none() {
                assert!(each <= alone * count, "{case}");
            }
            assert!(lied.dropped <= lied.sent / 40, "{case}");
            if min_rate_bps.is_some() {
                assert!(stats.detached >= count, "{case}");
                assert!(lied.ms <= 2 * honest.ms, "{case}");
            } else {
                assert!(lied.ms <= genuine.ms * 11 / 10, "{case}");
            }
        }
    }
}

/// Two that say at the same time that they lack a whole window have its repairs sent to the group. That is paced, too.
#[test]
fn repairs_that_liars_ask_for_come_at_the_pace_of_the_group() {
    let far = |rate| wide().delay(Duration::from_millis(25)).rate_bps(rate);
    for ms in [10, 50, 100] {
        let liars = (0..2).map(|_| -> Liar {
            (
                Box::new(Outage::of(Duration::from_millis(ms))),
                far(100_000_000),
            )
        });
        let lied = run(Case {
            honest: vec![far(20_000_000).queue_packets(60); 3],
            liars: liars.collect(),
            ..case(CongestionControl::Bbr)
        });
        println!("{ms} ms: {lied:?}");
        // 17 packets at 20 Mbit/s, and 21 when BBR probes for more.
        assert!(lied.burst <= 24, "{ms} ms: {lied:?}");
        assert!(
            lied.stats.shared_repairs > 50 || ms == 10,
            "{ms} ms: {lied:?}"
        );
    }
}

/// What it reports stays in the table of shared repairs, half of which it takes.
#[test]
fn who_fills_the_table_of_shared_repairs_leaves_the_others_theirs() {
    for (control, len) in CONTROLS.into_iter().zip([4 << 20, 16 << 20]) {
        let far = wide().delay(Duration::from_millis(40)).rate_bps(50_000_000);
        let lossy = || Case {
            len,
            sender: LinkConfig::new().loss(Loss::Bernoulli(0.005)),
            honest: vec![far; 3],
            ..case(control)
        };
        let honest = run(lossy());
        let lied = run(Case {
            liars: vec![(Box::new(Flood::new()), far)],
            ..lossy()
        });
        let case = format!("{control:?}: {lied:?} instead of {honest:?}");
        println!("{case}");
        let shared = honest.stats.shared_repairs;
        assert!(shared > 10, "{case}");
        assert!(lied.stats.shared_repairs * 2 > shared, "{case}");
        assert!(lied.ms <= 3 * honest.ms, "{case}");
    }
}

/// The receiver that lies loses 10 % besides, so that repairs are lost and timers expire. It finds losses of repairs later
/// without its timestamps, and is a slower receiver for that.
#[test]
fn wrong_timestamps_slow_nobody_down() {
    for control in CONTROLS {
        let with = |echo| {
            let link = narrow().loss(Loss::Bernoulli(0.1));
            run(Case {
                liars: vec![(Box::new(Clock(echo, Dice(3))), link)],
                ..case(control)
            })
        };
        let honest = with(Echo::Off(0));
        println!("{control:?}, honest: {honest:?}");
        let offsets = [-60_000, -1_000, -50, 50, 1_000, 60_000, i32::MIN];
        let echoes = offsets.map(Echo::Off).into_iter();
        for echo in echoes.chain([Echo::Zero, Echo::Random]) {
            let lied = with(echo);
            let case = format!("{control:?}, {echo:?}: {lied:?} instead of {honest:?}");
            println!("{case}");
            assert!(lied.ms <= honest.ms * 2, "{case}");
            assert!(lied.dropped <= 2 * honest.dropped + 20, "{case}");
            assert_eq!(lied.stats.fall_backs, 0, "{case}");
        }
    }
}

/// Round trips are 10 ms, and the queue takes 15 ms more.
#[test]
fn late_acknowledgements_and_lumps_of_them_tell_no_bandwidth() {
    for control in CONTROLS {
        for hold in [
            Hold::Lumps(Duration::from_millis(10)),
            Hold::Lumps(Duration::from_millis(25)),
            Hold::Random(Duration::from_millis(10)),
            Hold::Random(Duration::from_millis(40)),
        ] {
            let late = (0..3).map(|seed| -> Liar { (Box::new(Late::new(hold, seed)), narrow()) });
            let held = run(Case {
                honest: vec![narrow()],
                liars: late.collect(),
                ..case(control)
            });
            let case = format!("{control:?}, {hold:?}: {held:?}");
            println!("{case}");
            assert!(held.ms < 5_000, "{case}");
            assert!(held.dropped <= held.sent / 150, "{case}");
            assert_eq!(
                (held.stats.fall_backs, held.stats.timeouts),
                (0, 0),
                "{case}"
            );
        }
    }
}
