//! What losses that have nothing to do with each other cost a group, in virtual time.

use netsim::{LinkConfig, Loss};

use crate::common::config;
use crate::group::{assert_delivered, closed, group, group_net, lan, receivers, start};

/// The time until the last of `count` receivers has everything; each loses 1 % independently.
fn took_ms(count: usize) -> i64 {
    let len = 4_000_000;
    let link: LinkConfig = lan().loss(Loss::Bernoulli(0.01));
    let mut net = group_net(3, (config(), lan()), receivers(count, link));
    start(&mut net, &group(count), len);
    assert!(net.run(600, closed), "{:?}", net.host(0).events);
    assert_delivered(&net, 1..=count, len, "losses");
    let finished = (1..=count).filter_map(|host| net.host(host).finished_at);
    finished
        .map(|at| at.total_millis())
        .max()
        .unwrap_or(i64::MAX)
}

/// The narrowest of eight windows is narrower than one, but not as narrow as the losses of all
/// together would make it: that would take four times as long.
#[test]
fn eight_receivers_do_not_pay_for_the_losses_of_each_other() {
    let (one, eight) = (took_ms(1), took_ms(8));
    assert!(eight < one * 5 / 2, "{one} ms, {eight} ms");
}
