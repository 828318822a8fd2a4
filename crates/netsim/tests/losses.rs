//! Losses: their distribution, held against the model by chi-square tests that a wrong rate fails,
//! and losses that a script decides.

mod common;

use common::{Listener, Talker};
use netsim::{Disposition, Duration, LinkConfig, LinkStats, Loss, Sim};

const PACKETS: u64 = 400_000;

/// For each packet sent over such a link whether it was lost.
fn losses(link: LinkConfig) -> Vec<bool> {
    let mut sim: Sim = Sim::new([4; 32]);
    let gap = Duration::from_micros(1);
    let talker = sim.add_node(Box::new(Talker::new(PACKETS, 8, gap)));
    let listener = sim.add_node(Box::new(Listener::default()));
    sim.add_link(talker, listener, link);
    sim.run_to_rest();
    let mut lost = vec![true; PACKETS as usize];
    for number in sim.get::<Listener>(listener).numbers() {
        lost[number as usize] = false;
    }
    lost
}

/// Lengths of the runs of `value`.
fn runs(lost: &[bool], value: bool) -> Vec<u32> {
    let all = lost.chunk_by(|a, b| a == b);
    let of_value = all.filter(|run| run[0] == value);
    of_value.map(|run| run.len() as u32).collect()
}

/// Chi-square, divided by its degrees of freedom, of run lengths (from 1 on) held against the
/// geometric distribution whose runs end with this probability at each step. About 1 where that
/// distribution is right. Twenty bins of equal probability, or fewer where lengths are short.
fn misfit(lengths: &[u32], end: f64) -> f64 {
    let mut bounds: Vec<f64> = (1..20)
        .map(|bin| ((1.0 - f64::from(bin) / 20.0).ln() / (1.0 - end).ln()).ceil())
        .collect();
    bounds.dedup();
    bounds.push(f64::INFINITY);
    let (mut below, mut chi_square) = (0.0, 0.0);
    let mut counted = 0;
    for bound in &bounds {
        let up_to = 1.0 - (1.0 - end).powf(*bound);
        let expected = (up_to - below) * lengths.len() as f64;
        let seen = lengths
            .iter()
            .filter(|len| f64::from(**len) <= *bound)
            .count();
        let observed = (seen - counted) as f64;
        chi_square += (observed - expected).powi(2) / expected;
        (below, counted) = (up_to, seen);
    }
    chi_square / (bounds.len() - 1) as f64
}

/// The right rate fits; one that is a tenth off does not.
fn assert_geometric(lengths: &[u32], end: f64) {
    assert!(lengths.len() > 2_000, "{} runs", lengths.len());
    let fit = misfit(lengths, end);
    assert!(fit < 2.5, "misfit {fit} at {end}");
    for wrong in [end * 0.9, end * 1.1] {
        assert!(misfit(lengths, wrong) > 2.5, "{wrong} would pass for {end}");
    }
}

#[test]
fn independent_losses_are_geometrically_far_apart() {
    for link in [LinkConfig::new(), LinkConfig::new().mtu(1500)] {
        for loss in [0.01, 0.2] {
            let lost = losses(link.loss(Loss::Bernoulli(loss)));
            assert_geometric(&runs(&lost, false), loss);
        }
    }
}

#[test]
fn bursts_of_gilbert_and_elliott_are_geometrically_long_and_far_apart() {
    let lost = losses(LinkConfig::new().loss(Loss::GilbertElliott {
        good_to_bad: 0.02,
        bad_to_good: 0.3,
        loss_good: 0.0,
        loss_bad: 1.0,
    }));
    assert_geometric(&runs(&lost, true), 0.3);
    assert_geometric(&runs(&lost, false), 0.02);
}

/// Ten packets over one link under a script that knows packets by their numbers.
fn scripted(link: LinkConfig, script: fn(u64) -> Disposition) -> (Vec<u64>, LinkStats) {
    let mut sim: Sim = Sim::new([4; 32]);
    let talker = sim.add_node(Box::new(Talker::new(10, 8, Duration::from_millis(1))));
    let listener = sim.add_node(Box::new(Listener::default()));
    let link = sim.add_link(talker, listener, link);
    sim.script(move |record| {
        assert_eq!((record.link, record.from), (link.0, talker.0));
        let number = record.bytes.try_into().expect("8 bytes");
        script(u64::from_be_bytes(number))
    });
    sim.run_to_rest();
    let stats = sim.link_stats(link)[0];
    (sim.get::<Listener>(listener).numbers(), stats)
}

#[test]
fn a_script_loses_what_it_says_and_spares_what_it_says() {
    let third = |number| {
        if number == 3 {
            Disposition::Lose
        } else {
            Disposition::Chance
        }
    };
    for link in [LinkConfig::new(), LinkConfig::new().mtu(1500)] {
        let (heard, stats) = scripted(link, third);
        assert_eq!(heard, [0, 1, 2, 4, 5, 6, 7, 8, 9]);
        assert_eq!((stats.lost, stats.delivered), (1, 9));
        let deaf = link.loss(Loss::Bernoulli(1.0));
        let (heard, stats) = scripted(deaf, |number| match number {
            5 => Disposition::Pass,
            _ => Disposition::Chance,
        });
        assert_eq!((heard, stats.lost), (vec![5], 9));
    }
}

#[test]
fn a_scripted_loss_uses_the_links_time_and_a_full_queue_drops_all_the_same() {
    // 8 bytes at 32 kbit/s take 2 ms, one comes each millisecond, none may wait: every second passes.
    let slow = LinkConfig::new().rate_bps(32_000).queue_packets(0);
    let (heard, stats) = scripted(slow, |_| Disposition::Pass);
    assert_eq!((heard, stats.queue_full), (vec![0, 2, 4, 6, 8], 5));
    let (heard, stats) = scripted(slow, |number| match number {
        2 => Disposition::Lose,
        _ => Disposition::Pass,
    });
    assert_eq!(heard, [0, 4, 6, 8]);
    assert_eq!((stats.queue_full, stats.lost), (5, 1));
}

fn given(link: LinkConfig) -> bool {
    std::panic::catch_unwind(|| {
        let mut sim: Sim = Sim::new([4; 32]);
        let ends = [0; 2].map(|_| sim.add_node(Box::new(Listener::default())));
        sim.add_link(ends[0], ends[1], link);
    })
    .is_ok()
}

#[test]
fn links_out_of_bounds_are_refused() {
    let new = LinkConfig::new;
    assert!(given(new().corrupt(1.0).rate_bps(1)));
    for wrong in [-0.1, 1.1, f64::NAN] {
        assert!(!given(new().loss(Loss::Bernoulli(wrong))), "{wrong}");
        assert!(!given(new().corrupt(wrong)), "{wrong}");
        assert!(!given(new().duplicate(wrong)), "{wrong}");
        assert!(!given(new().reorder(wrong, Duration::ZERO)), "{wrong}");
    }
    assert!(!given(new().rate_bps(0)));
    assert!(!given(new().delay(Duration::from_secs(4295))));
}
