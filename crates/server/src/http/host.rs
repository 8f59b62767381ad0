//! The `Host` check of requests that need no password.
//!
//! A page in a browser can make its own domain name resolve to this machine (DNS rebinding), and then read replies as if they
//! came from its own site. Its requests carry that domain in `Host`. A request without a user is therefore answered only if
//! `Host` is an IP address, which no domain can imitate, `localhost`, or one of `http-hosts`.

use std::net::{IpAddr, Ipv6Addr};

use hyper::header::{HOST, HeaderMap};
use hyper::http::uri::Authority;

/// Checks the host of a request. Requests without `Host` pass: they do not come from browsers.
///
/// # Errors
/// The text of the error response.
pub(super) fn check(headers: &HeaderMap, allowed: &[String]) -> Result<(), String> {
    let Some(given) = headers.get(HOST) else { return Ok(()) };
    let host = given.to_str().ok().and_then(|text| text.parse::<Authority>().ok());
    let host = host.as_ref().map_or("", Authority::host).trim_end_matches('.');
    let is_local =
        host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost");
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_address =
        host.parse::<IpAddr>().is_ok() || bracketed.is_some_and(|host| host.parse::<Ipv6Addr>().is_ok());
    if is_local || is_address || allowed.iter().any(|name| name.eq_ignore_ascii_case(host)) {
        return Ok(());
    }
    Err(format!(
        "a request for host \"{}\" is not answered without a password: ask by an IP address or localhost, or name the host \
         in http-hosts\n",
        given.as_bytes().escape_ascii()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_localhost_and_configured_names_are_answered() {
        let allowed = ["Metrics.example".to_owned()];
        let answered = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            check(&headers, &allowed)
        };
        for host in [
            "127.0.0.1",
            "127.0.0.1:9121",
            "192.0.2.7:80",
            "[::1]",
            "[::1]:9121",
            "localhost",
            "LOCALHOST:9121",
            "localhost.:9121",
            "a.localhost",
            "metrics.example",
            "metrics.EXAMPLE:9121",
        ] {
            assert_eq!(answered(host), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9121",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "notlocalhost",
            "metrics.example.evil",
            "xmetrics.example",
            "user@localhost.evil",
            "",
            "[evil]",
        ] {
            let refused = answered(host).expect_err(host);
            assert!(refused.contains("http-hosts") && refused.contains(host), "{refused}");
        }
        assert_eq!(check(&HeaderMap::new(), &allowed), Ok(()));
    }
}
