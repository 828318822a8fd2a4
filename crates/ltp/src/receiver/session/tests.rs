use core::net::Ipv4Addr;

use super::*;
use crate::wire::Seq;

const DIGEST: Digest = [7; 32];

fn source() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 4_000))
}

fn geometry(first: u32) -> Geometry {
    Geometry::new(10, 256, Seq(first)).expect("four packets")
}

/// A heartbeat of a content of unknown length, of which 10 packets were sent.
fn heartbeat<'n>() -> sync::Repr<'n> {
    sync::Repr {
        session: SessionId(5),
        silence_ms: 500,
        geometry: geometry(0),
        oldest: 0,
        next: 10,
        length: None,
        digested: Some(2),
        digest: None,
        reports: false,
        closing: false,
        stalled: false,
        stream: true,
        parity: false,
        progress_blocks: 0,
        report_window_us: 0,
        answer: None,
        name: b"name",
    }
}

/// Its end: 9 packets, of which the last one is short.
fn end<'n>() -> sync::Repr<'n> {
    sync::Repr {
        next: 9,
        length: Some(2 * 1_024 + 1),
        digest: Some(DIGEST),
        ..heartbeat()
    }
}

fn session(repr: &sync::Repr<'_>) -> Session {
    let mut session = Session::new(source(), repr);
    session.learn(repr);
    session
}

#[test]
fn a_session_is_what_its_first_heartbeat_says() {
    let session = session(&heartbeat());
    assert_eq!((session.id(), session.source()), (SessionId(5), source()));
    assert_eq!(
        (session.name(), session.geometry()),
        (&b"name"[..], geometry(0))
    );
    assert_eq!(
        (session.length(), session.total(), session.blocks()),
        (None, None, None)
    );
    assert!(session.has_digests());
    assert_eq!((session.digested(), session.digest()), (2, None));
    assert!(session.is_from(&source()));
    let mut other = source();
    other.set_port(4_001);
    assert!(!session.is_from(&other));
    let plain = sync::Repr {
        digested: None,
        ..heartbeat()
    };
    assert!(!self::session(&plain).has_digests());
}

#[test]
fn the_end_is_learned_once() {
    let mut session = session(&heartbeat());
    assert_eq!(session.mask(2), 0b1111);
    assert_eq!(session.place(2), (2_048, 1_024));
    session.learn(&end());
    assert_eq!((session.length(), session.total()), (Some(2_049), Some(9)));
    assert_eq!(
        (session.blocks(), session.digest()),
        (Some(3), Some(DIGEST))
    );
    assert_eq!(session.mask(2), 0b0001);
    assert_eq!(session.place(2), (2_048, 1));
    session.learn(&heartbeat());
    assert_eq!(
        (session.length(), session.digest()),
        (Some(2_049), Some(DIGEST))
    );
    // Digests that were sent stay so.
    let fewer = sync::Repr {
        digested: Some(1),
        ..end()
    };
    session.learn(&fewer);
    assert_eq!(session.digested(), 2);
    let more = sync::Repr {
        digested: Some(3),
        ..end()
    };
    session.learn(&more);
    assert_eq!(session.digested(), 3);
}

#[test]
fn a_heartbeat_contradicts_what_was_announced() {
    let open = session(&heartbeat());
    assert!(!open.differs(&heartbeat()));
    assert!(!open.differs(&end()), "it adds to it");
    let ended = session(&end());
    assert!(!ended.differs(&end()));
    assert!(!ended.differs(&sync::Repr { next: 3, ..end() }));
    // One from before the end was known comes late.
    let late = sync::Repr {
        next: 9,
        ..heartbeat()
    };
    assert!(!ended.differs(&late));
    let others = [
        sync::Repr {
            session: SessionId(6),
            ..end()
        },
        sync::Repr {
            geometry: geometry(1),
            ..end()
        },
        sync::Repr {
            digested: None,
            ..end()
        },
        sync::Repr {
            length: Some(2_050),
            ..end()
        },
        sync::Repr {
            digest: Some([8; 32]),
            ..end()
        },
        sync::Repr { next: 10, ..end() },
        heartbeat(),
    ];
    for other in others {
        assert!(ended.differs(&other), "{other:?}");
    }
}

#[test]
fn a_content_is_known_by_its_digest() {
    let ended = session(&end());
    let elsewhere = sync::Repr {
        session: SessionId(6),
        ..end()
    };
    assert!(ended.is_of_content(&elsewhere) && ended.is_cut_like(&elsewhere));
    let others = [
        sync::Repr {
            digest: Some([8; 32]),
            ..end()
        },
        sync::Repr {
            digest: None,
            ..end()
        },
        sync::Repr {
            length: Some(2_050),
            ..end()
        },
        sync::Repr {
            geometry: geometry(1),
            ..end()
        },
    ];
    for other in others {
        assert!(!ended.is_of_content(&other), "{other:?}");
    }
    // Nothing tells that two contents of unknown digest are one.
    let unknown = sync::Repr {
        digest: None,
        ..end()
    };
    assert!(!session(&unknown).is_of_content(&unknown));
    let cut = sync::Repr {
        geometry: geometry(1),
        ..end()
    };
    assert!(!ended.is_cut_like(&cut));
    assert!(!ended.is_cut_like(&sync::Repr {
        digested: None,
        ..end()
    }));
}

