//! The TLS handshake, if the address requires one, and the user of a client before it logs in.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::endpoint::Door;
use crate::auth::{User, Users};
use crate::base::address::Address;
use crate::base::socket::Stream;
use crate::resp::Dialogue;
use crate::tls::{Tls, certificate_names};

/// Byte stream of a connection as its protocol sees it.
pub(super) type Opened = Either<Stream, Box<TlsStream<Stream>>>;

/// An open RESP connection that was made while the store was opened.
pub(super) struct HandedOver {
    pub(super) door: Door,
    pub(super) stream: Opened,
    pub(super) dialogue: Dialogue,
}

/// Performs the TLS handshake if `door` uses TLS, within `wait`. A failed handshake is an error.
pub(super) async fn open(
    stream: Stream,
    peer: &Address,
    door: Door,
    tls: Option<&Tls>,
    users: &Users,
    wait: Option<Duration>,
) -> io::Result<(Opened, Option<Arc<User>>)> {
    let unnamed = users.unnamed();
    if !door.tls {
        return Ok((Either::Left(stream), unnamed));
    }
    let tls = tls.expect("TLS addresses without certificate files are rejected at startup");
    let stream = tls.shake_hands(stream, peer, door.application, wait).await?;
    let names = certificate_names(&stream);
    let user = users.of_certificate(names.iter().map(String::as_str)).or(unnamed);
    Ok((Either::Right(Box::new(stream)), user))
}
