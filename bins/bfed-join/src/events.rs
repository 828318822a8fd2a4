//! The events of `--json`; `--help` lists them.

use cli::events::Events;
use serde::Serialize;

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event<'a> {
    Cost {
        mediator: String,
        cost: Option<u32>,
    },
    Asking {
        mediator: String,
    },
    Joined {
        mediator: String,
        addresses: Vec<String>,
        lifetime_s: u16,
    },
    Redirected {
        from: String,
        to: String,
        gateway: String,
    },
    Refused {
        reason: &'a str,
        retry_after_s: Option<f64>,
    },
    Progress {
        seconds: f64,
        bytes: u64,
        frames: u64,
        lost: u64,
    },
    End(Box<End<'a>>),
}

#[derive(Debug, Serialize)]
pub(crate) struct End<'a> {
    pub(crate) result: &'a str,
    pub(crate) exit_code: u8,
    pub(crate) message: &'a str,
    pub(crate) seconds: f64,
    pub(crate) bytes: u64,
    pub(crate) digest: String,
    pub(crate) frames: u64,
    pub(crate) lost: u64,
    pub(crate) late: u64,
    pub(crate) skipped_bytes: u64,
    pub(crate) datagrams: u64,
    pub(crate) requests: u64,
    pub(crate) damped: u64,
    pub(crate) moved: u64,
}

/// Prints an event of the session. Interruptions and gaps are not printed.
pub(crate) fn emit(events: &Events, event: bfed_client::Event) {
    use bfed_client::Event as Input;
    match event {
        Input::Cost { mediator, cost } => events.emit(&Event::Cost {
            mediator: mediator.to_string(),
            cost,
        }),
        Input::Asking { mediator } => events.emit(&Event::Asking {
            mediator: mediator.to_string(),
        }),
        Input::Joined {
            mediator,
            place,
            lifetime_s,
        } => events.emit(&Event::Joined {
            mediator: mediator.to_string(),
            addresses: vec![place.to_string()],
            lifetime_s,
        }),
        Input::Redirected { from, to, gateway } => events.emit(&Event::Redirected {
            from: from.to_string(),
            to,
            gateway: gateway.to_string(),
        }),
        Input::Refused {
            reason,
            retry_after,
        } => events.emit(&Event::Refused {
            reason: reason.name(),
            retry_after_s: retry_after.map(|pause| pause.as_secs_f64()),
        }),
        _ => {}
    }
}
