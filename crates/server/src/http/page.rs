//! The page at `/`: one file with its style and its script, which polls `/status.json`.
//!
//! `Content-Security-Policy` restricts browsers to the content of the file: style and script carry a nonce drawn for each
//! response, and requests go to this server only.

use base64ct::{Base64, Encoding};
use hyper::StatusCode;
use hyper::header::{
    CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};

use super::{Answer, of_type, plain};

const PAGE: &str = include_str!("page.html");
const HTML: &str = "text/html; charset=utf-8";

/// Placeholder of the nonce in the file.
const NONCE: &str = "{{nonce}}";

/// Returns the page.
pub(super) fn answer() -> Answer {
    let nonce = nonce();
    let mut answer = of_type(HTML, plain(StatusCode::OK, PAGE.replace(NONCE, &nonce)));
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let headers = answer.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_str(&policy).expect("the policy is ASCII"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let isolation = HeaderName::from_static("cross-origin-resource-policy");
    headers.insert(isolation, HeaderValue::from_static("same-origin"));
    answer
}

/// Returns a random nonce that cannot be guessed before the page is sent.
fn nonce() -> String {
    let mut bytes = [0; 18];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    Base64::encode_string(&bytes)
}
