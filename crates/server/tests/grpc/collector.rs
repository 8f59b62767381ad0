//! A collector of OpenTelemetry on this machine, which answers as a test asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// The answer to a post.
#[derive(Clone, Copy)]
pub(crate) enum Answer {
    /// This status line, headers and body.
    Text(&'static str),
    /// A body without an end.
    Endless,
    /// None, while the connection stays open.
    Never,
}

pub(crate) const TAKEN: Answer = Answer::Text("200 OK\r\nContent-Length: 2\r\n\r\n{}");

pub(crate) struct Collector {
    pub(crate) endpoint: String,
    /// Bodies of posts.
    posts: mpsc::UnboundedReceiver<String>,
    pub(crate) received: Arc<AtomicUsize>,
}

impl Collector {
    /// Starts a collector that gives these answers, the last one again and again.
    pub(crate) async fn start(answers: &'static [Answer]) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (sender, posts) = mpsc::unbounded_channel();
        let received = Arc::<AtomicUsize>::default();
        let count = received.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (sender, count) = (sender.clone(), count.clone());
                tokio::spawn(async move {
                    if let Some((body, stream)) = post(stream).await {
                        let at = count.fetch_add(1, Ordering::Relaxed);
                        let _ = sender.send(body);
                        answer(stream, answers[at.min(answers.len() - 1)]).await;
                    }
                });
            }
        });
        Collector { endpoint, posts, received }
    }

    /// Returns the body of the next post.
    pub(crate) async fn next(&mut self) -> String {
        let next = tokio::time::timeout(crate::running::PATIENCE, self.posts.recv()).await;
        next.expect("a post arrives").expect("the collector runs")
    }
}

/// Reads a post with a body of stated length.
async fn post(mut stream: TcpStream) -> Option<(String, TcpStream)> {
    let mut text = Vec::new();
    loop {
        let head = text.windows(4).position(|part| part == b"\r\n\r\n").map(|at| at + 4);
        if let Some(head) = head {
            let lines = String::from_utf8(text[..head].to_vec()).unwrap().to_ascii_lowercase();
            assert!(lines.starts_with("post /v1/traces http/1.1\r\n"), "{lines}");
            assert!(lines.contains("content-type: application/json\r\n"), "{lines}");
            let length = lines.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            let end = head + length.parse::<usize>().unwrap();
            if text.len() >= end {
                return Some((String::from_utf8(text[head..end].to_vec()).unwrap(), stream));
            }
        }
        if stream.read_buf(&mut text).await.ok()? == 0 {
            return None;
        }
    }
}

async fn answer(mut stream: TcpStream, answer: Answer) {
    match answer {
        Answer::Text(text) => {
            let _ = stream.write_all(format!("HTTP/1.1 {text}").as_bytes()).await;
        }
        Answer::Endless => {
            let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n";
            let mut sent = stream.write_all(head).await;
            while sent.is_ok() {
                sent = stream.write_all(&[b'['; 8192]).await;
                // A server that reads it to its end does not fill the memory of the machine.
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        }
        Answer::Never => {
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        }
    }
}

/// Returns the spans of a post.
pub(crate) fn spans(body: &str) -> Vec<Value> {
    let export: Value = serde_json::from_str(body).unwrap();
    export["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
}
