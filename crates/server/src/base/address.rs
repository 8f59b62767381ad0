//! Where a connection comes from, as far as one holder of addresses is told from another.

use std::net::{IpAddr, Ipv6Addr};

/// An IPv4 address or an IPv6 /64: whoever has one IPv6 address mostly has all of its /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin(IpAddr);

impl Origin {
    pub(crate) fn of(address: IpAddr) -> Origin {
        Origin(match address.to_canonical() {
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
}