#[test]
fn a_contradiction_stands_until_the_source_has_spoken() {
    let mut session = session(&heartbeat());
    assert!(!session.is_confirmed() && !session.is_contradicted());
    session.contradict();
    assert!(session.is_contradicted());
    session.learn(&heartbeat());
    assert!(session.is_contradicted());
    assert!(!session.believe(&heartbeat()), "nothing is new");
    assert!(session.is_confirmed() && !session.is_contradicted());
    session.learn(&heartbeat());
    assert!(session.is_confirmed());
    // What is announced later is not confirmed by that.
    session.learn(&end());
    assert!(!session.is_confirmed() && !session.is_contradicted());
    assert!(!session.believe(&end()));
    session.learn(&end());
    assert!(session.is_confirmed());
    // The digest alone may come later.
    let unnamed = sync::Repr {
        digest: None,
        ..end()
    };
    let mut session = self::session(&unnamed);
    session.believe(&unnamed);
    session.learn(&end());
    assert!(!session.is_confirmed());
    // What a contradiction added stays contradicted.
    let mut session = self::session(&heartbeat());
    session.contradict();
    session.learn(&end());
    assert!(session.is_contradicted());
}

#[test]
fn the_source_is_believed_whatever_was_announced() {
    let mut session = session(&end());
    let other = sync::Repr {
        length: Some(5_000),
        digested: Some(1),
        closing: true,
        ..end()
    };
    assert!(session.believe(&other));
    assert_eq!((session.length(), session.total()), (Some(5_000), Some(20)));
    assert_eq!(session.digested(), 1);
    assert!(session.is_closing());
    assert!(session.believe(&sync::Repr {
        digest: None,
        ..other
    }));
    assert_eq!(session.digest(), None);
    assert!(session.believe(&heartbeat()));
    assert_eq!((session.length(), session.total()), (None, None));
}

#[test]
fn a_source_is_waited_for_as_long_as_it_may_be_silent() {
    let timeout = Duration::from_secs(10);
    let grace = |silence_ms, closing| {
        let repr = sync::Repr {
            silence_ms,
            closing,
            ..heartbeat()
        };
        session(&repr).grace(timeout)
    };
    assert_eq!(grace(3_333, false), timeout);
    assert_eq!(grace(4_000, false), Duration::from_secs(12));
    assert_eq!(grace(4_000, true), Duration::from_secs(2));
}

#[test]
fn reports_are_spread_and_stepped_as_the_source_says() {
    let repr = sync::Repr {
        reports: true,
        progress_blocks: 8,
        report_window_us: 250_000,
        ..heartbeat()
    };
    let mut session = session(&repr);
    assert!(session.wants_reports());
    assert_eq!(session.report_step(), Some(8));
    assert_eq!(session.report_window(), Duration::from_millis(250));
    session.learn(&sync::Repr {
        progress_blocks: 0,
        ..repr
    });
    assert_eq!(session.report_step(), None);
    session.learn(&sync::Repr {
        reports: false,
        ..repr
    });
    assert_eq!(session.report_step(), None);
    assert!(!session.wants_reports());
    session.learn(&sync::Repr {
        report_window_us: u32::MAX,
        ..repr
    });
    assert_eq!(session.report_window(), Duration::from_secs(60));
}

#[test]
fn a_source_that_was_started_again_is_followed_and_told_again() {
    let repr = sync::Repr {
        reports: true,
        closing: true,
        ..end()
    };
    let mut session = session(&repr);
    let mut elsewhere = source();
    elsewhere.set_port(4_001);
    session.follow(SessionId(6), elsewhere);
    assert_eq!((session.id(), session.source()), (SessionId(6), elsewhere));
    assert!(!session.is_closing() && !session.wants_reports());
    assert_eq!(session.digest(), Some(DIGEST));
}

#[test]
fn without_digests_packets_before_the_end_is_known_are_not_padded() {
    let plain = sync::Repr {
        digested: None,
        next: 7,
        ..heartbeat()
    };
    let mut session = session(&plain);
    assert!(session.is_end_open());
    assert!(session.is_unpadded(0), "packets 0 to 3");
    assert!(!session.is_unpadded(1), "packet 7 was not sent");
    session.learn(&sync::Repr { next: 8, ..plain });
    assert!(session.is_unpadded(1) && !session.is_unpadded(2));
    session.learn(&sync::Repr { next: 4, ..plain });
    assert!(session.is_unpadded(1), "a heartbeat that is late");
    session.learn(&sync::Repr {
        next: 12,
        length: Some(3 * 1_024 - 1),
        ..plain
    });
    assert!(!session.is_end_open() && !session.is_unpadded(2));
    assert!(!self::session(&heartbeat()).is_end_open(), "digests tell");
}
