//! A source that sends four layers each tenth of a second, and drops what is stale when the other
//! side is slow: the base layer arrives whole, the others as far as there is room.
//!
//! `cargo run -p ldc-ring --example layers`

use ldc_ring::{Attributes, Shape, channel};

fn main() {
    let (mut producer, mut consumer) = channel(Shape::new(8, 1024).expect("a sensible shape"));
    let mut received = [0; 4];
    for tick in 0..20u64 {
        // What is left of the last tick is stale: the enhancement layers first, the base layer last.
        for layer in (0..4).rev() {
            producer.drop((tick * 4 + layer).wrapping_sub(4));
        }
        for layer in 0..4 {
            let frame = [layer as u8; 1000];
            producer
                .send(tick * 4 + layer, &frame, Attributes::default())
                .expect("room");
        }
        // A link that carries five messages in two ticks.
        for _ in 0..2 + tick % 2 {
            if let Some(message) = consumer.claim(None).expect("a sane producer") {
                received[(message.user_seq() % 4) as usize] += 1;
                consumer.complete(message);
            }
        }
        // The consumer passes over what was dropped when it next looks.
    }
    for (layer, count) in received.iter().enumerate() {
        println!("layer {layer}: {count:2} of 20 {}", "#".repeat(*count));
    }
}
