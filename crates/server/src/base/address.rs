//! Peer addresses, and the origin by which connections are counted together.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

/// One end of a connection, displayed as in Redis: a unix socket is its path with port 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Network(SocketAddr),
    /// A process on this machine, connected through a unix socket.
    Local {
        /// Path of the socket; the client end has no address of its own.
        socket: Arc<Path>,
        /// User id of the process, as reported by the kernel.
        uid: u32,
    },
}

impl Address {
    pub(crate) fn origin(&self) -> Origin {
        match self {
            Address::Network(address) => Origin::of(address.ip()),
            Address::Local { uid, .. } => Origin::User(*uid),
        }
    }

    /// Returns the holder of the address for the log: a machine, or a user of this machine.
    pub(crate) fn holder(&self) -> String {
        match self {
            Address::Network(address) => address.ip().to_string(),
            Address::Local { socket, uid } => format!("{} (uid {uid})", socket.display()),
        }
    }

    /// Returns where the client is, without its address: `unix`, `loopback`, `private` or `public`.
    pub(crate) fn class(&self) -> &'static str {
        let Address::Network(address) = self else { return "unix" };
        let (is_loopback, is_private) = match address.ip().to_canonical() {
            IpAddr::V4(ip) => (ip.is_loopback(), ip.is_private() || ip.is_link_local()),
            IpAddr::V6(ip) => (ip.is_loopback(), ip.is_unique_local() || ip.is_unicast_link_local()),
        };
        match () {
            () if is_loopback => "loopback",
            () if is_private => "private",
            () => "public",
        }
    }

    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Address::Local { .. })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Network(address) => address.fmt(f),
            Address::Local { socket, .. } => write!(f, "{}:0", socket.display()),
        }
    }
}

/// Group of addresses whose connections are limited together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// An IPv4 address or an IPv6 /64, because the owner of one IPv6 address usually owns its whole /64.
    Network(IpAddr),
    /// A user of this machine, connected through a unix socket.
    User(u32),
}

impl Origin {
    pub(crate) fn of(address: IpAddr) -> Origin {
        Origin::Network(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) & !u128::from(u64::MAX)).into(),
            v4 => v4,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_in_ipv6_are_one_origin() {
        let of = |text: &str| Origin::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("10.0.0.1"), of("::ffff:10.0.0.1"));
    }

    #[test]
    fn class_of_an_address_names_no_client() {
        for (address, class) in [
            ("127.0.0.9:1", "loopback"),
            ("[::1]:1", "loopback"),
            ("[::ffff:10.0.0.1]:1", "private"),
            ("172.16.0.1:1", "private"),
            ("169.254.1.1:1", "private"),
            ("[fd00::1]:1", "private"),
            ("[fe80::1]:1", "private"),
            ("192.0.2.1:1", "public"),
            ("[2001:db8::1]:1", "public"),
        ] {
            assert_eq!(Address::Network(address.parse().unwrap()).class(), class, "{address}");
        }
        assert_eq!(Address::Local { socket: Path::new("/run/esker.sock").into(), uid: 1 }.class(), "unix");
    }

    #[test]
    fn users_of_this_machine_are_told_apart() {
        let of = |uid| Address::Local { socket: Path::new("/run/esker.sock").into(), uid };
        assert_eq!(of(1).origin(), of(1).origin());
        assert_ne!(of(1).origin(), of(2).origin());
        assert_eq!(of(1).to_string(), "/run/esker.sock:0");
        assert_eq!(of(1).holder(), "/run/esker.sock (uid 1)");
    }
}
