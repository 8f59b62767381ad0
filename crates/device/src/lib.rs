//! Block devices for Esker: geometry, aligned buffers, io_uring, thread-pool and in-memory backends, and the runtime that all nondeterminism goes through
