//! The page at `/`: one file with its style and its script, which asks for `/status.json` again and again.
//!
//! A browser runs and shows nothing but what is in the file (`Content-Security-Policy`): style and script are named by a
//! number that is drawn for each answer, and nothing but this server is asked for anything.

use base64ct::{Base64, Encoding};
use hyper::StatusCode;
use hyper::header::{
    CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};

use super::{Answer, of_type, plain};

const PAGE: &str = include_str!("page.html");
const HTML: &str = "text/html; charset=utf-8";

/// What stands in the file for the number.
const NONCE: &str = "{{nonce}}";

/// The page.
pub(super) fn answer() -> Answer {
    let nonce = nonce();
    let mut answer = of_type(HTML, plain(StatusCode::OK, PAGE.replace(NONCE, &nonce)));
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let headers = answer.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_str(&policy).expect("it is of ASCII"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let isolation = HeaderName::from_static("cross-origin-resource-policy");
    headers.insert(isolation, HeaderValue::from_static("same-origin"));
    answer
}

/// Nobody guesses it before the page is there.
fn nonce() -> String {
    let mut bytes = [0; 18];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    Base64::encode_string(&bytes)
}
