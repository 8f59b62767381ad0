//! Asking a server for its status: `INFO status` over RESP, on one connection as long as that lasts.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use esker_server::status::{FORMAT, Status};

/// How long the server may take to accept, and to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// No answer is longer.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// What a server said.
pub(super) struct Heard {
    pub(super) status: Status,
    /// As it came.
    pub(super) json: String,
}

/// Why a server said nothing of use.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It cannot be reached; it may come back.
    Away(String),
    /// It is opening its store.
    Loading(String),
    /// It will not answer another time either.
    Refused(String),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Trouble::Away(format!("no answer for {} seconds", PATIENCE.as_secs()))
            }
            io::ErrorKind::UnexpectedEof => Trouble::Away("it closed the connection".to_owned()),
            _ => Trouble::Away(error.to_string()),
        }
    }
}

/// Asks a server.
pub(super) struct Client {
    address: String,
    /// A user, if not the default one, and a password.
    login: Option<(Option<String>, String)>,
    connection: Option<BufReader<TcpStream>>,
}

impl Client {
    /// Nothing is asked yet. A port alone is one of this machine.
    pub(super) fn new(address: &str, login: Option<(Option<String>, String)>) -> Client {
        let port = address.strip_prefix(':').unwrap_or(address).parse::<u16>();
        let address = port.map_or(address.to_owned(), |port| format!("127.0.0.1:{port}"));
        Client { address, login, connection: None }
    }

    /// What the server does right now. After trouble the next question comes by another connection.
    pub(super) fn ask(&mut self) -> Result<Heard, Trouble> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let answer = call(&mut connection, &["INFO", "status"])?;
        let json = answer.lines().find_map(|line| line.strip_prefix("status:"));
        let json = json.ok_or_else(|| {
            Trouble::Refused(format!("{} tells no status: it is no Esker, or an older one", self.address))
        })?;
        let status: Status = serde_json::from_str(json).map_err(|error| {
            Trouble::Refused(format!("{}: its status is not understood: {error}", self.address))
        })?;
        if status.format != FORMAT {
            let of = status.format;
            return Err(Trouble::Refused(format!(
                "{} tells its status in form {of}, and this esker knows form {FORMAT}: use an esker of its version, {}",
                self.address, status.version
            )));
        }
        self.connection = Some(connection);
        Ok(Heard { status, json: json.to_owned() })
    }

    fn connect(&self) -> Result<BufReader<TcpStream>, Trouble> {
        let refused = |error| Trouble::Refused(format!("'{}': {error}; give HOST:PORT", self.address));
        let mut last = None;
        for address in self.address.to_socket_addrs().map_err(refused)? {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => return self.log_in(stream),
                Err(error) => last = Some(error),
            }
        }
        let why = last.map_or("it has no address".to_owned(), |error| error.to_string());
        Err(Trouble::Away(format!("cannot reach {}: {why}", self.address)))
    }

    fn log_in(&self, stream: TcpStream) -> Result<BufReader<TcpStream>, Trouble> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let mut connection = BufReader::new(stream);
        if let Some((user, password)) = &self.login {
            let words: Vec<&str> =
                ["AUTH"].into_iter().chain(user.as_deref()).chain([password.as_str()]).collect();
            call(&mut connection, &words)?;
        }
        Ok(connection)
    }
}

/// Sends a command and reads its answer: the text of a simple or a bulk string.
fn call(connection: &mut BufReader<TcpStream>, words: &[&str]) -> Result<String, Trouble> {
    let mut command = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| command.push_str(&format!("${}\r\n{word}\r\n", word.len())));
    connection.get_mut().write_all(command.as_bytes())?;
    let line = line(connection)?;
    let (kind, rest) = line.split_at_checked(1).unwrap_or_default();
    match kind {
        "+" => Ok(rest.to_owned()),
        "-" => Err(trouble(rest)),
        "$" => {
            let bytes = rest.parse().ok().filter(|&bytes: &usize| bytes <= ANSWER_BYTES_MAX);
            let bytes = bytes.ok_or_else(|| Trouble::Refused(format!("it speaks no RESP: ${rest}")))?;
            let mut text = vec![0; bytes + 2];
            connection.read_exact(&mut text)?;
            text.truncate(bytes);
            Ok(String::from_utf8_lossy(&text).into_owned())
        }
        _ => Err(Trouble::Refused(format!("it speaks no RESP: {line}"))),
    }
}

/// What an error says. Whoever is one connection too many may have a place later.
fn trouble(error: &str) -> Trouble {
    let code = error.split(' ').next().unwrap_or_default();
    match code {
        "LOADING" => Trouble::Loading(error.trim_start_matches("LOADING ").to_owned()),
        "NOAUTH" => Trouble::Refused(format!("{error} Give a password as ESKER_PASSWORD, and --user")),
        "WRONGPASS" | "NOPERM" => Trouble::Refused(error.to_owned()),
        _ if error.contains("max number of clients") => Trouble::Away(error.to_owned()),
        _ => Trouble::Refused(error.to_owned()),
    }
}

fn line(connection: &mut BufReader<TcpStream>) -> Result<String, Trouble> {
    let mut line = Vec::new();
    connection.by_ref().take(ANSWER_BYTES_MAX as u64).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}
