//! Esker's network front ends
