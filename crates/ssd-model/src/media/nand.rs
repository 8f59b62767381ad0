//! Media, with the figures that their makers published.
//!
//! Sources:
//! * AnandTech: "2021 NAND Flash Updates from ISSCC", 2021-02-19: its tables of program throughput, read latency, planes, I/O
//!   speed and erase block of the parts that were presented at ISSCC from 2018 to 2021.
//! * ISSCC 2021, 30.2: "A 1Tb 4b/Cell 144-Tier Floating-Gate 3D-NAND Flash Memory with 40MB/s Program Throughput".
//! * ISSCC 2018, 20.1: "A 512Gb 3b/Cell 3D Flash Memory on a 96-Word-Line-Layer Technology".
//! * JSSC 2021: "A 128Gb 1-bit/Cell 96-Word-Line-Layer 3D Flash Memory to Improve the Random Read Latency With tPROG = 75 µs
//!   and tR = 4 µs".
//! * FEMU, design chapter "NAND media and timing model": erase times (3 ms of TLC and QLC, 2 ms of SLC) and a suspension of
//!   5 µs, which the papers do not have.

use serde::Serialize;

/// A kind of flash, as one die of it behaves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Medium {
    /// What it is called.
    pub name: &'static str,
    /// Where its figures are from.
    pub source: &'static str,
    /// Planes of a die that work at once.
    pub planes: u32,
    /// A page of a plane.
    pub page_bytes: u32,
    /// Pages that are programmed at once in a plane: bits in a cell.
    pub bits_per_cell: u32,
    /// From the command to the page being in its register (tR).
    pub read_ns: u64,
    /// Programming all bits of a word line in all planes (tPROG).
    pub program_ns: u64,
    /// Erasing the blocks of all planes (tBERS).
    pub erase_ns: u64,
    /// What one erase of a die erases.
    pub erase_bytes: u64,
    /// Interrupting a program or an erase for a read.
    pub suspend_ns: u64,
    /// Bytes a second between a die and the controller, on the channel that it shares.
    pub bus_bytes_per_s: u64,
}

impl Medium {
    /// QLC of 144 layers, 1 Tb a die: 40 MB/s of programming, tR of 85 µs.
    pub const QLC: Medium = Medium {
        name: "QLC, 144 layers",
        source: "ISSCC 2021 30.2, by AnandTech 2021-02-19; erase and suspend: FEMU",
        planes: 4,
        page_bytes: 16 << 10,
        bits_per_cell: 4,
        read_ns: 85_000,
        program_ns: 256 * 1024 * 1000 / 40,
        erase_ns: 3_000_000,
        erase_bytes: 48 << 20,
        suspend_ns: 5_000,
        bus_bytes_per_s: 1_200_000_000,
    };

    /// TLC of 96 layers, 512 Gb a die: 57 MB/s of programming, tR of 58 µs.
    pub const TLC: Medium = Medium {
        name: "TLC, 96 layers",
        source: "ISSCC 2018 20.1, by AnandTech 2021-02-19; erase and suspend: FEMU",
        planes: 2,
        page_bytes: 16 << 10,
        bits_per_cell: 3,
        read_ns: 58_000,
        program_ns: 96 * 1024 * 1000 / 57,
        erase_ns: 3_000_000,
        erase_bytes: 18 << 20,
        suspend_ns: 5_000,
        bus_bytes_per_s: 533_000_000,
    };

    /// Low-latency flash of one bit a cell, 128 Gb a die: tPROG of 75 µs, tR of 4 µs. Its bus is that of the same makers' part
    /// of 2019.
    pub const LOW_LATENCY: Medium = Medium {
        name: "low-latency flash, one bit a cell",
        source: "JSSC 2021, tPROG = 75 µs and tR = 4 µs; bus: AnandTech 2021-02-19; erase and suspend: FEMU",
        planes: 16,
        page_bytes: 4 << 10,
        bits_per_cell: 1,
        read_ns: 4_000,
        program_ns: 75_000,
        erase_ns: 2_000_000,
        erase_bytes: 24 << 20,
        suspend_ns: 5_000,
        bus_bytes_per_s: 1_066_000_000,
    };

    /// What one program of a die writes.
    pub fn program_bytes(&self) -> u64 {
        u64::from(self.planes * self.page_bytes * self.bits_per_cell)
    }

    /// What one read of a die brings into its registers.
    pub fn row_bytes(&self) -> u64 {
        u64::from(self.planes * self.page_bytes)
    }
}
