//! Errors of a connection, worded with their remedies.

use std::io;
use std::time::Duration;

use rustls::{AlertDescription, CertificateError};

use crate::terminal::Failure;

/// A connection error.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The server cannot be reached, or the connection was lost; a retry may succeed.
    Away(String),
    /// The server is opening its store.
    Loading(String),
    /// A retry would be refused too: the call or the login is wrong.
    Refused(String),
    /// The server did not execute the command.
    Failed(String),
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Failure {
        match trouble {
            Trouble::Refused(why) => Failure::Usage(why),
            Trouble::Away(why) | Trouble::Loading(why) | Trouble::Failed(why) => Failure::Failed(why),
        }
    }
}

impl Trouble {
    /// The error that no connection could be made.
    pub(super) fn unreachable(address: &str, error: &io::Error) -> Trouble {
        let what = match error.kind() {
            io::ErrorKind::ConnectionRefused => "no process listens there (connection refused)".to_owned(),
            io::ErrorKind::TimedOut => "no answer (timed out)".to_owned(),
            _ => error.to_string(),
        };
        Trouble::Away(format!("cannot reach {address}: {what}"))
    }

    /// The error that a connection broke.
    pub(super) fn lost(address: &str, error: &io::Error, patience: Duration) -> Trouble {
        if let Some(trouble) = of_tls(address, error) {
            return trouble;
        }
        let what = match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("nothing happened for {} seconds", patience.as_secs_f64())
            }
            io::ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
            _ => error.to_string(),
        };
        Trouble::Away(format!("the connection to {address} is lost: {what}"))
    }

    /// The error that a TLS handshake failed.
    pub(super) fn handshake(address: &str, error: &io::Error) -> Trouble {
        of_tls(address, error).unwrap_or_else(|| {
            Trouble::Away(format!(
                "{address} does not answer in TLS ({error}): if its port is the plain one, leave out --tls"
            ))
        })
    }

    /// Converts an error answer of the server.
    pub(super) fn answered(address: &str, error: &str) -> Trouble {
        let text = format!("{address} answers: {error}");
        match error.split(' ').next().unwrap_or_default() {
            "LOADING" => Trouble::Loading(error.trim_start_matches("LOADING ").to_owned()),
            "NOAUTH" => Trouble::Refused(format!(
                "{text} Give a password as ESKER_PASSWORD or in --password-file, and --user; for import --from: \
                 ESKER_FROM_PASSWORD, --from-password-file and --from-user"
            )),
            "WRONGPASS" | "NOPERM" => Trouble::Refused(text),
            // A client refused for too many connections may be accepted later.
            _ if error.contains("max number of clients") => Trouble::Away(text),
            _ => Trouble::Failed(text),
        }
    }

    /// The error that an answer is not RESP.
    pub(super) fn no_resp(address: &str, line: &str) -> Trouble {
        Trouble::Refused(format!("{address} does not speak RESP: {:.80}", line.escape_debug().to_string()))
    }

    /// The error that a server answers in TLS on a plain connection.
    pub(super) fn wants_tls(address: &str) -> Trouble {
        Trouble::Refused(format!(
            "{address} speaks TLS: add --tls, and --ca if its authority is a private one"
        ))
    }
}

/// Converts a TLS error to a message for the caller.
fn of_tls(address: &str, error: &io::Error) -> Option<Trouble> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    let text = match error {
        rustls::Error::InvalidMessage(_) => {
            format!("{address} does not speak TLS: leave out --tls, or give its TLS port")
        }
        // An authority with the same name but another key, such as a regenerated private one.
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => {
            format!(
                "the certificate of {address} is from an untrusted authority: give the authority's certificate with --ca"
            )
        }
        rustls::Error::InvalidCertificate(
            why @ (CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }),
        ) => format!(
            "the certificate of {address} is for another name: {why}; give the expected name with --server-name"
        ),
        rustls::Error::InvalidCertificate(why) => format!("the certificate of {address} is not valid: {why}"),
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired | AlertDescription::HandshakeFailure,
        ) => format!("{address} wants a certificate of its clients ({error}): give --cert and --key"),
        rustls::Error::AlertReceived(_) => {
            format!("{address} does not accept the certificate of --cert, or the way of encryption: {error}")
        }
        _ => format!("TLS with {address} failed: {error}"),
    };
    Some(Trouble::Refused(text))
}
