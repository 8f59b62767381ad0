//! Flash media, with the figures that their makers published.
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

/// A kind of flash, by the behaviour of one die.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Medium {
    /// Name.
    pub name: &'static str,
    /// Source of the figures.
    pub source: &'static str,
    /// Planes of a die that work in parallel.
    pub planes: u32,
    /// Bytes of a page in one plane.
    pub page_bytes: u32,
    /// Bits per cell: the number of pages programmed together in a plane.
    pub bits_per_cell: u32,
    /// Time from the command until the page is in its register (tR).
    pub read_ns: u64,
    /// Time to program all bits of a word line in all planes (tPROG).
    pub program_ns: u64,
    /// Time to erase the blocks of all planes (tBERS).
    pub erase_ns: u64,
    /// Bytes erased by one erase of a die.
    pub erase_bytes: u64,
    /// Time to interrupt a program or an erase for a read.
    pub suspend_ns: u64,
    /// Bytes per second between a die and the controller, on the shared channel.
    pub bus_bytes_per_s: u64,
}

impl Medium {
    /// QLC with 144 layers, 1 Tb per die: 40 MB/s program throughput, tR of 85 µs.
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

    /// TLC with 96 layers, 512 Gb per die: 57 MB/s program throughput, tR of 58 µs.
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

    /// Low-latency flash with one bit per cell, 128 Gb per die: tPROG of 75 µs, tR of 4 µs. Bus speed: that of the same
    /// makers' part of 2019.
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

    /// Returns the bytes written by one program of a die.
    pub fn program_bytes(&self) -> u64 {
        u64::from(self.planes * self.page_bytes * self.bits_per_cell)
    }

    /// Returns the bytes that one read of a die loads into its registers.
    pub fn row_bytes(&self) -> u64 {
        u64::from(self.planes * self.page_bytes)
    }
}
