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
