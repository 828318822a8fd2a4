//! The tables of the fast path as BPF maps. The router fills them by these names.

use core::intrinsics::{self, AtomicOrdering};
use core::net::Ipv4Addr;
use core::ops::AddAssign as _;

use aya_ebpf::bindings::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC, xdp_action};
use aya_ebpf::macros::map;
use aya_ebpf::maps::lpm_trie::Key as Prefix;
use aya_ebpf::maps::{Array, DevMap, HashMap, LpmTrie, PerCpuArray};
use lms_proto::fast_path::{
    Changed, Port, PortCounters, Record, Refusal, Settings, Tables, Whose, Word, Words,
};
use lms_proto::{Iface, Key};

/// Tries to change a word before the packet is given up.
const TRIES: usize = 8;
/// The numbers of the words of all groups.
const ALL_REQUESTS: u32 = 0;
const ALL_DMCASTS: u32 = 1;

// The router sets the sizes of all maps when it loads the program.

/// One record.
#[map]
static SETTINGS: Array<Settings> = Array::with_max_entries(1, 0);
/// By source and group, as on the wire.
#[map]
static RECORDS: HashMap<[u8; 8], Record> = HashMap::with_max_entries(1, BPF_F_NO_PREALLOC);
/// By the slot of a record.
#[map]
static WORDS: Array<Words> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// By interface number.
#[map]
static WRONG_NUMBERS: Array<u64> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// [`ALL_REQUESTS`] and [`ALL_DMCASTS`].
#[map]
static TOTALS: Array<u64> = Array::with_max_entries(2, BPF_F_MMAPABLE);
/// From the kernel's number of an interface to the router's plus 1; 0: not the router's.
#[map]
static NUMBERS: Array<u32> = Array::with_max_entries(1, 0);
/// By interface number.
#[map]
static PORTS: Array<Port> = Array::with_max_entries(1, 0);
/// By interface number.
#[map]
static DEVICES: DevMap = DevMap::with_max_entries(1, 0);
/// From subnets and own addresses to the number of an interface, [`Iface::UNSET`] for what is unclear.
#[map]
static LINKS: LpmTrie<[u8; 4], u32> = LpmTrie::with_max_entries(1, 0);
/// By the number of a [`Refusal`].
#[map]
static DROPS: PerCpuArray<u64> = PerCpuArray::with_max_entries(Refusal::ALL.len() as u32, 0);
/// By interface number.
#[map]
static PORT_COUNTERS: PerCpuArray<PortCounters> = PerCpuArray::with_max_entries(1, 0);

/// The maps.
pub(crate) struct Maps;

impl Tables for Maps {
    #[inline(always)]
    fn settings(&self) -> Option<&Settings> {
        SETTINGS.get(0)
    }

    #[inline(always)]
    fn record(&self, key: &Key<Ipv4Addr>) -> Option<&Record> {
        let [a, b, c, d] = key.source.octets();
        let [e, f, g, h] = key.group.octets();
        // SAFETY: a record that the router removes or changes at this moment may be read in part from before and in part
        // from after, or be another entry's; it stays memory of the map, and any bytes are a record.
        unsafe { RECORDS.get([a, b, c, d, e, f, g, h]) }
    }

    #[inline(always)]
    fn port(&self, iface: Iface) -> Option<&Port> {
        PORTS.get(iface.0.into())
    }

    #[inline(always)]
    fn whose(&self, address: Ipv4Addr) -> Whose {
        match LINKS.get(Prefix::new(32, address.octets())) {
            None => Whose::Elsewhere,
            Some(&number) if number < u32::from(Iface::UNSET.0) => {
                Whose::OnLink(Iface(number as u16))
            }
            Some(_) => Whose::Unclear,
        }
    }

    #[inline(always)]
    fn read(&self, word: Word) -> u64 {
        match place(word) {
            // SAFETY: the place is a word of a map; an aligned load of 8 bytes is one instruction.
            Some(place) => unsafe { place.read_volatile() },
            None => 0,
        }
    }

    #[inline(always)]
    fn change(&self, word: Word, change: impl Fn(u64) -> Option<u64>) -> Changed {
        let Some(place) = place(word) else {
            return Changed::Busy;
        };
        // SAFETY: as above.
        let mut before = unsafe { place.read_volatile() };
        for _ in 0..TRIES {
            let Some(after) = change(before) else {
                return Changed::Refused;
            };
            match compare_exchange(place, before, after) {
                (_, true) => return Changed::Yes,
                (current, false) => before = current,
            }
        }
        Changed::Busy
    }
}

/// Where a word is: aligned, and there as long as the program. Whatever changes it does so atomically.
#[inline(always)]
fn place(word: Word) -> Option<*mut u64> {
    // SAFETY: fields of the values of maps.
    unsafe {
        Some(match word {
            Word::Requests(slot) => &raw mut (*WORDS.get_ptr_mut(slot)?).requests,
            Word::Dmcasts(slot) => &raw mut (*WORDS.get_ptr_mut(slot)?).dmcasts,
            Word::Credit(slot) => &raw mut (*WORDS.get_ptr_mut(slot)?).credit,
            Word::WrongNumbers(iface) => WRONG_NUMBERS.get_ptr_mut(iface.0.into())?,
            Word::AllRequests => TOTALS.get_ptr_mut(ALL_REQUESTS)?,
            Word::AllDmcasts => TOTALS.get_ptr_mut(ALL_DMCASTS)?,
        })
    }
}

/// The value before, and whether it was the expected one and has been replaced. The core library has none for this target,
/// whose oldest processors have no such instruction.
#[inline(always)]
fn compare_exchange(place: *mut u64, expected: u64, new: u64) -> (u64, bool) {
    // SAFETY: a place of `place`.
    unsafe {
        intrinsics::atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(
            place, expected, new,
        )
    }
}

/// The router's number of an interface.
#[inline(always)]
pub(crate) fn port_of(index: u32) -> Option<Iface> {
    let number = NUMBERS.get(index)?.checked_sub(1)?;
    Some(Iface(number as u16))
}

/// Link address of an interface.
#[inline(always)]
pub(crate) fn link_of(iface: Iface) -> Option<[u8; 6]> {
    Some(PORTS.get(iface.0.into())?.link)
}

/// Sends the frame on an interface.
#[inline(always)]
pub(crate) fn redirect(iface: Iface) -> u32 {
    // An interface that has just gone drops it.
    let action = DEVICES.redirect(iface.0.into(), xdp_action::XDP_DROP.into());
    action.unwrap_or_else(|action| action)
}

#[inline(always)]
pub(crate) fn count(iface: Iface, add: impl Fn(&mut PortCounters)) {
    if let Some(counters) = PORT_COUNTERS.get_ptr_mut(iface.0.into()) {
        // SAFETY: a processor's own, and nothing interrupts the program on it.
        add(unsafe { &mut *counters });
    }
}

#[inline(always)]
pub(crate) fn count_drop(refusal: Refusal) {
    if let Some(count) = DROPS.get_ptr_mut(refusal as u32) {
        // SAFETY: as above.
        unsafe { (*count).add_assign(1) };
    }
}
