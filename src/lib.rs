//! Esker: the embedded library.
