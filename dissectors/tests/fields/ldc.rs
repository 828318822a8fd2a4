//! Layers of `ldc-stream`.

use ldc_stream::wire::{Header, Hello};

use crate::Fields;
use crate::goldens::{Golden, hex};
use crate::packets::Carrier;

fn hello(bytes: &[u8]) -> Option<Fields> {
    let hello = Hello::parse(bytes.try_into().ok()?).ok()?;
    let mut fields = Fields::of("ldc");
    fields
        .put("magic", "LDCS")
        .put("version", 1)
        .put("layers", hello.layers)
        .flag("generated", hello.generated)
        .put("window_length", hello.window_us)
        .put("longest", hello.max_payload)
        .put("rate", hello.layer_rate_bps)
        .put("start", hello.start_us);
    Some(fields)
}

/// With the widest hello, as the dissector does not look back at it.
fn message(bytes: &[u8]) -> Option<Fields> {
    let widest = Hello {
        layers: 64,
        generated: true,
        window_us: 1,
        max_payload: 1 << 20,
        layer_rate_bps: 0,
        start_us: 0,
    };
    let (head, payload) = bytes.split_first_chunk()?;
    let mut fields = Fields::of("ldc");
    match Header::parse(head, &widest).ok()? {
        Header::Data(data) if data.len as usize == payload.len() => {
            fields
                .put("type", 1)
                .put("layer", data.layer)
                .put("length", data.len)
                .put("window", data.window)
                .put("of", data.of)
                .put("offset", data.offset)
                .put("due", data.due_us)
                .bytes("payload", payload);
        }
        Header::End { windows, offered } if payload.is_empty() => {
            fields
                .put("type", 2)
                .put("windows", windows)
                .put("offered", offered);
        }
        _ => return None,
    }
    Some(fields)
}

pub(crate) fn goldens() -> Vec<Golden> {
    let golden = |name, text, parse| {
        let mut golden = Golden::new(name, hex(text), Carrier::Tcp(5003), parse);
        // What a message is, and how long, says how long the reader waits.
        golden.text = vec![0..4, 4..8];
        golden
    };
    let hello = golden(
        "ldc hello",
        "4c444353 01080100 000f4240 00000578 0000000000020000 0006400001020304",
        hello,
    );
    let mut data = golden(
        "ldc data",
        "01030000 00000556 0000003b 00004000 0000000100002000 000000000389fd98",
        message,
    );
    data.bytes.resize(32 + 1_366, 7);
    data.framing = Some((4, 4, 32));
    data.text.push(32..data.bytes.len());
    let end = golden(
        "ldc end",
        "02000000 00000000 0000003c 00000000 0000000000780000 0000000000000000",
        message,
    );
    vec![hello, data, end]
}
