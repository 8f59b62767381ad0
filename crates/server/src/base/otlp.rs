//! Settings of traces: the collector, and the requests that become spans.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use hyper::Uri;

/// Path of an OTLP/HTTP collector for traces, below the path of the endpoint.
const TRACES_PATH: &str = "/v1/traces";

/// Port of OTLP/HTTP, if an endpoint has none.
const PORT_DEFAULT: u16 = 4318;

/// Settings of traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceConfig {
    /// The collector that receives the spans.
    pub endpoint: OtlpEndpoint,
    /// Requests that run at least as long become spans.
    pub slower_than: Duration,
}

/// The address of an OTLP/HTTP collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpEndpoint {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) path: String,
}

impl OtlpEndpoint {
    /// Returns the value of the header `Host`.
    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Returns host and port for a resolver, which takes an IPv6 address without brackets.
    pub(crate) fn target(&self) -> (&str, u16) {
        let bare = self.host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        (bare.unwrap_or(&self.host), self.port)
    }
}

impl FromStr for OtlpEndpoint {
    type Err = String;

    /// Parses `http://HOST[:PORT][/PATH]`. As for other senders of OTLP, `/v1/traces` is appended to the path.
    fn from_str(text: &str) -> Result<OtlpEndpoint, String> {
        const FORM: &str = "give http://HOST:PORT of an OTLP/HTTP collector, such as http://127.0.0.1:4318";
        let uri = text.parse::<Uri>().map_err(|error| format!("'{text}' is no URL ({error}); {FORM}"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err(format!(
                    "'{text}' is https, and spans are sent over plain HTTP; run a collector on this machine that forwards \
                     them over TLS, and give http://127.0.0.1:4318"
                ));
            }
            _ => return Err(format!("'{text}' does not begin with http://; {FORM}")),
        }
        let authority = uri.authority().ok_or_else(|| format!("'{text}' has no host; {FORM}"))?;
        if authority.as_str().contains('@') {
            return Err(format!("'{text}' has a user, which would be sent in plain text; {FORM}"));
        }
        // A port that is no number, or an empty one, is none of the parsed parts.
        let has_port = authority.as_str().len() > authority.host().len();
        let port = match authority.port_u16() {
            Some(0) => None,
            None if !has_port => Some(PORT_DEFAULT),
            port => port,
        };
        let port = port.ok_or_else(|| format!("'{text}' has no port in 1..=65535; {FORM}"))?;
        if authority.host().is_empty() || uri.query().is_some() {
            return Err(format!("'{text}' has no host, or a query; {FORM}"));
        }
        let base = uri.path().trim_end_matches('/');
        let base = base.strip_suffix(TRACES_PATH).unwrap_or(base);
        Ok(OtlpEndpoint { host: authority.host().to_owned(), port, path: format!("{base}{TRACES_PATH}") })
    }
}

impl fmt::Display for OtlpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}{}", self.host, self.port, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_gets_port_and_path_of_otlp() {
        for (text, shown) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
            ("http://collector", "http://collector:4318/v1/traces"),
            ("http://[::1]:1/otlp/", "http://[::1]:1/otlp/v1/traces"),
            ("http://a:1/otlp/v1/traces", "http://a:1/otlp/v1/traces"),
        ] {
            assert_eq!(text.parse::<OtlpEndpoint>().unwrap().to_string(), shown);
        }
        let v6: OtlpEndpoint = "http://[::1]:1".parse().unwrap();
        assert_eq!((v6.target(), v6.authority().as_str()), (("::1", 1), "[::1]:1"));
    }

    #[test]
    fn unusable_endpoint_is_refused_with_remedy() {
        for (text, why) in [
            ("https://127.0.0.1:4318", "over plain HTTP"),
            ("127.0.0.1:4318", "http://127.0.0.1:4318"),
            ("grpc://a:4317", "does not begin with http://"),
            ("http://user:secret@a:1", "has a user"),
            ("http://a:0", "no port in"),
            ("http://a:65536", "http://HOST:PORT"),
            ("http://a:1/?x=1", "a query"),
            ("http://", "http://HOST:PORT"),
            ("http:// a", "http://HOST:PORT"),
        ] {
            let error = text.parse::<OtlpEndpoint>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
