//! Replies and pushes as values, for tests that must distinguish them.

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::PATIENCE;

/// A frame sent by the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A line with its type byte.
    Line(String),
    /// Null, in each of its forms.
    Null,
    Bulk(Vec<u8>),
    /// Elements, with the type byte of the aggregate.
    Many(char, Vec<Frame>),
}

impl Frame {
    pub(crate) fn is_push(&self) -> bool {
        matches!(self, Frame::Many('>', _))
    }

    /// Returns the elements of an array or a push.
    pub(crate) fn elements(&self) -> &[Frame] {
        match self {
            Frame::Many(_, elements) => elements,
            other => panic!("{other:?} has no elements"),
        }
    }

    /// Formats the frame on one line, equally for both protocols.
    pub(crate) fn text(&self) -> String {
        match self {
            Frame::Line(line) => line.clone(),
            Frame::Null => "null".to_owned(),
            Frame::Bulk(bytes) => bytes.escape_ascii().to_string(),
            Frame::Many(_, elements) => {
                let elements: Vec<String> = elements.iter().map(Frame::text).collect();
                format!("({})", elements.join(" "))
            }
        }
    }
}

/// A connection that is read frame by frame.
pub(crate) struct Frames(BufStream<TcpStream>);

impl Frames {
    pub(crate) async fn connect(address: std::net::SocketAddr) -> Frames {
        Frames(BufStream::new(TcpStream::connect(address).await.unwrap()))
    }

    pub(crate) async fn send(&mut self, line: &str) {
        self.0.write_all(format!("{line}\r\n").as_bytes()).await.unwrap();
        self.0.flush().await.unwrap();
    }

    pub(crate) async fn next(&mut self) -> Frame {
        timeout(PATIENCE, self.read()).await.expect("a frame comes")
    }

    async fn read(&mut self) -> Frame {
        // Open aggregates, with the number of their missing elements.
        let mut open: Vec<(char, usize, Vec<Frame>)> = Vec::new();
        loop {
            let mut line = Vec::new();
            self.0.read_until(b'\n', &mut line).await.unwrap();
            assert!(line.ends_with(b"\r\n"), "the server ended the connection");
            let text = String::from_utf8_lossy(&line[..line.len() - 2]).into_owned();
            let number = || text[1..].parse::<i64>().unwrap();
            let mut frame = match line[0] {
                b'*' | b'$' if number() < 0 => Frame::Null,
                b'_' => Frame::Null,
                b'$' | b'=' => {
                    let mut bytes = vec![0; number() as usize + 2];
                    self.0.read_exact(&mut bytes).await.unwrap();
                    bytes.truncate(bytes.len() - 2);
                    Frame::Bulk(bytes)
                }
                of @ (b'*' | b'~' | b'>' | b'%') => {
                    let count = number() as usize * if of == b'%' { 2 } else { 1 };
                    if count > 0 {
                        open.push((of.into(), count, Vec::new()));
                        continue;
                    }
                    Frame::Many(of.into(), Vec::new())
                }
                _ => Frame::Line(text),
            };
            loop {
                let Some((of, missing, elements)) = open.last_mut() else { return frame };
                elements.push(frame);
                *missing -= 1;
                if *missing > 0 {
                    break;
                }
                frame = Frame::Many(*of, std::mem::take(elements));
                open.pop();
            }
        }
    }

    /// Sends a command. Returns its reply, and the frames pushed before it.
    pub(crate) async fn ask(&mut self, line: &str) -> (Frame, Vec<Frame>) {
        self.send(line).await;
        let mut pushed = Vec::new();
        loop {
            match self.next().await {
                frame if is_told(&frame) => pushed.push(frame),
                frame => return (frame, pushed),
            }
        }
    }
}

/// Returns true if the frame is not a reply; in RESP2, messages look like replies.
fn is_told(frame: &Frame) -> bool {
    let named = |name: &[u8]| matches!(frame, Frame::Many('*', elements) if elements.first() == Some(&Frame::Bulk(name.to_vec())));
    frame.is_push() || named(b"message") || named(b"pmessage")
}
