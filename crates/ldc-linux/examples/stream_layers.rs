//! Streams a file over TCP as eight layers of 128 kbit/s. Each second sends all layers, the base layer first, and
//! cancels at its end the enhancement layers that have not left (LDC chapter 5).
//!
//! `cargo run -p ldc-linux --example stream_layers -- HOST:PORT FILE`, to `nc -l PORT`

use std::{env, error::Error, fs, net::TcpStream, thread::sleep, time::Duration};

use ldc_linux::{Attributes, Shape, tcp};

const LAYERS: usize = 8;
const LAYER_BYTES: usize = 128 * 1024 / 8;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let socket = TcpStream::connect(args.next().ok_or("where to? HOST:PORT FILE")?)?;
    let file = fs::read(args.next().ok_or("which file? HOST:PORT FILE")?)?;
    let shape = Shape::new(4 * LAYERS as u32, LAYER_BYTES as u32)?;
    let mut ldc = tcp::init(socket, shape, tcp::Config::default())?;
    for (second, window) in file.chunks(LAYERS * LAYER_BYTES).enumerate() {
        let seq = |layer| (second * LAYERS + layer) as u64;
        for (layer, bytes) in window.chunks(LAYER_BYTES).enumerate() {
            // If the ring is full of base layers, this layer is lost.
            let _ = ldc.send(seq(layer), bytes, Attributes::default());
            ldc.notify();
            sleep(Duration::from_secs(1) / LAYERS as u32);
        }
        let cancelled: u32 = (1..LAYERS)
            .rev()
            .map(|layer| ldc.cancel(seq(layer)).changed)
            .sum();
        println!("second {second}: {cancelled} of {LAYERS} layers cancelled");
    }
    ldc.finish()?;
    Ok(())
}
