//! Requests whose streams end before the client has ended them.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::client::{Running, key, plain};
use crate::http2::{
    DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, RST_STREAM, call, frame, header, message, settings,
};

/// A message with its head.
fn whole(bytes: &[u8]) -> Vec<u8> {
    message(bytes.len() as u32, bytes)
}

/// The head of an upload to a key of one letter, and a chunk.
fn parts_of_upload(key: u8) -> Vec<u8> {
    [whole(&[0x0a, 3, 0x0a, 1, key]), whole(b"\x12\x05begin")].concat()
}

/// A put to a key of one letter.
fn put(key: u8) -> Vec<u8> {
    whole(&[0x0a, 1, key, 0x12, 1, b'x'])
}

/// Makes calls on one connection, each with its method, its data and the frame that follows. All calls begin before the first of
/// them is cut.
async fn calls(running: &Running, calls: &[(&str, Vec<u8>, Vec<u8>)]) {
    let mut stream = TcpStream::connect(running.grpc[0]).await.unwrap();
    stream.write_all(&[PREFACE, &settings(1 << 20)].concat()).await.unwrap();
    let number = |at: usize| 2 * at as u32 + 1;
    for (at, (method, data, _)) in calls.iter().enumerate() {
        let begin = frame(HEADERS, END_HEADERS, number(at), &call(method));
        stream.write_all(&[begin, frame(DATA, 0, number(at), data)].concat()).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    for (_, _, end) in calls {
        stream.write_all(end).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
}

/// A reset with `NO_ERROR` ends a stream without completing it.
#[tokio::test]
async fn call_reset_with_no_error_is_not_executed() {
    let running = Running::start(plain()).await;
    let reset = |stream: u32| frame(RST_STREAM, 0, stream, &0_u32.to_be_bytes());
    let ended = frame(DATA, END_STREAM, 5, &[]);
    let made = [
        ("Upload", parts_of_upload(b'a'), reset(1)),
        ("Put", put(b'b'), reset(3)),
        ("Upload", parts_of_upload(b'c'), ended),
    ];
    calls(&running, &made).await;
    assert_eq!(running.store.get(key("a")).await.unwrap(), None);
    assert_eq!(running.store.get(key("b")).await.unwrap(), None);
    assert_eq!(running.store.get(key("c")).await.unwrap().as_deref(), Some(&b"begin"[..]));
}

/// Trailers inside a message do not complete it.
#[tokio::test]
async fn trailers_end_whole_messages_only() {
    let running = Running::start(plain()).await;
    let trailers = |stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &header("x", "y"));
    let half = message(100, b"\x12\x62more");
    let made = [
        ("Upload", [parts_of_upload(b'a'), half].concat(), trailers(1)),
        ("Upload", parts_of_upload(b'b'), trailers(3)),
    ];
    calls(&running, &made).await;
    assert_eq!(running.store.get(key("a")).await.unwrap(), None);
    assert_eq!(running.store.get(key("b")).await.unwrap().as_deref(), Some(&b"begin"[..]));
}
