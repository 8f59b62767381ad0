//! The bytes of Esker's log: record, frame, segment, summary, superblock
