//! The machine: start, stack, and words to the host by semihosting. All that is unsafe is here.
#![allow(unsafe_code)]

use core::arch::asm;
use core::fmt;

/// Semihosting operations (Arm, "Semihosting for AArch32 and AArch64", chapter 7).
const WRITE0: usize = 0x04;
const EXIT: usize = 0x18;
/// Reasons of [`EXIT`]: well, and not.
const APPLICATION_EXIT: usize = 0x2_0026;
const RUN_TIME_ERROR: usize = 0x2_0023;

/// What the stack is filled with before it is used.
const PAINT: u32 = 0xa5a5_a5a5;

unsafe extern "C" {
    static mut _data_start: u32;
    static mut _data_end: u32;
    static _data_load: u32;
    static mut _bss_start: u32;
    static mut _bss_end: u32;
    static _stack_top: u32;
}

/// The vector table behind the stack's top: reset, and fourteen exceptions, none of which is expected.
#[unsafe(link_section = ".vectors")]
#[used]
static VECTORS: [unsafe extern "C" fn() -> !; 15] = {
    let mut vectors: [unsafe extern "C" fn() -> !; 15] = [fault; 15];
    vectors[0] = reset;
    vectors
};

/// Where the processor starts.
#[unsafe(no_mangle)]
unsafe extern "C" fn reset() -> ! {
    // SAFETY: the addresses are the memory map's; nothing else runs yet, and nothing has been
    // placed in this memory. The paint ends below this function's own frame.
    unsafe {
        let mut from = &raw const _data_load;
        let mut to = &raw mut _data_start;
        while to < &raw mut _data_end {
            to.write_volatile(from.read_volatile());
            (from, to) = (from.add(1), to.add(1));
        }
        let mut to = &raw mut _bss_start;
        while to < &raw mut _bss_end {
            to.write_volatile(0);
            to = to.add(1);
        }
        let here: usize;
        asm!("mov {}, sp", out(reg) here, options(nomem, nostack, preserves_flags));
        let end = (here - 64) as *mut u32;
        while to < end {
            to.write_volatile(PAINT);
            to = to.add(1);
        }
    }
    crate::main();
    exit(true)
}

unsafe extern "C" fn fault() -> ! {
    say(format_args!("an exception of the processor"));
    exit(false)
}

/// Bytes of memory that statics take, and the most that the stack has taken so far.
pub(crate) fn memory_used() -> (usize, usize) {
    // SAFETY: reads memory between the end of the statics and the stack's top, all of which exists.
    unsafe {
        let start = &raw const _data_start as usize;
        let end = &raw const _bss_end;
        let top = &raw const _stack_top;
        let mut lowest = end;
        while lowest < top && lowest.read_volatile() == PAINT {
            lowest = lowest.add(1);
        }
        (end as usize - start, top as usize - lowest as usize)
    }
}

fn call(operation: usize, argument: usize) {
    // SAFETY: the host reads the operation's number and its argument, a constant or the address of
    // text that ends with a zero byte and outlives the call.
    unsafe {
        asm!("bkpt 0xab", inlateout("r0") operation => _, in("r1") argument, options(nostack));
    }
}

/// Ends the run; the emulator ends with code 0, or 1.
pub(crate) fn exit(well: bool) -> ! {
    call(
        EXIT,
        if well {
            APPLICATION_EXIT
        } else {
            RUN_TIME_ERROR
        },
    );
    loop {
        core::hint::spin_loop();
    }
}

/// Text on its way to the host.
struct Host;

impl fmt::Write for Host {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut buffer = [0; 64];
        for chunk in text.as_bytes().chunks(buffer.len() - 1) {
            buffer[..chunk.len()].copy_from_slice(chunk);
            buffer[chunk.len()] = 0;
            call(WRITE0, buffer.as_ptr() as usize);
        }
        Ok(())
    }
}

/// Prints a line on the host.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    // The host takes everything.
    let _ = fmt::write(&mut Host, format_args!("{line}\n"));
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    say(format_args!("{info}"));
    exit(false)
}
