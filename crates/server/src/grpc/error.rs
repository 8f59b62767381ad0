//! gRPC errors: a status code to branch on, and a `google.rpc.ErrorInfo` with the reason and its metadata.

use std::collections::HashMap;
use std::time::Duration;

use esker_engine::{ClusterError, Error, ErrorKind};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::base::pool::Busy;
use crate::base::settings::text_of;
use crate::budget::Refused;
use crate::service::retries::NOT_LEADER;

/// Domain of the reasons.
const DOMAIN: &str = "esker";

/// Suggested delay before retrying.
const TRY_AGAIN: Duration = Duration::from_millis(100);

fn status(code: Code, reason: &str, text: String, about: HashMap<String, String>) -> Status {
    let again = code == Code::Unavailable && reason != "CLOSED";
    told(code, reason, text, about, again)
}

/// `again`: true if the same call may succeed soon.
fn told(code: Code, reason: &str, text: String, about: HashMap<String, String>, again: bool) -> Status {
    let mut details = ErrorDetails::with_error_info(reason, DOMAIN, about);
    if again {
        details.set_retry_info(Some(TRY_AGAIN));
    }
    Status::with_error_details(code, text, details)
}

pub(super) fn of_store(error: &Error) -> Status {
    if let Error::Cluster(error) = error {
        return of_cluster(error, None);
    }
    let (code, reason) = match error.kind() {
        ErrorKind::Invalid => (Code::InvalidArgument, "INVALID"),
        ErrorKind::Conflict => (Code::FailedPrecondition, "CONFLICT"),
        ErrorKind::Full => (Code::ResourceExhausted, "FULL"),
        ErrorKind::Corrupt => (Code::DataLoss, "CORRUPT"),
        ErrorKind::Locked => (Code::Unavailable, "LOCKED"),
        ErrorKind::Closed => (Code::Unavailable, "CLOSED"),
        ErrorKind::Io => (Code::Internal, "IO"),
        ErrorKind::Cancelled => (Code::Cancelled, "CANCELLED"),
        ErrorKind::Unsupported => (Code::Unimplemented, "UNSUPPORTED"),
        _ => (Code::Unknown, "UNKNOWN"),
    };
    let mut about = HashMap::new();
    let mut add = |name: &str, value: u64| about.insert(name.to_owned(), value.to_string());
    match error {
        Error::Conflict { current: Some(version), .. } => {
            add("current_version", *version);
        }
        Error::Full { live_bytes, limit_bytes, .. } => {
            add("live_bytes", *live_bytes);
            add("limit_bytes", *limit_bytes);
        }
        _ => {}
    }
    told(code, reason, text_of(error), about, error.is_retryable())
}

/// `address`: that of the leader for gRPC clients, if it is known.
pub(super) fn of_cluster(error: &ClusterError, address: Option<String>) -> Status {
    let mut about = HashMap::new();
    let mut add = |name: &str, value: String| about.insert(name.to_owned(), value);
    let (code, reason, again) = match error {
        ClusterError::Elsewhere { slot, to } => {
            add("slot", slot.to_string());
            add("resp_address", to.clone());
            address.map(|address| add("address", address));
            (Code::FailedPrecondition, NOT_LEADER, false)
        }
        ClusterError::NoLeader { slot, .. } => {
            add("slot", slot.to_string());
            (Code::Unavailable, "NO_LEADER", true)
        }
        ClusterError::NotReady { slot } => {
            add("slot", slot.to_string());
            (Code::Unavailable, "NOT_READY", true)
        }
        ClusterError::SeveralGroups => (Code::InvalidArgument, "CROSS_SLOT", false),
        ClusterError::KeyInDoubt => (Code::Unavailable, "KEY_IN_DOUBT", true),
        ClusterError::Uncertain { .. } => (Code::Aborted, "UNCERTAIN", false),
        _ => (Code::Unknown, "UNKNOWN", false),
    };
    told(code, reason, error.to_string(), about, again)
}

