//! The disturbances. Transfers of a disturbance wait five seconds for a peer that is silent, less than the longer
//! freezes take and more than the shorter ones.

use super::disturb::{Act, Disturbance, Expected};
use super::world::World;
use crate::prelude::Signal;

/// A success.
const fn done(who: &'static str) -> Expected {
    fails(who, 0, &[])
}

/// An end with this exit code, and these words.
const fn fails(who: &'static str, code: i32, says: &'static [&'static str]) -> Expected {
    Expected {
        who,
        code: Some(code),
        says,
    }
}

/// A daemon that goes on, and these words.
const fn runs(who: &'static str, says: &'static [&'static str]) -> Expected {
    Expected {
        who,
        code: None,
        says,
    }
}

const fn restart(name: &'static str, who: &'static str, signal: Signal) -> Disturbance {
    daemon(name, Act::Restart(who, signal))
}

/// The transfers that run all the time show what comes of it.
const fn daemon(name: &'static str, act: Act) -> Disturbance {
    Disturbance {
        name,
        start: |_| Ok(Vec::new()),
        act,
        expected: &[],
    }
}

const fn freeze(who: &'static str, seconds: u64) -> Act {
    Act::Freeze {
        who,
        after: None,
        seconds,
    }
}

/// Freezes a program after an event of its own.
const fn freeze_after(event: &'static str, who: &'static str, seconds: u64) -> Act {
    freeze_after_of((who, event), who, seconds)
}

/// Freezes a program after an event of another one.
const fn freeze_after_of(
    after: (&'static str, &'static str),
    who: &'static str,
    seconds: u64,
) -> Act {
    Act::Freeze {
        who,
        after: Some(after),
        seconds,
    }
}

/// The sender's event, after which it no longer waits for receivers to join. A receiver that is frozen earlier is late,
/// and not silent.
const STARTED: (&str, &str) = ("lms-send to victim", "started");
const RELAYED_STARTED: (&str, &str) = ("lms-send relayed to victim", "started");

const ROUTER: &str = "lms-router on r2";
const RELAY: &str = "dyram-relay on r2";
const CONTROL: &str = "bfed-gateway on control2.1";
const DATA: &str = "bfed-gateway on data2.1";

/// The lists of lanes.
pub(super) const LANES: [&[Disturbance]; 7] = [
    &ROUTERS,
    &RECEIVERS,
    &RELAYS,
    &RELAYED,
    &COPIES,
    &LAYERS,
    &FEDERATION,
];

const ROUTERS: [Disturbance; 3] = [
    restart("lms-router restarted", ROUTER, Signal::SIGTERM),
    daemon("lms-router frozen for 2 s", freeze(ROUTER, 2)),
    daemon("lms-router frozen for 15 s", freeze(ROUTER, 15)),
];

const RECEIVERS: [Disturbance; 4] = [
    Disturbance {
        name: "lms-recv frozen for 2 s",
        start: World::start_lms_trial,
        act: freeze_after_of(STARTED, "lms-recv victim", 2),
        expected: &[
            done("lms-recv victim"),
            done("lms-recv other"),
            done("lms-send to victim"),
        ],
    },
    Disturbance {
        name: "lms-recv frozen for 12 s",
        start: World::start_lms_trial,
        act: freeze_after_of(STARTED, "lms-recv victim", 12),
        expected: &[
            fails("lms-recv victim", 1, &["the source", "missing bytes"]),
            done("lms-recv other"),
            fails("lms-send to victim", 3, &["{victim}", "went silent"]),
        ],
    },
    Disturbance {
        name: "lms-recv with a full disk",
        start: World::start_lms_trial_to_full_disk,
        act: Act::Nothing,
        expected: &[
            fails(
                "lms-recv victim",
                1,
                &["no space left on the device that holds /run/lab/disk-lms"],
            ),
            done("lms-recv other"),
            fails(
                "lms-send to victim",
                3,
                &["1 of 2 receivers did not confirm"],
            ),
        ],
    },
    Disturbance {
        name: "lms-recv with a disk that was freed",
        start: World::start_lms_trial_to_free_disk,
        act: Act::Nothing,
        expected: &[
            done("lms-recv victim"),
            done("lms-recv other"),
            done("lms-send to victim"),
        ],
    },
];

const RELAYS: [Disturbance; 3] = [
    restart("dyram-relay killed", RELAY, Signal::SIGKILL),
    daemon("dyram-relay frozen for 2 s", freeze(RELAY, 2)),
    daemon("dyram-relay frozen for 15 s", freeze(RELAY, 15)),
];

const RELAYED: [Disturbance; 2] = [
    Disturbance {
        name: "lms-recv of a relay frozen for 2 s",
        start: World::start_relayed_trial,
        act: freeze_after_of(RELAYED_STARTED, "lms-recv relayed victim", 2),
        expected: &[
            done("lms-recv relayed victim"),
            done("lms-recv relayed other"),
            done("lms-send relayed to victim"),
        ],
    },
    Disturbance {
        name: "lms-recv of a relay frozen for 20 s",
        start: World::start_relayed_trial,
        act: freeze_after_of(RELAYED_STARTED, "lms-recv relayed victim", 20),
        expected: &[
            fails("lms-recv relayed victim", 1, &["missing bytes"]),
            done("lms-recv relayed other"),
            fails("lms-send relayed to victim", 3, &["{victim}"]),
        ],
    },
];

const COPIES: [Disturbance; 5] = [
    Disturbance {
        name: "mcpd frozen for 2 s",
        start: World::start_copy_trial,
        act: freeze_after("started", "mcpd 4", 2),
        expected: &[
            done("mcp to victim"),
            runs("mcpd 1", &["copied"]),
            runs("mcpd 4", &["copied"]),
        ],
    },
    Disturbance {
        name: "mcpd frozen for 8 s, and tried again",
        start: World::start_copy_trial,
        act: freeze_after("started", "mcpd 4", 8),
        expected: &[
            fails("mcp to victim", 0, &["\"event\":\"round\""]),
            runs("mcpd 1", &["copied"]),
            runs("mcpd 4", &["failed", "copied"]),
        ],
    },
    Disturbance {
        name: "mcpd frozen for 20 s",
        start: World::start_copy_trial,
        act: freeze_after("started", "mcpd 4", 20),
        expected: &[
            fails("mcp to victim", 3, &["{victim}", "\"will_retry\":false"]),
            runs("mcpd 1", &["copied"]),
            runs("mcpd 4", &["failed"]),
        ],
    },
    Disturbance {
        name: "mcpd with a full disk",
        start: World::start_copy_trial_to_full_disk,
        act: Act::Nothing,
        expected: &[
            fails("mcp to victim", 3, &["no_space", "{victim}"]),
            runs("mcpd 1", &["copied"]),
            runs("mcpd 4", &["no_space"]),
        ],
    },
    Disturbance {
        name: "mcpd with a disk that was freed",
        start: World::start_copy_trial,
        act: Act::Nothing,
        expected: &[
            done("mcp to victim"),
            runs("mcpd 1", &["copied"]),
            runs("mcpd 4", &["copied"]),
        ],
    },
];

const LAYERS: [Disturbance; 5] = [
    Disturbance {
        name: "ldc-stream recv frozen for 2 s",
        start: World::start_layers_trial,
        act: freeze_after("started", "ldc-stream recv victim", 2),
        expected: &[
            done("ldc-stream recv victim"),
            done("ldc-stream send to victim"),
        ],
    },
    Disturbance {
        name: "ldc-stream recv frozen for 7 s, longer than its --idle-timeout",
        start: World::start_layers_trial,
        act: freeze_after("started", "ldc-stream recv victim", 7),
        expected: &[
            done("ldc-stream recv victim"),
            done("ldc-stream send to victim"),
        ],
    },
    Disturbance {
        name: "ldc-stream recv frozen for 20 s, beyond the end",
        start: World::start_layers_trial,
        act: freeze_after("started", "ldc-stream recv victim", 20),
        expected: &[
            // The sender's reset may be lost.
            fails(
                "ldc-stream recv victim",
                1,
                &["\"result\":\"cut\"|\"result\":\"silent\""],
            ),
            fails("ldc-stream send to victim", 3, &["unconfirmed"]),
        ],
    },
    Disturbance {
        name: "ldc-stream recv with a full disk",
        start: World::start_layers_trial_to_full_disk,
        act: Act::Nothing,
        expected: &[
            fails(
                "ldc-stream recv victim",
                1,
                &["/run/lab/disk-layers", "No space left on device"],
            ),
            fails("ldc-stream send to victim", 3, &["receiver_left"]),
        ],
    },
    Disturbance {
        name: "ldc-stream recv with a disk that was freed",
        start: World::start_layers_trial_to_free_disk,
        act: Act::Nothing,
        expected: &[
            done("ldc-stream recv victim"),
            done("ldc-stream send to victim"),
        ],
    },
];

const FEDERATION: [Disturbance; 10] = [
    // SIGTERM would end its sessions: viewers are told that there is no route.
    restart("control node restarted", CONTROL, Signal::SIGUSR2),
    daemon("control node frozen for 2 s", freeze(CONTROL, 2)),
    restart("data node killed", DATA, Signal::SIGKILL),
    daemon("control node frozen for 15 s", freeze(CONTROL, 15)),
    daemon("data node frozen for 2 s", freeze(DATA, 2)),
    daemon("data node frozen for 15 s", freeze(DATA, 15)),
    Disturbance {
        name: "bfed-join recv frozen for 2 s",
        start: World::start_viewer_trial,
        act: freeze_after("joined", "bfed-join victim", 2),
        expected: &[done("bfed-join victim")],
    },
    Disturbance {
        name: "bfed-join recv frozen for 12 s",
        start: World::start_viewer_trial,
        act: freeze_after("joined", "bfed-join victim", 12),
        expected: &[done("bfed-join victim")],
    },
    Disturbance {
        name: "bfed-join recv with a full disk",
        start: World::start_viewer_trial_to_full_disk,
        act: Act::Nothing,
        expected: &[fails(
            "bfed-join victim",
            1,
            &["/run/lab/disk-bfed", "No space left on device"],
        )],
    },
    Disturbance {
        name: "bfed-join recv with a disk that was freed",
        start: World::start_viewer_trial,
        act: Act::Nothing,
        expected: &[done("bfed-join victim")],
    },
];
