//! Streams a file over TCP as eight layers, 128 kbit/s each: every second the base layer first; what has not
//! left when the second is over is dropped, the enhancement layers only (thesis chapter 5).
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
            // A ring that is still full of base layers takes no more: the layer is lost.
            let _ = ldc.send(seq(layer), bytes, Attributes::default());
            ldc.notify();
            sleep(Duration::from_secs(1) / LAYERS as u32);
        }
        let dropped: u32 = (1..LAYERS)
            .rev()
            .map(|layer| ldc.drop(seq(layer)).changed)
            .sum();
        println!("second {second}: {dropped} of {LAYERS} layers dropped");
    }
    ldc.finish()?;
    Ok(())
}
