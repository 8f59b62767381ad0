//! A client of RESP2 that sends many commands before it reads their answers.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::stream::write_command;
use crate::terminal::Failure;

/// How long a server may take to accept, or to do anything at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lines that are longer are none of RESP.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// No answer is longer, or has more parts.
const ANSWER_BYTES_MAX: u64 = 1 << 30;
const PARTS_MAX: u64 = 1 << 20;

/// SCAN answers keys in a part of a part.
const DEPTH_MAX: usize = 3;

/// What a server answers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Text(Vec<u8>),
    Error(String),
    Integer(i64),
    Nothing,
    Parts(Vec<Answer>),
}

pub(crate) struct Client {
    address: String,
    reader: BufReader<TcpStream>,
    writer: BufWriter<TcpStream>,
    text: Vec<u8>,
}

impl Client {
    /// Connects, and logs in with a password, if there is one. A port alone is one of this machine.
    pub(super) fn connect(
        address: &str,
        user: Option<&str>,
        password: Option<&str>,
    ) -> Result<Client, Failure> {
        let port = address.strip_prefix(':').unwrap_or(address).parse::<u16>();
        let address = port.map_or(address.to_owned(), |port| format!("127.0.0.1:{port}"));
        let resolved = address
            .to_socket_addrs()
            .map_err(|error| Failure::Usage(format!("'{address}': {error}; give HOST:PORT")))?;
        let mut last = "it has no address".to_owned();
        for one in resolved {
            match TcpStream::connect_timeout(&one, PATIENCE).and_then(Client::halves) {
                Ok((reader, writer)) => {
                    let mut client = Client { address, reader, writer, text: Vec::new() };
                    client.log_in(user, password)?;
                    return Ok(client);
                }
                Err(error) => last = error.to_string(),
            }
        }
        Err(Failure::Failed(format!("cannot reach {address}: {last}")))
    }

    fn halves(stream: TcpStream) -> io::Result<(BufReader<TcpStream>, BufWriter<TcpStream>)> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let other = stream.try_clone()?;
        Ok((BufReader::with_capacity(256 << 10, stream), BufWriter::with_capacity(256 << 10, other)))
    }

    fn log_in(&mut self, user: Option<&str>, password: Option<&str>) -> Result<(), Failure> {
        let Some(password) = password else { return Ok(()) };
        let words: Vec<&[u8]> =
            [Some("AUTH"), user, Some(password)].into_iter().flatten().map(str::as_bytes).collect();
        self.send(&words)?;
        match self.receive()? {
            Answer::Error(error) => {
                Err(Failure::Usage(format!("{} refuses the login: {error}", self.address)))
            }
            _ => Ok(()),
        }
    }

    /// Sends a command, at the latest when an answer is asked for.
    pub(super) fn send(&mut self, words: &[&[u8]]) -> Result<(), Failure> {
        self.text.clear();
        write_command(words, &mut self.text);
        self.writer.write_all(&self.text).map_err(|error| self.trouble(&error))
    }

    /// The next answer.
    pub(super) fn receive(&mut self) -> Result<Answer, Failure> {
        self.writer.flush().map_err(|error| self.trouble(&error))?;
        self.answer(DEPTH_MAX)
    }

    /// Sends a command and reads its answer, which is no error.
    pub(crate) fn ask(&mut self, words: &[&[u8]]) -> Result<Answer, Failure> {
        self.send(words)?;
        match self.receive()? {
            Answer::Error(error) => Err(self.refused(&error)),
            answer => Ok(answer),
        }
    }

    /// That the server refused something.
    pub(super) fn refused(&self, error: &str) -> Failure {
        Failure::Failed(self.refusal(error))
    }

    /// The same as text.
    pub(super) fn refusal(&self, error: &str) -> String {
        let hint =
            if error.starts_with("NOAUTH") { " Give a password as ESKER_PASSWORD, and --user" } else { "" };
        format!("{} answers: {error}{hint}", self.address)
    }

    /// An answer whose parts have parts so many times at most.
    fn answer(&mut self, depth: usize) -> Result<Answer, Failure> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).unwrap_or_default();
        match (kind, rest.parse::<i64>()) {
            ("+", _) => Ok(Answer::Text(rest.as_bytes().to_vec())),
            ("-", _) => Ok(Answer::Error(rest.to_owned())),
            (":", Ok(number)) => Ok(Answer::Integer(number)),
            ("$" | "*", Ok(-1)) => Ok(Answer::Nothing),
            ("$", Ok(bytes)) if (0..=ANSWER_BYTES_MAX as i64).contains(&bytes) => self.bulk(bytes as u64),
            ("*", Ok(count)) if depth > 0 && (0..=PARTS_MAX as i64).contains(&count) => {
                let parts: Result<_, _> = (0..count).map(|_| self.answer(depth - 1)).collect();
                parts.map(Answer::Parts)
            }
            _ => Err(self.no_resp(&line)),
        }
    }

    fn bulk(&mut self, bytes: u64) -> Result<Answer, Failure> {
        let mut text = Vec::new();
        let limited = self.reader.by_ref().take(bytes + 2);
        let read = { limited }.read_to_end(&mut text).map_err(|error| self.trouble(&error))?;
        if (read as u64) < bytes + 2 {
            return Err(self.trouble(&io::ErrorKind::UnexpectedEof.into()));
        }
        text.truncate(bytes as usize);
        Ok(Answer::Text(text))
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = Vec::new();
        let limited = self.reader.by_ref().take(LINE_BYTES_MAX);
        { limited }.read_until(b'\n', &mut line).map_err(|error| self.trouble(&error))?;
        if line.pop() != Some(b'\n') {
            return Err(self.trouble(&io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    fn no_resp(&self, line: &str) -> Failure {
        Failure::Failed(format!("{} speaks no RESP: {:.80}", self.address, line.escape_debug().to_string()))
    }

    fn trouble(&self, error: &io::Error) -> Failure {
        let what = match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("nothing happened for {} seconds", PATIENCE.as_secs())
            }
            io::ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
            _ => error.to_string(),
        };
        Failure::Failed(format!("the connection to {} is lost: {what}", self.address))
    }
}
