//! The edges of a flow.

use alloc::vec;

use super::*;

fn edge(index: u32) -> EdgeId {
    EdgeId {
        index,
        generation: 0,
    }
}

/// The edges that packets are sent on.
fn outs(flow: &Flow) -> Vec<u32> {
    let outs: Vec<_> = (0..flow.outs()).filter_map(|at| flow.out(at)).collect();
    assert_eq!(outs.len(), flow.outs() as usize);
    assert_eq!(flow.out(flow.outs()), None);
    assert_eq!(flow.out(u32::MAX), None);
    outs.into_iter().map(|id| id.index).collect()
}

#[test]
fn packets_are_sent_on_all_edges_but_the_upstream_one_with_one_source() {
    for multi in [false, true] {
        let mut flow = Flow::new(Content::Bulk, multi, Class::NONE);
        assert_eq!(outs(&flow), []);
        flow.add(edge(1), true);
        for id in 2..=4 {
            flow.add(edge(id), false);
        }
        let all = if multi {
            vec![1, 2, 3, 4]
        } else {
            vec![2, 3, 4]
        };
        assert_eq!((outs(&flow), flow.up), (all, Some(edge(1))));
        flow.remove(edge(9));
        flow.remove(edge(3));
        let rest = if multi { vec![1, 2, 4] } else { vec![2, 4] };
        assert_eq!((outs(&flow), flow.up), (rest, Some(edge(1))));
        flow.remove(edge(1));
        assert_eq!((outs(&flow), flow.up), (vec![2, 4], None));
        // The first of them, and the last.
        flow.remove(edge(2));
        assert_eq!(outs(&flow), [4]);
        flow.remove(edge(4));
        assert_eq!(outs(&flow), []);
        flow.add(edge(5), false);
        assert_eq!(outs(&flow), [5]);
    }
}

#[test]
fn counts_of_the_shortcut_and_of_other_flows_are_added() {
    let one = FlowCounts {
        packets: 3,
        bytes: 50,
        copies: 7,
        dropped: 2,
    };
    let mut flow = Flow::new(Content::Bulk, false, Class::NONE);
    flow.rest.dropped = 11;
    flow.add_counts(&one);
    flow.add_counts(&one);
    let mut sum = flow.counts();
    let twice = FlowCounts {
        packets: 6,
        bytes: 100,
        copies: 14,
        dropped: 11,
    };
    assert_eq!(sum, twice);
    sum.add(&one);
    assert_eq!(
        (sum.packets, sum.bytes, sum.copies, sum.dropped),
        (9, 150, 21, 13)
    );
}
