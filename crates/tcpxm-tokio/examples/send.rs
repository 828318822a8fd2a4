//! Sends standard input to several receivers at once, from a tokio program:
//!
//! ```text
//! cargo run -p tcpxm-tokio --example send -- listen 127.0.0.2:5000 >one &
//! cargo run -p tcpxm-tokio --example send -- listen 127.0.0.3:5000 >two &
//! cargo run -p tcpxm-tokio --example send -- 127.0.0.1 5000 127.0.0.2 127.0.0.3 <file
//! ```

use std::io;
use std::net::{IpAddr, SocketAddr};

use tcpxm_tokio::{Config, GroupConfig, XmEndpoint};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn usage() -> io::Error {
    io::Error::other("send OWN-ADDRESS PORT RECEIVER..., or send listen ADDRESS:PORT")
}

async fn listen(address: SocketAddr) -> io::Result<()> {
    let endpoint = XmEndpoint::open(&Config::new(address))?;
    let mut stream = endpoint.listen()?.accept().await?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let len = stream.read(&mut buffer).await?;
        if len == 0 {
            break;
        }
        io::Write::write_all(&mut io::stdout(), &buffer[..len])?;
    }
    // A program's sockets end with it: the sender must learn first that everything arrived.
    stream.shutdown().await
}

async fn send(own: IpAddr, port: u16, receivers: Vec<IpAddr>) -> io::Result<()> {
    let endpoint = XmEndpoint::open(&Config::new(SocketAddr::new(own, 0)))?;
    let local = endpoint.local_address();
    let mut group = endpoint.open_group(GroupConfig::new(local, receivers, port))?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let len = io::Read::read(&mut io::stdin(), &mut buffer)?;
        if len == 0 {
            break;
        }
        group.write_all(&buffer[..len]).await?;
    }
    // Ready when every receiver has everything, or has failed.
    group.shutdown().await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["listen", address] => listen(address.parse().map_err(|_| usage())?).await,
        [own, port, ref receivers @ ..] => {
            let parsed: Result<_, _> = receivers.iter().map(|text| text.parse()).collect();
            let own = own.parse().map_err(|_| usage())?;
            let port = port.parse().map_err(|_| usage())?;
            send(own, port, parsed.map_err(|_| usage())?).await
        }
        _ => Err(usage()),
    }
}
