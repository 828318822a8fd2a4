//! Statistics of a receiver: what arrived, what arrived in time, and what can be played.

use std::collections::VecDeque;
use std::time::Duration;

use crate::ages::Ages;
use crate::events::{LayerEnd, Percentiles};
use crate::wire::{Data, Hello};

/// One layer of the current window.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    bytes: u64,
    of: u64,
    /// All bytes so far arrived in time.
    on_time: bool,
}

/// The statistics of a stream, in bounded memory: a few windows are open at a time, one of a stream that keeps its order.
/// Messages of older windows count as bytes and as out of order.
pub(crate) struct Account {
    window_us: i64,
    start_us: i64,
    playout_us: i64,
    /// The clocks agree; otherwise the fastest message has age 0.
    shared: bool,
    pub(crate) layers: Vec<LayerEnd>,
    /// The open windows, by layer, at most `depth`. The first is `window`.
    open: VecDeque<Vec<Open>>,
    depth: usize,
    /// Windows closed, including those of which nothing arrived.
    window: u32,
    playable: u64,
    /// Sum over all closed windows of the layers on time without a gap from the base layer up.
    usable: u64,
    ages: Ages,
    base_ages: Ages,
    /// Smallest difference between the clocks seen so far.
    offset_us: Option<i64>,
    pub(crate) out_of_order: u64,
}

/// The result of the statistics.
pub(crate) struct Summary {
    pub(crate) windows: u64,
    pub(crate) playable_s: f64,
    pub(crate) usable_layers: f64,
    pub(crate) age_ms: Option<Percentiles>,
    pub(crate) base_age_ms: Option<Percentiles>,
}

fn signed(us: u64) -> i64 {
    i64::try_from(us).unwrap_or(i64::MAX)
}

impl Account {
    /// Returns empty statistics; messages may overtake each other by less than `depth` windows.
    pub(crate) fn new(hello: &Hello, playout: Duration, shared: bool, depth: usize) -> Account {
        let count = usize::from(hello.layers);
        Account {
            window_us: hello.window_us.into(),
            start_us: signed(hello.start_us),
            playout_us: crate::clock::micros(playout.as_micros()),
            shared,
            layers: vec![LayerEnd::default(); count],
            open: VecDeque::new(),
            depth: depth.max(1),
            window: 0,
            playable: 0,
            usable: 0,
            ages: Ages::default(),
            base_ages: Ages::default(),
            offset_us: shared.then_some(0),
            out_of_order: 0,
        }
    }

