//! Connection options other than the address: credentials, TLS, and the time limit.

use std::path::PathBuf;
use std::time::Duration;

use base64ct::{Base64, Encoding};
use clap::Args;

use super::connection::{Client, Server};
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
    /// Environment variable of the password, if it is not ESKER_PASSWORD.
    #[arg(skip)]
    variable: Option<&'static str>,
}

/// The same for the server of `--from`, where a call has two servers.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Connection to the server of --from")]
pub(crate) struct FromLogin {
    /// User to log in as; the password is in ESKER_FROM_PASSWORD or in --from-password-file.
    #[arg(long, value_name = "NAME", requires = "from")]
    from_user: Option<String>,
    /// File that holds the password in its first line.
    #[arg(long, value_name = "PATH", requires = "from")]
    from_password_file: Option<PathBuf>,
    /// Speak TLS.
    #[arg(long, requires = "from")]
    from_tls: bool,
    /// Certificates of the trusted authorities (PEM) [default: those of the system].
    #[arg(long, value_name = "FILE", requires = "from_tls")]
    from_ca: Option<PathBuf>,
    /// Certificate to show (PEM), with the chain behind it.
    #[arg(long, value_name = "FILE", requires = "from_tls", requires = "from_key")]
    from_cert: Option<PathBuf>,
    /// Its private key (PEM).
    #[arg(long, value_name = "FILE", requires = "from_cert")]
    from_key: Option<PathBuf>,
    /// Name that the server's certificate must be for, if it is not the one of the address.
    #[arg(long, value_name = "NAME", requires = "from_tls")]
    from_server_name: Option<String>,
}

impl FromLogin {
    /// Returns the login, with the time limit of `other`.
    pub(crate) fn login(&self, other: &Login) -> Login {
        Login {
            user: self.from_user.clone(),
            password_file: self.from_password_file.clone(),
            tls: self.from_tls,
            ca: self.from_ca.clone(),
            cert: self.from_cert.clone(),
            key: self.from_key.clone(),
            server_name: self.from_server_name.clone(),
            timeout: other.timeout,
            variable: Some("ESKER_FROM_PASSWORD"),
        }
    }
}

impl Login {
    /// Returns the server at an address, which is HOST:PORT or a port of this machine. Does not connect.
    ///
    /// # Errors
    /// If the password or a TLS file is missing or wrong.
    pub(crate) fn server(&self, address: &str, patience: Duration) -> Result<Server, Failure> {
        let address = Login::address(address);
        let tls = self.tls.then(|| self.tls_to(&address)).transpose().map_err(Failure::Usage)?;
        Ok(Server { credentials: self.credentials()?, address, tls, patience: self.patience(patience) })
    }

    /// Connects to a server, and logs in if there is a password.
    ///
    /// # Errors
    /// As [`server`](Self::server) and [`Server::connect`].
    pub(crate) fn connect(&self, address: &str, patience: Duration) -> Result<Client, Failure> {
        Ok(self.server(address, patience)?.connect()?)
    }

    /// Returns HOST:PORT of an address, which may be a port of this machine.
    pub(crate) fn address(given: &str) -> String {
        let port = given.strip_prefix(':').unwrap_or(given).parse::<u16>();
        port.map_or(given.to_owned(), |port| format!("127.0.0.1:{port}"))
    }

    /// Returns the given time limit, or else a default.
    pub(crate) fn patience(&self, default: Duration) -> Duration {
        // A time limit of zero would not wait for the network at all.
        self.timeout.filter(|timeout| !timeout.is_zero()).unwrap_or(default)
    }

    fn credentials(&self) -> Result<Option<(Option<String>, String)>, Failure> {
        let variable = self.variable.unwrap_or("ESKER_PASSWORD");
        let password = match &self.password_file {
            Some(path) => Some(secret::read(path).map_err(Failure::Usage)?),
            None => std::env::var(variable).ok().filter(|password| !password.is_empty()),
        };
        if self.user.is_some() && password.is_none() {
            let prefix = if self.variable.is_some() { "from-" } else { "" };
            return Err(Failure::Usage(format!(
                "--{prefix}user needs a password: give it as {variable} or in --{prefix}password-file"
            )));
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
