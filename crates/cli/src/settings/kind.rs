//! The syntax of a setting's text, and its parsed value.

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use esker_engine::{Compression, Durability, Error, MaxGarbage};

use crate::time;

/// The type of a setting.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Text that is not empty.
    Text,
    /// A path.
    Path,
    /// Paths separated by commas.
    Paths,
    /// Addresses `HOST:PORT` separated by commas, or `none`. A port alone is one of 127.0.0.1.
    Addresses,
    /// A number of bytes such as `512m`.
    Size,
    /// A whole number in a range.
    Count(u64, u64),
    /// A time such as `30s`; `0` for none.
    Time,
    /// `true` or `false`.
    Switch,
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// Permissions of a file, in octal digits.
    Mode,
    /// A durability level.
    Durability,
    /// A compression method.
    Compression,
    /// A bound of garbage.
    MaxGarbage,
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Path(PathBuf),
    Paths(Vec<PathBuf>),
    Addresses(Vec<SocketAddr>),
    Size(u64),
    Count(u64),
    Time(Duration),
    Switch(bool),
    Mode(u32),
    Durability(Durability),
    Compression(Compression),
    MaxGarbage(MaxGarbage),
}

impl Kind {
    /// Parses a text. Returns the reason if it is not a value.
    pub(crate) fn parse(self, text: &str) -> Result<Value, String> {
        if text.is_empty() {
            return Err(format!("it must be {}, and it is empty", self.form()));
        }
        Ok(match self {
            Kind::Text => Value::Text(text.to_owned()),
            Kind::Path => Value::Path(text.into()),
            Kind::Paths => Value::Paths(text.split(',').map(PathBuf::from).collect()),
            Kind::Addresses => Value::Addresses(addresses(text)?),
            Kind::Size => Value::Size(esker_command::parse(text)?),
            Kind::Count(least, most) => match text.parse() {
                Ok(count) if (least..=most).contains(&count) => Value::Count(count),
                _ => return Err(format!("'{text}' is not {}", self.form())),
            },
            Kind::Time => Value::Time(time::parse(text)?),
            Kind::Switch => match text {
                "true" | "yes" => Value::Switch(true),
                "false" | "no" => Value::Switch(false),
                _ => return Err(format!("'{text}' is not {}", self.form())),
            },
            Kind::Choice(words) if words.contains(&text) => Value::Text(text.to_owned()),
            Kind::Choice(_) => return Err(format!("'{text}' is not {}", self.form())),
            Kind::Mode => match u32::from_str_radix(text, 8) {
                Ok(mode) if mode <= 0o777 && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                    Value::Mode(mode)
                }
                _ => return Err(format!("'{text}' is not {}", self.form())),
            },
            Kind::Durability => Value::Durability(text.parse().map_err(|error: Error| error.to_string())?),
            Kind::Compression => Value::Compression(text.parse().map_err(|error: Error| error.to_string())?),
            Kind::MaxGarbage => Value::MaxGarbage(text.parse().map_err(|error: Error| error.to_string())?),
        })
    }

    /// Returns true if its flag may be repeated.
    pub(crate) fn is_list(self) -> bool {
        matches!(self, Kind::Paths)
    }

    /// Returns true if its flag needs no value.
    pub(crate) fn is_switch(self) -> bool {
        matches!(self, Kind::Switch)
    }

    /// Returns a description of the expected text, for messages.
    pub(crate) fn form(self) -> String {
        match self {
            Kind::Text => "a text".to_owned(),
            Kind::Path => "a path".to_owned(),
            Kind::Paths => "a path, or several with commas".to_owned(),
            Kind::Addresses => {
                "HOST:PORT such as 127.0.0.1:6379 or a port alone for 127.0.0.1, several with commas, or none"
                    .to_owned()
            }
            Kind::Size => "a size such as 512m".to_owned(),
            Kind::Count(least, u64::MAX) => format!("a whole number of at least {least}"),
            Kind::Count(least, most) => format!("a whole number in {least}..={most}"),
            Kind::Time => "a time such as 500ms, 30s or 5m".to_owned(),
            Kind::Switch => "true or false".to_owned(),
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::Mode => "permissions in octal, such as 700 or 0770".to_owned(),
            Kind::Durability => Durability::WORDS.to_owned(),
            Kind::Compression => Compression::WORDS.to_owned(),
            Kind::MaxGarbage => MaxGarbage::WORDS.to_owned(),
        }
    }

    /// Returns the placeholder in `--help` and in the example file.
    pub(crate) fn placeholder(self) -> &'static str {
        match self {
            Kind::Text => "TEXT",
            Kind::Path | Kind::Paths => "PATH",
            Kind::Addresses => "HOST:PORT",
            Kind::Size => "SIZE",
            Kind::Count(..) => "NUMBER",
            Kind::Time => "TIME",
            Kind::Switch => "BOOL",
            Kind::Choice(_) => "WORD",
            Kind::Mode => "OCTAL",
            Kind::Durability => "WHEN",
            Kind::Compression => "HOW",
            Kind::MaxGarbage => "PERCENT",
        }
    }
}

