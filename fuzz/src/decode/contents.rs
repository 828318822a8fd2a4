//! Numbered frames of a session, in pieces, and the contents in them. Asserts that contents begin and end in turn, that what is
//! called complete has the digest of its END, however the session is cut, and that memory is bounded.

#[allow(dead_code, reason = "taken in as a file: readers use a part of it")]
#[path = "../../../crates/bfed-client/src/frames.rs"]
mod frames;

#[allow(dead_code, reason = "taken in as a file: readers use a part of it")]
#[path = "../../../crates/bfed-client/src/contents.rs"]
mod reader;

use reader::{Numbering, Reader, Step};

/// What a reader says of the session in pieces of that many bytes: without the places where data is cut.
fn read(bytes: &[u8], piece: usize) -> Vec<(bool, Vec<u8>, bool)> {
    let mut reader = Reader::new(true);
    let mut contents = Vec::new();
    let mut current: Option<Vec<u8>> = None;
    for piece in bytes.chunks(piece) {
        reader.push(piece);
        while let Some(step) = reader.next() {
            match step {
                Step::Begin => {
                    assert!(current.is_none(), "begins within another");
                    current = Some(Vec::new());
                }
                Step::Data(data) => {
                    let current = current.as_mut().expect("data of a content");
                    current.extend_from_slice(&data);
                }
                Step::End => {
                    let whole = current.take().expect("the end of a content");
                    contents.push((true, whole, true));
                }
                Step::Abort(_) => {
                    let part = current.take().expect("a content that is aborted");
                    contents.push((true, part, false));
                }
            }
        }
        assert_eq!(reader.is_inside(), current.is_some());
    }
    if let Some(rest) = current {
        contents.push((false, rest, false));
    }
    contents
}

/// Reads the session whole and in pieces. The first byte is the length of the pieces; where the second is odd, frames are
/// numbered here from the rest, so that whole contents are common.
pub fn session(bytes: &[u8]) {
    let [piece, is_made, rest @ ..] = bytes else {
        return;
    };
    let mut session = rest.to_vec();
    if is_made % 2 == 1 {
        let mut numbering = Numbering::default();
        let (mut made, mut frame) = (Vec::new(), Vec::new());
        for payload in rest.chunks(usize::from(*is_made)) {
            numbering.data(payload, &mut frame);
            made.extend_from_slice(&frame);
        }
        numbering.end(&mut frame);
        made.extend_from_slice(&frame);
        let contents = read(&made, usize::from(*piece) + 1);
        assert_eq!(contents, [(true, rest.to_vec(), true)]);
        session.extend_from_slice(&made);
    }
    let in_pieces = read(&session, usize::from(*piece) + 1);
    assert_eq!(in_pieces, read(&session, session.len().max(1)));
}

/// A content with its end, one that the source gave up, gaps and noise.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut numbering = Numbering::default();
    let mut frames = Vec::new();
    for payload in [&b"one"[..], b"two", b"three"] {
        let mut frame = Vec::new();
        numbering.data(payload, &mut frame);
        frames.push(frame);
    }
    let (mut end, mut aborted) = (Vec::new(), Vec::new());
    numbering.end(&mut end);
    numbering.aborted(&mut aborted);
    let whole = [frames.concat(), end.clone(), end.clone()].concat();
    let sessions = [
        whole.clone(),
        [frames[0].clone(), frames[2].clone(), end.clone()].concat(),
        [frames[0].clone(), aborted, frames.concat(), end.clone()].concat(),
        [frames[1..].concat(), b"bFnoise".to_vec(), whole].concat(),
        end,
    ];
    let with = |head: [u8; 2]| {
        let sessions = sessions.iter();
        sessions.map(move |session| [&head[..], session].concat())
    };
    with([0, 0]).chain(with([16, 7])).collect()
}
