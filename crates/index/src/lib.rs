//! The in-memory hash index of Esker: at most ten bytes a key, exact, lock-free look-ups
