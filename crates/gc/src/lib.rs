//! Relocation, victim choice and reclaiming for Esker's log