    /// Returns the bytes of all layers.
    pub(crate) fn bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.bytes).sum()
    }

    /// Returns the length of the windows closed so far whose base layer was on time, seconds.
    pub(crate) fn playable_s(&self) -> f64 {
        self.playable as f64 * self.window_us as f64 / 1e6
    }

    /// Returns the time since the start until which the layers of a window are in time.
    fn in_time_until(&self, window: u32) -> i64 {
        let end = (i64::from(window) + 1).saturating_mul(self.window_us);
        end.saturating_add(self.playout_us)
    }

    /// Adds a complete message. The parser has checked that its layer exists.
    pub(crate) fn add(&mut self, data: &Data, now_us: i64) {
        let since = now_us.saturating_sub(self.start_us);
        let age = since.saturating_sub(signed(data.due_us));
        if !self.shared {
            let least = self.offset_us.map_or(age, |least| least.min(age));
            self.offset_us = Some(least);
        }
        self.ages.add(age);
        if data.layer == 0 {
            self.base_ages.add(age);
        }
        let at = since.saturating_sub(self.offset_us.unwrap_or(0));
        let on_time = at <= self.in_time_until(data.window);
        let len = u64::from(data.len);
        let Some(layer) = self.layers.get_mut(usize::from(data.layer)) else {
            return;
        };
        layer.bytes += len;
        layer.messages += 1;
        if on_time {
            layer.on_time_bytes += len;
        }
        if data.window < self.window {
            self.out_of_order += 1;
            return;
        }
        let open = &mut self.open_window(data.window)[usize::from(data.layer)];
        open.on_time = on_time && (open.on_time || open.bytes == 0);
        open.bytes += len;
        open.of = data.of.into();
    }

    /// Returns an open window, or a newer one, for which the oldest ones are closed.
    fn open_window(&mut self, window: u32) -> &mut Vec<Open> {
        let last = u32::try_from(self.depth - 1).unwrap_or(u32::MAX);
        let first = self.window.max(window.saturating_sub(last));
        self.close_before(first);
        let at = (window - self.window) as usize;
        while self.open.len() <= at {
            self.open
                .push_back(vec![Open::default(); self.layers.len()]);
        }
        &mut self.open[at]
    }

    /// Closes all windows before a window. Of those that are not open nothing arrived.
    fn close_before(&mut self, first: u32) {
        while self.window < first {
            let Some(window) = self.open.pop_front() else {
                self.window = first;
                return;
            };
            self.window += 1;
            self.close(&window);
        }
    }

    /// Counts a window that is closed.
    fn close(&mut self, window: &[Open]) {
        let mut gap = false;
        for (at, (open, layer)) in window.iter().zip(&mut self.layers).enumerate() {
            let complete = open.of > 0 && open.bytes >= open.of;
            let on_time = complete && open.on_time;
            layer.windows_complete += u64::from(complete);
            layer.windows_on_time += u64::from(on_time);
            gap |= !on_time;
            if !gap {
                self.usable += 1;
                self.playable += u64::from(at == 0);
            }
        }
    }

    /// Returns the result: with `windows`, the number that the end of the stream states; otherwise for the windows
    /// whose time is over at `now_us`.
    pub(crate) fn finish(&mut self, windows: Option<u32>, now_us: i64) -> Summary {
        let since = now_us
            .saturating_sub(self.start_us)
            .saturating_sub(self.offset_us.unwrap_or(0));
        let over = since.saturating_sub(self.playout_us) / self.window_us.max(1);
        let over = windows.map_or(u64::try_from(over).unwrap_or(0), u64::from);
        // A stated number of windows below the number seen is ignored.
        let behind = u32::try_from(self.open.len().saturating_sub(1)).unwrap_or(0);
        let seen = self.window.saturating_add(behind);
        self.close_before(u32::try_from(over).unwrap_or(u32::MAX).max(seen));
        let windows = over.max(self.window.into());
        let offset = self.offset_us.unwrap_or(0);
        Summary {
            windows,
            playable_s: self.playable_s(),
            usable_layers: self.usable as f64 / windows.max(1) as f64,
            age_ms: Percentiles::of(&self.ages, offset),
            base_age_ms: Percentiles::of(&self.base_ages, offset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000;

    fn account(shared: bool) -> Account {
        let hello = Hello {
            layers: 2,
            generated: false,
            window_us: S as u32,
            max_payload: 100,
            layer_rate_bps: 800,
            start_us: 10 * S as u64,
        };
        Account::new(&hello, Duration::from_secs(1), shared, 1)
    }

    fn data(window: u32, layer: u8, len: u32) -> Data {
        Data {
            layer,
            len,
            window,
            of: 100,
            offset: 0,
            due_us: u64::from(window) * S as u64,
        }
    }

    #[test]
    fn a_window_is_playable_as_far_as_its_layers_are_whole_and_in_time() {
        let mut account = account(true);
        // Window 0: both layers complete. Window 1: base layer complete, a part of the other. Window 2: nothing. Window
        // 3: only the enhancement layer. Window 4: base layer late.
        for (window, layer, len, at) in [
            (0, 0, 60, 10),
            (0, 0, 40, 11),
            (0, 1, 100, 11),
            (1, 0, 100, 12),
            (1, 1, 99, 12),
            (3, 1, 100, 14),
            (4, 0, 50, 15),
            (4, 0, 50, 17),
        ] {
            account.add(&data(window, layer, len), at * S);
        }
        let summary = account.finish(Some(6), 20 * S);
        assert_eq!(summary.windows, 6);
        assert_eq!(summary.playable_s, 2.0);
        assert_eq!(summary.usable_layers, 3.0 / 6.0);
        let base = account.layers[0];
        assert_eq!(
            (base.bytes, base.on_time_bytes, base.messages),
            (300, 250, 5)
        );
        assert_eq!((base.windows_complete, base.windows_on_time), (3, 2));
        assert_eq!(account.layers[1].windows_on_time, 2);
        let ages = summary.base_age_ms.unwrap();
        assert_eq!((ages.p50, ages.max), (1_000.0, 3_000.0));
    }

    #[test]
    fn without_a_common_clock_the_fastest_message_counts_as_new() {
        let mut account = account(false);
        // The receiver's clock is an hour ahead.
        for (window, ms) in [(0, 300), (1, 100), (2, 5_000)] {
            let at = (3_610 + i64::from(window)) * S + ms * 1_000;
            account.add(&data(window, 0, 100), at);
        }
        let summary = account.finish(Some(3), 3_620 * S);
        let ages = summary.age_ms.unwrap();
        assert_eq!((ages.p50, ages.max), (200.0, 4_900.0));
        assert_eq!(summary.playable_s, 2.0);
    }

    #[test]
    fn windows_that_overtake_each_other_are_counted_as_far_as_the_depth_allows() {
        let hello = account(true);
        let mut account = Account { depth: 3, ..hello };
        // The second half of window 0 comes after windows 1 and 2 have begun; that of window 1 comes after window 4 has
        // closed it.
        for (window, len) in [(0, 50), (1, 50), (2, 100), (0, 50), (4, 100), (1, 50)] {
            account.add(&data(window, 0, len), 11 * S);
        }
        let summary = account.finish(Some(5), 20 * S);
        assert_eq!(account.out_of_order, 1);
        assert_eq!(summary.windows, 5);
        assert_eq!(account.layers[0].windows_complete, 3);
        assert_eq!(account.layers[0].bytes, 400);
    }

    #[test]
    fn a_stop_in_the_middle_counts_only_windows_whose_time_is_over() {
        let mut account = account(true);
        account.add(&data(0, 0, 100), 11 * S);
        account.add(&data(1, 0, 50), 11 * S + 1);
        // 12.5: window 0 was in time until 12, window 1 is until 13.
        let summary = account.finish(None, 12 * S + S / 2);
        assert_eq!((summary.windows, summary.playable_s), (1, 1.0));
    }

    #[test]
    fn what_comes_out_of_order_is_counted_and_completes_nothing() {
        let mut account = account(true);
        account.add(&data(5, 0, 100), 15 * S);
        account.add(&data(2, 0, 100), 15 * S);
        account.add(&data(u32::MAX, 1, 1), i64::MAX);
        let summary = account.finish(Some(0), i64::MIN);
        assert_eq!(account.out_of_order, 1);
        // Windows 0 to 5, and those up to the far one that is still open.
        assert_eq!(summary.windows, u64::from(u32::MAX));
        assert_eq!(summary.playable_s, 1.0);
    }
}
