//! Rates of mobile uplinks, second by second, from a public measurement.
//!
//! They are means over a second of the uplinks that K. Winstein, A. Sivaraman and H. Balakrishnan measured by car for
//! "Stochastic Forecasts Achieve High Throughput and Low Delay over Cellular Networks", USENIX NSDI 2013. The measurements
//! themselves, one line per packet of 1,500 bytes, are distributed with mahimahi
//! (<https://github.com/ravinet/mahimahi>, folder `traces`). A second in which nothing passed has the rate 0.

/// The rates of a link in time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trace {
    pub(super) name: &'static str,
    /// 1,000 bits a second, second by second; it begins again at its end.
    kbps: [u16; 60],
}

/// The slowest rate of the emulator: one packet in twelve seconds. 0 would mean no limit.
const LEAST_BPS: u64 = 1_000;

impl Trace {
    /// Returns the rate in a second of a run, bits a second.
    pub(super) fn rate_bps(&self, second: u64) -> u64 {
        let at = (second % self.kbps.len() as u64) as usize;
        (u64::from(self.kbps[at]) * 1_000).max(LEAST_BPS)
    }
}

/// AT&T, LTE: `ATT-LTE-driving.up`, from its second 1 on.
pub(super) static ATT_LTE: Trace = Trace {
    name: "AT&T LTE uplink",
    kbps: [
        984, 1_116, 1_044, 1_140, 1_164, 1_128, 1_092, 1_152, 1_128, 1_128, 1_152, 1_224, 1_116,
        1_176, 1_080, 1_128, 1_080, 1_140, 1_164, 1_140, 1_092, 1_116, 384, 12, 12, 12, 12, 876,
        1_128, 972, 1_164, 1_116, 1_128, 1_032, 996, 1_008, 1_020, 1_200, 1_152, 1_068, 1_056,
        1_176, 1_044, 984, 648, 252, 828, 1_092, 1_092, 876, 1_140, 1_176, 1_020, 876, 756, 144,
        24, 888, 1_092, 1_116,
    ],
};

/// Verizon, EV-DO: `Verizon-EVDO-driving.up`, from its second 1 on.
pub(super) static VERIZON_EVDO: Trace = Trace {
    name: "Verizon EV-DO uplink",
    kbps: [
        396, 1_368, 1_392, 1_272, 1_092, 876, 972, 984, 1_020, 960, 768, 852, 972, 960, 960, 864,
        792, 972, 960, 948, 948, 756, 960, 936, 948, 540, 672, 372, 324, 252, 672, 744, 912, 516,
        756, 660, 564, 912, 912, 1_044, 1_056, 780, 1_128, 1_116, 1_224, 1_080, 876, 1_128, 1_020,
        1_032, 996, 780, 912, 1_068, 1_020, 1_020, 732, 228, 600, 144,
    ],
};
