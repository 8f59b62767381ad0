//! Measures the speed of the model: `cargo run --release -p esker-ssd-model --example speed`.
//!
//! 100 million random writes of one IU, for three drives, without time and without preconditioning.
#![allow(clippy::disallowed_methods, reason = "it measures real time")]

use std::time::Instant;

use esker_ssd_model::{Drive, Error, Handle, Shape};

const WRITES: u64 = 100_000_000;
const IU: u64 = 64 << 10;

fn main() -> Result<(), Error> {
    for (ius, over_provisioning) in [(1 << 20, 0.28), (1 << 20, 0.124), (1 << 24, 0.28)] {
        let mut drive = Drive::new(&Shape::over_provisioned(IU as u32, ius * IU, over_provisioning))?;
        let (start, mut random) = (Instant::now(), 1u64);
        for _ in 0..WRITES {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            drive.write((random >> 33) % ius * IU, IU, Handle(0))?;
        }
        let (seconds, counters) = (start.elapsed().as_secs_f64(), drive.counters());
        println!(
            "{ius} IUs, {:.1} % over-provisioning: {WRITES} writes in {seconds:.1} s, WAF {:.2}, {:.1} ns for each program",
            over_provisioning * 100.0,
            counters.write_amplification(),
            seconds * 1e9 / (counters.nand_bytes() / IU) as f64
        );
    }
    Ok(())
}