/// Error for a condition on a version in a cluster.
pub(super) fn no_versions() -> Status {
    let text = "versions cannot be compared in a cluster: each node has its own; compare the value";
    status(Code::Unimplemented, "UNSUPPORTED", text.to_owned(), HashMap::new())
}

pub(super) fn of_memory(refused: Refused) -> Status {
    match refused {
        Refused::TooMuch { .. } => {
            status(Code::ResourceExhausted, "CLIENT_MEMORY", refused.to_string(), HashMap::new())
        }
        Refused::UsedUp => status(Code::Unavailable, "CLIENT_MEMORY", refused.to_string(), HashMap::new()),
    }
}

pub(super) fn invalid(text: impl Into<String>) -> Status {
    status(Code::InvalidArgument, "INVALID", text.into(), HashMap::new())
}

pub(super) fn conflict(text: String, current: u64) -> Status {
    let about = HashMap::from([("current_version".to_owned(), current.to_string())]);
    status(Code::FailedPrecondition, "CONFLICT", text, about)
}

pub(super) fn too_large(text: String) -> Status {
    status(Code::ResourceExhausted, "TOO_LARGE", text, HashMap::new())
}

pub(super) fn not_logged_in(text: &str) -> Status {
    status(Code::Unauthenticated, "LOGIN", text.to_owned(), HashMap::new())
}

pub(super) fn busy(busy: &Busy) -> Status {
    status(Code::Unavailable, "BUSY", busy.to_string(), HashMap::new())
}

pub(super) fn no_right(text: impl Into<String>) -> Status {
    status(Code::PermissionDenied, "NO_RIGHT", text.into(), HashMap::new())
}

/// Error for a call of `method` that requires `command`, a RESP command that the user may not run.
pub(super) fn no_right_to_run(command: &str, method: &str) -> Status {
    let text = format!(
        "{method} needs the right to run {command}, which this user does not have; an admin gives it with ACL SETUSER"
    );
    let about = HashMap::from([("command".to_owned(), command.to_owned())]);
    status(Code::PermissionDenied, "NO_RIGHT", text, about)
}

pub(super) fn out_of_range(text: String, value: i64) -> Status {
    let about = HashMap::from([("value".to_owned(), value.to_string())]);
    status(Code::OutOfRange, "OUT_OF_RANGE", text, about)
}

pub(super) fn not_a_number(text: String, current: u64) -> Status {
    let about = HashMap::from([("current_version".to_owned(), current.to_string())]);
    status(Code::FailedPrecondition, "NOT_A_NUMBER", text, about)
}

pub(super) fn another_request() -> Status {
    let text = "another request had this request_id in the last five minutes; each has its own".to_owned();
    status(Code::InvalidArgument, "REQUEST_ID", text, HashMap::new())
}

pub(super) fn forgotten() -> Status {
    let text = "this may have been done already: the server was started, or forgot an answer early, since less than five \
                minutes; look at what the store has, and make a new request of what is still to be done";
    status(Code::Aborted, "FORGOTTEN", text.to_owned(), HashMap::new())
}

pub(super) fn missed() -> Status {
    let text = "changes came faster than they were taken, and some are missing from here on; watch again, and read what you \
                watch";
    status(Code::Aborted, "MISSED", text.to_owned(), HashMap::new())
}

pub(super) fn too_many_watches(text: &str) -> Status {
    status(Code::ResourceExhausted, "WATCHES", text.to_owned(), HashMap::new())
}

pub(super) fn stopping() -> Status {
    status(Code::Unavailable, "STOPPING", "the server is stopping".to_owned(), HashMap::new())
}

pub(super) fn closed() -> Status {
    status(Code::Unavailable, "CLOSED", "the store is closed".to_owned(), HashMap::new())
}

pub(super) fn too_slow() -> Status {
    let text = "the request did not arrive in time (command-timeout)".to_owned();
    status(Code::DeadlineExceeded, "SLOW", text, HashMap::new())
}

/// Uses `Aborted`, because `Cancelled` would be mistaken for a cancellation by the client.
pub(super) fn cut(why: &str) -> Status {
    status(Code::Aborted, "CUT", format!("the request was cut: {why}"), HashMap::new())
}
