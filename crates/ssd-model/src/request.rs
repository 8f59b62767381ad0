//! Requests of a host to a drive, in workloads and traces.

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Write.
    Write,
    /// Read.
    Read,
    /// TRIM.
    Trim,
}

/// Stage at which a trace recorded a request; a trace may record it at several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Queued.
    Queued,
    /// Completed.
    Completed,
    /// Issued to the device, whole or in the pieces into which the queue split it.
    Issued,
}

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Index of the device in [`Requests::devices`](crate::Requests::devices).
    pub device: usize,
    /// Kind of request.
    pub kind: Kind,
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Time at which it was recorded.
    pub at_ns: u64,
    /// Stage at which it was recorded.
    pub stage: Stage,
}
