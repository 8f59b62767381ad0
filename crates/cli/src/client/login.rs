//! Connection options other than the address: credentials, TLS, and the time limit.

use std::path::PathBuf;
use std::time::Duration;

use base64ct::{Base64, Encoding};
use clap::Args;

use super::connection::Server;
use super::tls::{Files, Tls};
use crate::terminal::Failure;
use crate::{secret, time};

/// The user at a server, and the way to connect.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Login {
    /// User to log in as; the password is in ESKER_PASSWORD or in --password-file.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// File that holds the password in its first line.
    #[arg(long, value_name = "PATH")]
    password_file: Option<PathBuf>,
    /// Speak TLS, to the port of the server's setting resp-tls.
    #[arg(long)]
    tls: bool,
    /// Certificates of the trusted authorities (PEM) [default: those of the system].
    #[arg(long, value_name = "FILE", requires = "tls")]
    ca: Option<PathBuf>,
    /// Certificate to show (PEM), with the chain behind it.
    #[arg(long, value_name = "FILE", requires = "tls", requires = "key")]
    cert: Option<PathBuf>,
    /// Its private key (PEM).
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Name that the server's certificate must be for, if it is not the one of the address.
    #[arg(long, value_name = "NAME", requires = "tls")]
    server_name: Option<String>,
    /// Time limit for every answer of the server, such as 30s.
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    timeout: Option<Duration>,
}

impl Login {
    /// Returns the server at an address, which is HOST:PORT or a port of this machine. Does not connect.
    ///
    /// # Errors
    /// If the password or a TLS file is missing or wrong.
    pub(crate) fn server(&self, address: &str, patience: Duration) -> Result<Server, Failure> {
        let port = address.strip_prefix(':').unwrap_or(address).parse::<u16>();
        let address = port.map_or(address.to_owned(), |port| format!("127.0.0.1:{port}"));
        let tls = self.tls.then(|| self.tls_to(&address)).transpose().map_err(Failure::Usage)?;
        // A time limit of zero would not wait for the network at all.
        let patience = self.timeout.filter(|timeout| !timeout.is_zero()).unwrap_or(patience);
        Ok(Server { credentials: self.credentials()?, address, tls, patience })
    }

    fn credentials(&self) -> Result<Option<(Option<String>, String)>, Failure> {
        let password = match &self.password_file {
            Some(path) => Some(secret::read(path).map_err(Failure::Usage)?),
            None => std::env::var("ESKER_PASSWORD").ok().filter(|password| !password.is_empty()),
        };
        if self.user.is_some() && password.is_none() {
            return Err(Failure::Usage(
                "--user needs a password: give it as ESKER_PASSWORD or in --password-file".to_owned(),
            ));
        }
        Ok(password.map(|password| (self.user.clone(), password)))
    }

    /// Returns the credentials for HTTP basic authentication, if there is a password.
    ///
    /// # Errors
    /// If the password is missing.
    pub(crate) fn basic(&self) -> Result<Option<String>, Failure> {
        let encoded = self.credentials()?.map(|(user, password)| {
            let user = user.as_deref().unwrap_or("default");
            Base64::encode_string(format!("{user}:{password}").as_bytes())
        });
        Ok(encoded)
    }

    fn tls_to(&self, address: &str) -> Result<Tls, String> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let own = self.cert.as_deref().zip(self.key.as_deref());
        Tls::new(&Files { ca: self.ca.as_deref(), own }, self.server_name.as_deref().unwrap_or(host))
    }
}
