//! Attributes of routes: valid and bad ones, in every order.

use bfed::Cost;
use bfed::wire::attributes::{Attributes, Fault, Wrong};

use crate::common::gateway;

fn attribute(flags: u8, kind: u8, value: &[u8]) -> Vec<u8> {
    [&[flags, kind, 0, value.len() as u8], value].concat()
}

/// A description, attributes beside a good cost and path, the number of tags left or the fault, and what was
/// discarded.
type Row = (&'static str, Vec<Vec<u8>>, Result<usize, Fault>, Vec<Wrong>);

const PATH: [u8; 16] = [0, 0, 0, 8, 0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0, 1];

/// A good cost and path.
fn good() -> (Vec<u8>, Vec<u8>) {
    (attribute(0, 1, &[0, 0, 0, 3]), attribute(0, 2, &PATH))
}

/// The table of `wire::attributes`: attributes beside cost and path.
#[test]
fn bad_tags_and_unknown_attributes_discard_withdraw_or_reset() {
    use Fault::{Reset, Withdraw};
    let (good_cost, good_path) = good();
    let tags = attribute(0x80, 3, &[0, 0, 0, 5]);
    let rows: Vec<Row> = vec![
        (
            "tags too long",
            vec![attribute(0x80, 3, &[1, 2, 3])],
            Ok(0),
            vec![Wrong::Value],
        ),
        (
            "no tags",
            vec![attribute(0x80, 3, &[])],
            Ok(0),
            vec![Wrong::Value],
        ),
        (
            "tags not optional",
            vec![attribute(0, 3, &[0; 4])],
            Ok(0),
            vec![Wrong::Flags],
        ),
        ("tags", vec![tags.clone()], Ok(1), vec![]),
        (
            "tags twice",
            vec![tags.clone(), tags.clone()],
            Ok(1),
            vec![Wrong::Twice],
        ),
        (
            "cost twice",
            vec![good_cost.clone()],
            Ok(0),
            vec![Wrong::Twice],
        ),
        (
            "unknown optional",
            vec![attribute(0x80, 99, b"?")],
            Ok(0),
            vec![Wrong::Unknown],
        ),
        (
            "unknown needed",
            vec![attribute(0, 99, b"?")],
            Err(Reset(Wrong::Unknown)),
            vec![],
        ),
        (
            "longer than all",
            vec![vec![0x80, 3, 0, 9, 1]],
            Err(Withdraw(Wrong::Overrun)),
            vec![],
        ),
        (
            "half a head",
            vec![vec![0x80, 3]],
            Err(Withdraw(Wrong::Overrun)),
            vec![],
        ),
    ];
    for (what, extra, want, discarded) in rows {
        let bytes = [good_cost.clone(), good_path.clone(), extra.concat()].concat();
        let mut seen = vec![];
        let got = Attributes::parse(&bytes, gateway(7, 1), |wrong| seen.push(wrong));
        assert_eq!(
            (got.map(|got| got.tags.len()), seen),
            (want, discarded),
            "{what}"
        );
    }
}

/// The table of `wire::attributes`: cost and path.
#[test]
fn a_bad_cost_or_path_withdraws() {
    use Fault::{Reset, Withdraw};
    let (good_cost, good_path) = good();
    let twice = [&PATH[..8], &PATH[..8], &PATH[8..]].concat();
    for (what, bytes, want) in [
        ("no cost", good_path.clone(), Withdraw(Wrong::Missing)),
        ("no path", good_cost.clone(), Withdraw(Wrong::Missing)),
        ("nothing", vec![], Withdraw(Wrong::Missing)),
        (
            "infinite",
            [attribute(0, 1, &[255; 4]), good_path.clone()].concat(),
            Withdraw(Wrong::Value),
        ),
        (
            "short cost",
            [attribute(0, 1, &[1; 3]), good_path.clone()].concat(),
            Withdraw(Wrong::Value),
        ),
        (
            "optional cost",
            [attribute(0x80, 1, &[1; 4]), good_path].concat(),
            Withdraw(Wrong::Flags),
        ),
        (
            "elsewhere",
            [good_cost.clone(), attribute(0, 2, &PATH[..8])].concat(),
            Withdraw(Wrong::Value),
        ),
        (
            "a loop",
            [good_cost.clone(), attribute(0, 2, &twice)].concat(),
            Withdraw(Wrong::Value),
        ),
        (
            "both",
            [attribute(0, 1, &[1]), attribute(0, 77, &[])].concat(),
            Reset(Wrong::Unknown),
        ),
    ] {
        let got = Attributes::parse(&bytes, gateway(7, 1), |_| ());
        assert_eq!(got.unwrap_err(), want, "{what}");
    }
}

/// Every order of these, joined.
fn orders(parts: &[Vec<u8>]) -> Vec<Vec<u8>> {
    if parts.is_empty() {
        return vec![vec![]];
    }
    let begun = (0..parts.len()).flat_map(|at| {
        let mut rest = parts.to_vec();
        let first = rest.remove(at);
        let behind = orders(&rest).into_iter();
        behind.map(move |behind| [&first[..], &behind].concat())
    });
    begun.collect()
}

#[test]
fn attributes_mean_the_same_in_every_order() {
    let path = attribute(0, 2, &[0, 0, 0, 7, 0, 0, 0, 1]);
    let cost = |value: &[u8]| attribute(0, 1, value);
    let (tags, unknown) = (attribute(0x80, 3, &[0, 0, 0, 5]), attribute(0x80, 99, b"?"));
    let needed = attribute(0, 99, b"?");
    let good = [cost(&[0, 0, 0, 3]), path.clone(), tags.clone(), unknown];
    let read = |bytes: &[u8]| Attributes::parse(bytes, gateway(7, 1), |_| ());
    for bytes in orders(&good) {
        let got = read(&bytes).unwrap();
        assert_eq!((got.cost, got.tags), (Cost(3), vec![5]));
    }
    let bad = [cost(&[3]), path, tags];
    for bytes in orders(&bad) {
        assert_eq!(read(&bytes), Err(Fault::Withdraw(Wrong::Value)));
    }
    for bytes in orders(&[&bad[..], &[needed]].concat()) {
        assert_eq!(read(&bytes), Err(Fault::Reset(Wrong::Unknown)));
    }
}
