//! A server's address with credentials, and a connection to it: sends commands and receives answers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::errors::Trouble;
use super::resp::{Answer, write_command};
use super::stream::Stream;
use super::tls::Tls;

/// Limit of unsent bytes, and length of one read, in bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// Longest line in bytes. Longer ones are not RESP.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Limit of an answer's bytes and of its parts.
const ANSWER_BYTES_MAX: u64 = 1 << 30;
const PARTS_MAX: u64 = 1 << 20;

/// Limit of the nesting of lists. SCAN returns its keys in a list within a list.
const DEPTH_MAX: usize = 3;

/// First bytes of a TLS alert record, by which a server reports an error.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];

/// The address of a server, and the credentials for it.
pub(crate) struct Server {
    /// HOST:PORT.
    pub(super) address: String,
    /// A password, with a user unless it is the default one.
    pub(super) credentials: Option<(Option<String>, String)>,
    pub(super) tls: Option<Tls>,
    /// Time limit for accepting a connection, and for every read and write.
    pub(super) patience: Duration,
}

impl Server {
    /// Returns the address for messages.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Connects, and logs in if there is a password.
    ///
    /// # Errors
    /// If the connection fails, or the login is refused.
    pub(crate) fn connect(&self) -> Result<Client, Trouble> {
        let resolved = self
            .address
            .to_socket_addrs()
            .map_err(|error| Trouble::Refused(format!("'{}': {error}; give HOST:PORT", self.address)))?;
        let mut last = io::Error::other("it has no address");
        for one in resolved {
            match TcpStream::connect_timeout(&one, self.patience) {
                Ok(stream) => {
                    let mut client = self.over(stream)?;
                    self.log_in(&mut client)?;
                    return Ok(client);
                }
                Err(error) => last = error,
            }
        }
        Err(Trouble::unreachable(&self.address, &last))
    }

    fn over(&self, stream: TcpStream) -> Result<Client, Trouble> {
        let (address, patience) = (&self.address, self.patience);
        let stream = match &self.tls {
            Some(tls) => Stream::encrypted(stream, tls, patience)
                .map_err(|error| Trouble::handshake(address, &error))?,
            None => {
                Stream::plain(stream, patience).map_err(|error| Trouble::lost(address, &error, patience))?
            }
        };
        let reader = BufReader::with_capacity(BUFFER_BYTES, stream);
        Ok(Client { address: address.clone(), patience, reader, unsent: Vec::new() })
    }

    fn log_in(&self, client: &mut Client) -> Result<(), Trouble> {
        let Some((user, password)) = &self.credentials else { return Ok(()) };
        let words = [Some("AUTH"), user.as_deref(), Some(password)];
        let words: Vec<&[u8]> = words.into_iter().flatten().map(str::as_bytes).collect();
        match client.ask(&words) {
            Err(Trouble::Failed(why) | Trouble::Refused(why)) => {
                Err(Trouble::Refused(format!("the login is refused: {why}")))
            }
            answer => answer.map(drop),
        }
    }
}

/// A connection to a server.
pub(crate) struct Client {
    address: String,
    patience: Duration,
    reader: BufReader<Stream>,
    unsent: Vec<u8>,
}

impl Client {
    /// Queues a command. It is sent when the buffer is full or an answer is requested.
    ///
    /// # Errors
    /// If the connection is lost.
    pub(crate) fn send(&mut self, words: &[&[u8]]) -> Result<(), Trouble> {
        write_command(words, &mut self.unsent);
        if self.unsent.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Trouble> {
        let stream = self.reader.get_mut();
        let sent = stream.write_all(&self.unsent).and_then(|()| stream.flush());
        self.unsent.clear();
        sent.map_err(|error| self.lost(&error))
    }

    /// Returns the connection, for a protocol that is not question and answer. Bytes that have arrived are read from it first.
    ///
    /// # Errors
    /// If queued commands cannot be sent.
    pub(crate) fn into_stream(mut self) -> Result<BufReader<Stream>, Trouble> {
        self.flush()?;
        Ok(self.reader)
    }

    /// Receives the next answer, which may be an error of the server.
    ///
    /// # Errors
    /// If the connection is lost, or the answer is not RESP.
    pub(crate) fn receive(&mut self) -> Result<Answer, Trouble> {
        self.flush()?;
        self.answer(DEPTH_MAX)
    }

    /// Sends a command and returns its answer.
    ///
    /// # Errors
    /// As [`receive`](Self::receive); and if the server answers with an error.
    pub(crate) fn ask(&mut self, words: &[&[u8]]) -> Result<Answer, Trouble> {
        self.send(words)?;
        match self.receive()? {
            Answer::Error(error) => Err(self.refused(&error)),
            answer => Ok(answer),
        }
    }

    /// Sends a command and returns the text that answers it.
    ///
    /// # Errors
    /// As [`ask`](Self::ask); and if the answer is no text.
    pub(crate) fn ask_text(&mut self, words: &[&[u8]]) -> Result<Vec<u8>, Trouble> {
        match self.ask(words)? {
            Answer::Text(text) => Ok(text),
            _ => Err(self.unexpected(&String::from_utf8_lossy(&words.join(&b' ')))),
        }
    }

    /// Converts an error answer of the server.
    pub(crate) fn refused(&self, error: &str) -> Trouble {
        Trouble::answered(&self.address, error)
    }

    /// The error that the answer does not fit the command.
    pub(crate) fn unexpected(&self, command: &str) -> Trouble {
        Trouble::Failed(format!("{} gave an unexpected answer to {command}", self.address))
    }

    /// Reads an answer with lists nested to at most `depth`.
    fn answer(&mut self, depth: usize) -> Result<Answer, Trouble> {
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
            _ => Err(Trouble::no_resp(&self.address, &line)),
        }
    }

    fn bulk(&mut self, bytes: u64) -> Result<Answer, Trouble> {
        let mut text = Vec::new();
        let limited = self.reader.by_ref().take(bytes + 2);
        let read = { limited }.read_to_end(&mut text).map_err(|error| self.lost(&error))?;
        if (read as u64) < bytes + 2 {
            return Err(self.lost(&io::ErrorKind::UnexpectedEof.into()));
        }
        text.truncate(bytes as usize);
        Ok(Answer::Text(text))
    }

    fn line(&mut self) -> Result<String, Trouble> {
        let mut line = Vec::new();
        let limited = self.reader.by_ref().take(LINE_BYTES_MAX);
        let read = { limited }.read_until(b'\n', &mut line);
        if line.starts_with(&TLS_ALERT) && !self.reader.get_ref().is_encrypted() {
            return Err(Trouble::wants_tls(&self.address));
        }
        read.map_err(|error| self.lost(&error))?;
        if line.pop() != Some(b'\n') {
            return Err(self.lost(&io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    fn lost(&self, error: &io::Error) -> Trouble {
        Trouble::lost(&self.address, error, self.patience)
    }
}
