//! Scans, uploads and downloads, complete and interrupted.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::time::{sleep, timeout};
use tonic::Code;

use crate::client::pb::upload_request::{Head, Part};
use crate::client::{PATIENCE, Running, key, pb, plain, put, refused};

fn part(part: Part) -> pb::UploadRequest {
    pb::UploadRequest { part: Some(part) }
}

fn head(at: &str, value_bytes: Option<u64>) -> pb::UploadRequest {
    part(Part::Head(Head { key: key(at), value_bytes, ..Default::default() }))
}

fn large(bytes: usize) -> Bytes {
    (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect::<Vec<_>>().into()
}

#[tokio::test]
async fn large_values_go_up_and_come_down_in_chunks() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    let value = large(3_000_001);
    let chunks = value.chunks(100_000).map(|chunk| part(Part::Chunk(Bytes::copy_from_slice(chunk))));
    let parts: Vec<_> = [head("k", Some(3_000_001))].into_iter().chain(chunks).collect();
    let version = client.upload(stream::iter(parts)).await.unwrap().into_inner().version;
    assert_eq!(running.store.get("k").await.unwrap().unwrap(), value);

    let wanted = pb::DownloadRequest { key: key("k"), offset: 11, version, chunk_bytes: 70_000 };
    let mut parts = client.download(wanted.clone()).await.unwrap().into_inner();
    let first = parts.message().await.unwrap().unwrap().part.unwrap();
    let pb::download_response::Part::Head(entry) = first else { panic!("the head comes first") };
    assert_eq!((entry.version, entry.value_bytes, entry.value.len()), (version, 3_000_001, 0));
    let mut came = Vec::new();
    while let Some(message) = parts.message().await.unwrap() {
        let Some(pb::download_response::Part::Chunk(chunk)) = message.part else { panic!("chunks follow") };
        assert!(chunk.len() <= 70_000);
        came.extend_from_slice(&chunk);
    }
    assert!(came == value[11..]);
    running.store.put("k", "new").await.unwrap();
    refused(client.download(wanted).await, Code::FailedPrecondition, "CONFLICT");
    let beyond = pb::DownloadRequest { key: key("k"), offset: 4, ..Default::default() };
    refused(client.download(beyond).await, Code::InvalidArgument, "INVALID");
    let absent = pb::DownloadRequest { key: key("none"), ..Default::default() };
    assert!(client.download(absent).await.unwrap().into_inner().message().await.unwrap().is_none());
}

#[tokio::test]
async fn uploads_that_are_not_whole_write_nothing() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    let chunk = || part(Part::Chunk(large(1000)));
    for wrong in [
        vec![chunk()],
        vec![],
        vec![head("k", Some(2001)), chunk(), chunk()],
        vec![head("k", None), chunk(), head("k", None)],
    ] {
        refused(client.upload(stream::iter(wrong)).await, Code::InvalidArgument, "INVALID");
    }
    let too_long = vec![head("k", Some(1 << 40))];
    refused(client.upload(stream::iter(too_long)).await, Code::ResourceExhausted, "TOO_LARGE");

    // Interrupted in the middle: the client cancels while the stream is open.
    for _ in 0..20 {
        let parts = stream::iter([head("k", None), chunk(), chunk()]).chain(stream::pending());
        let mut client = client.clone();
        assert!(timeout(Duration::from_millis(30), client.upload(parts)).await.is_err());
    }
    // Interrupted by a closed connection.
    let mut leaving = running.client().await;
    let parts = stream::iter([head("k", None), chunk()]).chain(stream::pending());
    assert!(timeout(Duration::from_millis(30), leaving.upload(parts)).await.is_err());
    drop(leaving);
    sleep(Duration::from_millis(200)).await;
    assert!(running.store.is_empty());
    // The memory of all uploads was released.
    let used = client.stats(pb::StatsRequest {}).await.unwrap().into_inner().client_memory_bytes;
    assert!(used < 1 << 20, "{used} bytes are held");
}

#[tokio::test]
async fn scans_meet_every_key_and_go_on_from_a_cursor() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    for n in 0..2000 {
        let value = large(n % 300);
        running.store.put(format!("{}{n}", if n % 2 == 0 { "even" } else { "odd" }), value).await.unwrap();
    }
    client.put(put("even-large", large(2 << 20))).await.unwrap();
    let mut met = BTreeMap::new();
    let (mut cursor, mut streams) = (Bytes::new(), 0);
    loop {
        let wanted =
            pb::ScanRequest { cursor: cursor.clone(), prefix: key("even"), limit: 300, ..Default::default() };
        let mut pages = client.scan(wanted).await.unwrap().into_inner();
        let (mut done, mut next) = (false, cursor);
        while let Some(page) = pages.message().await.unwrap() {
            met.extend(page.entries.into_iter().map(|entry| (entry.key, entry.value)));
            (done, next) = (page.done, page.next_cursor);
        }
        streams += 1;
        cursor = next;
        assert_eq!(done, cursor.is_empty());
        if done {
            break;
        }
        assert!(streams < 1000, "the cursor does not move");
    }
    assert!(streams > 3 && met.len() == 1001, "{streams} streams, {} keys", met.len());
    assert_eq!(met[&key("even200")], large(200));
    assert_eq!(met[&key("even-large")].len(), 2 << 20);
    for wrong in ["x", "\u{1}", "\u{2}12345678", "\u{1}123456789"] {
        let wanted = pb::ScanRequest { cursor: key(wrong), ..Default::default() };
        refused(client.scan(wanted).await, Code::InvalidArgument, "INVALID");
    }
    let wanted = pb::ScanRequest { prefix: vec![b'x'; 65_537].into(), ..Default::default() };
    refused(client.scan(wanted).await, Code::InvalidArgument, "INVALID");
    let wanted = pb::ScanRequest { keys_only: true, ..Default::default() };
    let pages = client.scan(wanted).await.unwrap().into_inner();
    let entries: Vec<_> = pages.flat_map(|page| stream::iter(page.unwrap().entries)).collect().await;
    assert_eq!(entries.len(), 2001);
    assert!(entries.iter().all(|entry| entry.value.is_empty()));
    assert!(entries.iter().any(|entry| entry.value_bytes == 2 << 20));
}

#[tokio::test]
async fn a_stop_lets_running_calls_finish() {
    let mut running = Running::start(plain()).await;
    let mut client = running.client().await;
    let (go, gone) = tokio::sync::oneshot::channel();
    let rest = stream::once(async {
        gone.await.unwrap();
        part(Part::Chunk(large(500)))
    });
    let parts = stream::iter([head("k", None), part(Part::Chunk(large(500)))]).chain(rest);
    let uploading = tokio::spawn(async move { client.upload(parts).await });
    sleep(Duration::from_millis(200)).await;
    running.ask_to_stop();
    sleep(Duration::from_millis(200)).await;
    go.send(()).unwrap();
    timeout(PATIENCE, uploading).await.unwrap().unwrap().unwrap();
    let store = running.store.clone();
    running.stopped().await;
    assert_eq!(store.get("k").await.unwrap().unwrap().len(), 1000);
}
