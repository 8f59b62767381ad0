//! Several writes that happen together or not at all.

use bytes::Bytes;

/// Writes that are acknowledged, seen and recovered together or not at all.
///
/// Later operations on a key win over earlier ones in the same batch.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(crate) operations: Vec<Operation>,
}

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Put { key: Bytes, value: Bytes, expires_at_ms: Option<u64> },
    Delete { key: Bytes },
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Adds a put.
    pub fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> &mut Batch {
        self.operations.push(Operation::Put { key: key.into(), value: value.into(), expires_at_ms: None });
        self
    }

    /// Adds a put that expires at a wall-clock time in milliseconds since the Unix epoch.
    pub fn put_expiring(
        &mut self,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
        expires_at_ms: u64,
    ) -> &mut Batch {
        let expires_at_ms = Some(expires_at_ms);
        self.operations.push(Operation::Put { key: key.into(), value: value.into(), expires_at_ms });
        self
    }

    /// Adds a delete. Deleting a key that is not there is not an error.
    pub fn delete(&mut self, key: impl Into<Bytes>) -> &mut Batch {
        self.operations.push(Operation::Delete { key: key.into() });
        self
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }
}
