//! The Esker store: put, get, delete, batches, recovery, destaging
