//! Requests of a host to a drive, as workloads make them and traces have them.

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It writes.
    Write,
    /// It reads.
    Read,
    /// It tells that a range holds nothing of value.
    Trim,
}

/// Where in its life a request was seen; a trace may have seen it several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// When it was queued.
    Queued,
    /// When it was completed.
    Completed,
    /// When it was issued to the device, whole or in the pieces that the queue made of it.
    Issued,
}

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which device, as an index into [`Requests::devices`](crate::Requests::devices).
    pub device: usize,
    /// What it does.
    pub kind: Kind,
    /// Where it starts.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// When it was seen.
    pub at_ns: u64,
    /// At which stage.
    pub stage: Stage,
}