fn addresses(text: &str) -> Result<Vec<SocketAddr>, String> {
    let of = |text: &str| {
        // A port without an address is bound to the loopback, which no other machine can reach.
        if let Ok(port) = text.strip_prefix(':').unwrap_or(text).parse::<u16>() {
            return Ok(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))]);
        }
        let hint = "give HOST:PORT such as 127.0.0.1:6379, or a port alone for 127.0.0.1";
        let found = text.to_socket_addrs().map_err(|error| format!("'{text}': {error}; {hint}"))?;
        let found = usable(found, is_here);
        if found.is_empty() { Err(format!("'{text}' has no address")) } else { Ok(found) }
    };
    if text == "none" {
        return Ok(Vec::new());
    }
    let found: Result<Vec<_>, _> = text.split(',').map(|text| of(text.trim())).collect();
    Ok(found?.concat())
}

/// Keeps the addresses of a name that this machine has: `localhost` may have an IPv6 address on a machine
/// without IPv6. If the machine has none of them, all are kept, and binding reports the error. A single
/// address is always kept.
fn usable(
    found: impl IntoIterator<Item = SocketAddr>,
    is_here: impl Fn(&SocketAddr) -> bool,
) -> Vec<SocketAddr> {
    let mut all = Vec::new();
    for address in found {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    if all.len() > 1 && all.iter().any(&is_here) {
        all.retain(is_here);
    }
    all
}

/// Returns true if the machine has the address. Does not listen on it.
fn is_here(address: &SocketAddr) -> bool {
    UdpSocket::bind((address.ip(), 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_resolves_to_all_its_addresses() {
        let [v4, v6, other] = ["127.0.0.1:6379", "[::1]:6379", "192.0.2.1:6379"]
            .map(|text| text.parse::<SocketAddr>().unwrap());
        assert_eq!(usable([v6, v4, v6], |_| true), [v6, v4]);
        assert_eq!(usable([v6, v4], |address| address.is_ipv4()), [v4], "without IPv6");
        assert_eq!(usable([v6, v4], |_| false), [v6, v4], "listening is to say what is wrong");
        assert_eq!(usable([other], |_| false), [other]);
        // Independent of the machine's resolver.
        let expected = usable("localhost:6379".to_socket_addrs().unwrap(), is_here);
        assert_eq!(Kind::Addresses.parse("localhost:6379"), Ok(Value::Addresses(expected)));
    }

    #[test]
    fn texts_become_values() {
        let lists = Kind::Addresses.parse("127.0.0.1:1, [::1]:2").unwrap();
        let expected = ["127.0.0.1:1", "[::1]:2"].map(|text| text.parse().unwrap());
        assert_eq!(lists, Value::Addresses(expected.to_vec()));
        let ports = Kind::Addresses.parse("7970, :7971,[::1]:2").unwrap();
        let expected = ["127.0.0.1:7970", "127.0.0.1:7971", "[::1]:2"].map(|text| text.parse().unwrap());
        assert_eq!(ports, Value::Addresses(expected.to_vec()));
        assert_eq!(Kind::Count(1, 9).parse("9"), Ok(Value::Count(9)));
        assert_eq!(Kind::Mode.parse("0770"), Ok(Value::Mode(0o770)));
        assert_eq!(Kind::Switch.parse("yes"), Ok(Value::Switch(true)));
        assert_eq!(Kind::Choice(&["a", "b"]).parse("b"), Ok(Value::Text("b".to_owned())));
        for (kind, text, expected) in [
            (Kind::Path, "", "a path"),
            (Kind::Addresses, "here", "HOST:PORT"),
            (Kind::Addresses, "65536", "HOST:PORT"),
            (Kind::Count(1, 9), "10", "in 1..=9"),
            (Kind::Count(1, u64::MAX), "0", "at least 1"),
            (Kind::Mode, "8", "in octal"),
            (Kind::Mode, "+7", "in octal"),
            (Kind::Mode, "1777", "in octal"),
            (Kind::Switch, "maybe", "true or false"),
            (Kind::Choice(&["a", "b"]), "c", "a, b"),
        ] {
            let error = kind.parse(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
