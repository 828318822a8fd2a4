//! A session takes the memory that the documentation states.

use std::mem::size_of;

use dyram::storage::{Child, Limits, Link, NackState, SESSION_LEN, Session, Storage};

fn bytes(storage: &Storage<'_>) -> usize {
    storage.sessions.len() * size_of::<Session>()
        + storage.index.len() * 2
        + storage.children.len() * size_of::<Child>()
        + (storage.members.len() + storage.lost.len() + storage.subcast.len()) * 8
        + storage.nacks.len() * size_of::<NackState>()
        + storage.heads.len() * 2
        + storage.links.len() * size_of::<Link>()
}

#[test]
fn a_session_takes_what_the_table_says() {
    assert!(
        size_of::<Session>() <= SESSION_LEN,
        "{}",
        size_of::<Session>()
    );
    assert_eq!(size_of::<Child>(), 28);
    assert_eq!(size_of::<NackState>(), 12);
    assert_eq!(size_of::<Link>(), 8);
}

#[test]
fn a_session_with_64_children_takes_less_than_4_kib_and_a_quarter() {
    let storage = Storage::owned(Limits::default()).unwrap();
    let each = bytes(&storage) / storage.limits.sessions;
    println!("{each} bytes a session");
    assert!(each <= 4352, "{each}");
}

#[test]
fn sizes_that_make_no_sense_are_refused() {
    let with = |change: fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        Storage::owned(limits).is_err()
    };
    assert!(with(|limits| limits.sessions = 0));
    assert!(with(|limits| limits.children = 65_535));
    assert!(with(|limits| limits.nack_states = 63));
    assert!(with(|limits| limits.window = 32));
    assert!(with(|limits| limits.window = 1000));
    assert!(with(|limits| limits.sessions = 1024), "67,584 timers");
}
