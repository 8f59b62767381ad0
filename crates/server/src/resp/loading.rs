//! What a client is told while the store is being opened: `-LOADING` to every command but QUIT, as Redis does. Nobody logs in,
//! and nothing is kept of a command, so a client holds little however much it sends.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::wire::commands::Commands;
use super::wire::frame::Parser;
use crate::Limits;
use crate::base::shutdown::Stop;

const LOADING: &[u8] = b"-LOADING Esker is loading the dataset in memory\r\n";

/// Room for one read.
const READ_BYTES: usize = 4 << 10;

/// Longer commands are refused before they are there, and so is what follows them.
const COMMAND_BYTES_MAX: usize = 8 << 10;

/// How long what follows such a command is read and thrown away, so that its client reads the answer before the end.
const LINGER: Duration = Duration::from_secs(2);

/// How long a client may be silent, and may take to read an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Answers one client until it leaves or the store is open. The connection ends then: who logs in and what is allowed is
/// asked anew.
pub(crate) async fn serve_loading<S>(stream: &mut S, limits: &Limits, mut stop: Stop) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut parser = Parser::new(&Limits {
        command_bytes_max: COMMAND_BYTES_MAX,
        bulk_bytes_max: READ_BYTES,
        ..limits.before_login()
    });
    let (mut input, mut answers) = (BytesMut::new(), Vec::new());
    let mut leaving = false;
    while !leaving {
        input.reserve(READ_BYTES);
        let read = tokio::select! {
            biased;
            () = stop.announced() => break,
            read = timeout(PATIENCE, stream.read_buf(&mut input)) => read??,
        };
        if read == 0 {
            return Ok(());
        }
        answers.clear();
        leaving = answer(&mut parser, &mut input, &mut answers);
        timeout(PATIENCE, stream.write_all(&answers)).await??;
        timeout(PATIENCE, stream.flush()).await??;
    }
    timeout(LINGER, linger(stream)).await.unwrap_or(Ok(()))
}

/// Answers the commands that are there; says whether nothing more is to be read.
fn answer(parser: &mut Parser, input: &mut BytesMut, answers: &mut Vec<u8>) -> bool {
    let mut commands = Commands::default();
    loop {
        commands.clear();
        let (consumed, parsed) = parser.parse(input, &mut commands, 1);
        let data = input.split_to(consumed).freeze();
        for index in 0..commands.len() {
            if commands.get(index, &data).verb().eq_ignore_ascii_case(b"quit") {
                answers.extend_from_slice(b"+OK\r\n");
                return true;
            }
            answers.extend_from_slice(LOADING);
        }
        if parsed.is_err() {
            // Too long, or no command at all; who sent it is told the same.
            answers.extend_from_slice(LOADING);
            return true;
        }
        if consumed == 0 {
            return false;
        }
    }
}

/// Ends this side, and reads what the other one still sends: an end with bytes unread would take the answer away.
async fn linger<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> io::Result<()> {
    stream.shutdown().await?;
    let mut unread = [0; 512];
    while stream.read(&mut unread).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client hears that sends these bytes in such pieces.
    async fn told(bytes: &[u8], piece: usize) -> String {
        let (mut client, mut server) = tokio::io::duplex(64 << 10);
        let (_stopper, stop) = crate::base::shutdown::Stopper::new();
        let serving = tokio::spawn(async move { serve_loading(&mut server, &Limits::default(), stop).await });
        for piece in bytes.chunks(piece) {
            // It may have ended before the last of it.
            let _ = client.write_all(piece).await;
        }
        client.shutdown().await.unwrap();
        let mut heard = String::new();
        client.read_to_string(&mut heard).await.unwrap();
        serving.await.unwrap().unwrap();
        heard
    }

    #[tokio::test]
    async fn every_command_is_told_so_however_it_is_cut() {
        let loading = std::str::from_utf8(LOADING).unwrap();
        for piece in [1, 3, 4096] {
            let heard = told(b"PING\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n\r\nAUTH x\r\nHELLO 3\r\n", piece).await;
            assert_eq!(heard, loading.repeat(4), "{piece}");
            assert_eq!(
                told(b"GET a\r\nquit\r\nPING\r\n", piece).await,
                format!("{loading}+OK\r\n"),
                "{piece}"
            );
        }
    }

    #[tokio::test]
    async fn a_long_command_is_refused_before_it_is_there() {
        let loading = std::str::from_utf8(LOADING).unwrap();
        let long = format!("PING\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$100000\r\n{}\r\n", "x".repeat(100_000));
        assert_eq!(told(long.as_bytes(), 4096).await, loading.repeat(2));
        assert_eq!(told(&[b'x'; 100_000], 4096).await, loading);
        assert_eq!(told(b"*1\r\n!", 4096).await, loading);
    }
}
