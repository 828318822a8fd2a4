//! The chaining values to the left of a block, against the tree itself.

use ltp::digest::{Digest, Hashing, MerkleFrontier, Tree};

const BLOCK: usize = 1024;

fn left(
    edge: &MerkleFrontier,
    hashing: &Hashing,
    block: usize,
    digest: impl Fn(u64) -> Option<Digest>,
) -> Option<Vec<Digest>> {
    let mut values = Vec::new();
    let count = edge.left_of(hashing, block as u64, digest, |index, value| {
        assert_eq!(index, values.len());
        values.push(*value);
    })?;
    assert_eq!(count, values.len());
    Some(values)
}

#[test]
fn a_tree_that_starts_late_has_the_root_of_the_whole() {
    let bytes: Vec<u8> = (0..100 * BLOCK as u32 - 7)
        .map(|n| (n.wrapping_mul(n) >> 7) as u8)
        .collect();
    for key in [None, Some([5; 32])] {
        let hashing = Hashing::new(key);
        let digests: Vec<_> = bytes
            .chunks(BLOCK)
            .enumerate()
            .map(|(index, block)| hashing.block((index * BLOCK) as u64, block))
            .collect();
        let whole = hashing.whole(&bytes);
        let mut edge = MerkleFrontier::default();
        for (count, digest) in digests.iter().enumerate() {
            let kept = |block: u64| Some(digests[block as usize]);
            for start in 1..=count {
                let values = left(&edge, &hashing, start, kept).unwrap();
                let mut tree = Tree::after(start as u64, &values).unwrap();
                for value in &digests[start..] {
                    tree.push(&hashing, *value, || unreachable!("block 0 is to the left"));
                }
                assert_eq!(tree.root(&hashing), whole, "from {start} at {count}");
            }
            // What lies past the newest block is not known, whatever is asked.
            assert_eq!(left(&edge, &hashing, count + 1, kept), None);
            edge.push(&hashing, *digest);
        }
    }
}

#[test]
fn a_few_kept_digests_reach_back_as_far_as_they_go() {
    let hashing = Hashing::new(None);
    let value = |block: u64| hashing.block(block << 10, &block.to_be_bytes());
    let (mut edge, kept) = (MerkleFrontier::default(), 64);
    for count in 0..3000u64 {
        for back in 0..=count.min(30) {
            let digest = |block: u64| (block + kept >= count).then(|| value(block));
            let values = left(&edge, &hashing, (count - back) as usize, digest);
            assert!(values.is_some(), "{back} back from {count}");
        }
        edge.push(&hashing, value(count));
    }
    // Nothing kept: the newest only.
    assert!(left(&edge, &hashing, 2992, |_| None).is_some());
    assert_eq!(left(&edge, &hashing, 1001, |_| None), None);
}
