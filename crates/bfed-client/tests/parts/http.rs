//! Answers of servers, hostile ones included.

use bfed_client::http::{HttpError, send};
use http_body_util::Full;
use hyper::Method;
use hyper::body::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

/// Status and body of the answer that a server sends in pieces of that size.
async fn read(bytes: &[u8], piece: usize) -> Result<(u16, Vec<u8>), HttpError> {
    let (client, mut server) = duplex(piece);
    let bytes = bytes.to_vec();
    let server = tokio::spawn(async move {
        let mut request = [0; 4096];
        let mut len = 0;
        while !request[..len].ends_with(b"\r\n\r\n") {
            len += server.read(&mut request[len..]).await.unwrap();
        }
        // A client that has seen enough closes the connection.
        let _ = server.write_all(&bytes).await;
    });
    let url = "http://h/".parse().unwrap();
    let read = async {
        let mut answer = send(client, Method::GET, &url, None, Full::<Bytes>::default()).await?;
        let mut body = vec![];
        while let Some(data) = answer.next().await? {
            body.extend_from_slice(&data);
        }
        Ok((answer.status, body))
    };
    let read = read.await;
    server.await.unwrap();
    read
}

#[tokio::test]
async fn answers_in_pieces_of_any_size() {
    let chunked =
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        5\r\nhello\r\n7;x=y\r\n, world\r\n0\r\nA: b\r\n\r\n";
    let length = b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\nhello, world";
    let close = b"HTTP/1.0 200 OK\r\n\r\nhello, world";
    for piece in 1..200 {
        for bytes in [&chunked[..], length, close] {
            let (status, body) = read(bytes, piece).await.unwrap();
            assert_eq!((status, &body[..]), (200, &b"hello, world"[..]), "{piece}");
        }
    }
}

#[tokio::test]
async fn what_is_cut_off_is_known() {
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    for end in 0..chunked.len() {
        let read = read(&chunked[..end], 64).await;
        assert!(matches!(read, Err(HttpError::Truncated)), "{end}: {read:?}");
    }
}

#[tokio::test]
async fn nonsense_is_refused_and_nothing_grows() {
    for bytes in [
        &b"SSH-2.0-x\r\n\r\n"[..],
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-5\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhelloX\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n11111111111111111\r\n",
    ] {
        let read = read(bytes, 7).await;
        assert!(
            matches!(read, Err(HttpError::Malformed)),
            "{bytes:?}: {read:?}"
        );
    }
    let start = |head: &str| [head.as_bytes(), &vec![b'x'; 1 << 20]].concat();
    let endless = start("HTTP/1.1 200 OK\r\nx: ");
    let refused = read(&endless, 1000).await;
    assert!(matches!(refused, Err(HttpError::TooLong)), "{refused:?}");
    let fields = ["HTTP/1.1 200 OK\r\n", &"a: b\r\n".repeat(1000), "\r\n"].concat();
    let refused = read(fields.as_bytes(), 1000).await;
    assert!(matches!(refused, Err(HttpError::TooLong)), "{refused:?}");
    for hostile in [
        start(""),
        start("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
        start("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5;"),
        start("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"),
    ] {
        let refused = read(&hostile, 1000).await;
        assert!(
            matches!(refused, Err(HttpError::Malformed | HttpError::TooLong)),
            "{refused:?}"
        );
    }
}
