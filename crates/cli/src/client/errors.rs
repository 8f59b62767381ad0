//! Why a server says nothing of use: in words that say what to do.

use std::io;
use std::time::Duration;

use rustls::{AlertDescription, CertificateError};

use crate::terminal::Failure;

/// Why a server said nothing of use.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It cannot be reached, or the connection was lost; it may come back.
    Away(String),
    /// It is opening its store.
    Loading(String),
    /// It will not answer another time either: the call is wrong, or the login.
    Refused(String),
    /// It did not do what it was asked for.
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
    /// That nobody could be connected to.
    pub(super) fn unreachable(address: &str, error: &io::Error) -> Trouble {
        let what = match error.kind() {
            io::ErrorKind::ConnectionRefused => "nobody listens there (connection refused)".to_owned(),
            io::ErrorKind::TimedOut => "nobody answers there".to_owned(),
            _ => error.to_string(),
        };
        Trouble::Away(format!("cannot reach {address}: {what}"))
    }

    /// That a connection broke.
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

    /// That no handshake of TLS came to its end.
    pub(super) fn handshake(address: &str, error: &io::Error) -> Trouble {
        of_tls(address, error).unwrap_or_else(|| {
            Trouble::Away(format!(
                "{address} does not answer in TLS ({error}): if its port is the plain one, leave out --tls"
            ))
        })
    }

    /// What an error says that the server answered.
    pub(super) fn answered(address: &str, error: &str) -> Trouble {
        let text = format!("{address} answers: {error}");
        match error.split(' ').next().unwrap_or_default() {
            "LOADING" => Trouble::Loading(error.trim_start_matches("LOADING ").to_owned()),
            "NOAUTH" => Trouble::Refused(format!(
                "{text} Give a password as ESKER_PASSWORD or in --password-file, and --user"
            )),
            "WRONGPASS" | "NOPERM" => Trouble::Refused(text),
            // Whoever is one too many may have a place later.
            _ if error.contains("max number of clients") => Trouble::Away(text),
            _ => Trouble::Failed(text),
        }
    }

    /// That an answer is none of RESP.
    pub(super) fn no_resp(address: &str, line: &str) -> Trouble {
        Trouble::Refused(format!("{address} speaks no RESP: {:.80}", line.escape_debug().to_string()))
    }

    /// That a server which was addressed plainly answers in TLS.
    pub(super) fn wants_tls(address: &str) -> Trouble {
        Trouble::Refused(format!(
            "{address} speaks TLS: add --tls, and --ca if its authority is one of your own"
        ))
    }
}

/// What an error of TLS means for who made the call.
fn of_tls(address: &str, error: &io::Error) -> Option<Trouble> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    let text = match error {
        rustls::Error::InvalidMessage(_) => {
            format!("{address} speaks no TLS: leave out --tls, or give the port that it speaks TLS on")
        }
        // An authority of the same name whose key is another one, as a new one of one's own is.
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => {
            format!(
                "the certificate of {address} is of an authority that is not trusted: give its certificate with --ca"
            )
        }
        rustls::Error::InvalidCertificate(
            why @ (CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }),
        ) => format!(
            "the certificate of {address} is for another name: {why}; say with --server-name for which one it should be"
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
