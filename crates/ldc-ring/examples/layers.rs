//! Sends four layers per tick and cancels stale ones when the consumer is slow: the base layer arrives completely, the
//! other layers as far as the link allows.
//!
//! `cargo run -p ldc-ring --example layers`

use ldc_ring::{Attributes, Shape, channel};

fn main() {
    let (mut producer, mut consumer) = channel(Shape::new(8, 1024).expect("a valid shape"));
    let mut received = [0; 4];
    for tick in 0..20u64 {
        // The remaining messages of the last tick are stale; the base layer is cancelled last.
        for layer in (0..4).rev() {
            producer.cancel((tick * 4 + layer).wrapping_sub(4));
        }
        for layer in 0..4 {
            let frame = [layer as u8; 1000];
            producer
                .send(tick * 4 + layer, &frame, Attributes::default())
                .expect("room");
        }
        // The link carries five messages in two ticks.
        for _ in 0..2 + tick % 2 {
            if let Some(message) = consumer.claim(None).expect("an intact ring") {
                received[(message.user_seq() % 4) as usize] += 1;
                consumer.complete(message);
            }
        }
    }
    for (layer, count) in received.iter().enumerate() {
        println!("layer {layer}: {count:2} of 20 {}", "#".repeat(*count));
    }
}
