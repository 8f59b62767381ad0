//! Asks a server for its status (`INFO status`), on one connection while it lasts.

use esker_server::status::{FORMAT, Status};

use crate::client::{Client, Server, Trouble};

/// An answer of the server.
pub(super) struct Heard {
    pub(super) status: Status,
    /// The original JSON.
    pub(super) json: String,
}

/// Asks a server for its status.
pub(super) struct Questioner {
    server: Server,
    connection: Option<Client>,
}

impl Questioner {
    /// Does not connect yet.
    pub(super) fn new(server: Server) -> Questioner {
        Questioner { server, connection: None }
    }

    /// Returns the current status. After an error the next call makes a new connection.
    pub(super) fn ask(&mut self) -> Result<Heard, Trouble> {
        let mut client = match self.connection.take() {
            Some(client) => client,
            None => self.server.connect()?,
        };
        let address = self.server.address();
        let answer = client.ask_text(&[b"INFO", b"status"])?;
        let answer = String::from_utf8_lossy(&answer);
        let json = answer.lines().find_map(|line| line.strip_prefix("status:"));
        let json = json.ok_or_else(|| {
            Trouble::Refused(format!(
                "{address} reports no status: it is not an Esker server, or an older one"
            ))
        })?;
        let status: Status = serde_json::from_str(json)
            .map_err(|error| Trouble::Refused(format!("{address}: its status is not understood: {error}")))?;
        if status.format != FORMAT {
            let of = status.format;
            return Err(Trouble::Refused(format!(
                "{address} reports its status in format {of}, but this esker reads format {FORMAT}: use an esker of its version, {}",
                status.version
            )));
        }
        self.connection = Some(client);
        Ok(Heard { status, json: json.to_owned() })
    }
}
