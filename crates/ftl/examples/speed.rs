//! Measures the model itself: IU writes a second, untimed.
fn main() {
    for (ius, op) in [(1u64 << 20, 0.125), (1 << 24, 0.125), (1 << 20, 0.28)] {
        let shape = esker_ftl::Shape::over_provisioned(64 << 10, ius << 16, op);
        let mut drive = esker_ftl::Drive::new(&shape).unwrap();
        let t = std::time::Instant::now();
        let mut x = 1u64;
        let n = 20_000_000u64;
        for _ in 0..n {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            drive.write(((x >> 33) % ius) << 16, 65536, esker_ftl::Handle(0)).unwrap();
        }
        let c = drive.counters();
        println!(
            "{ius} IUs: {n} host writes, waf {:.2} (from empty), {:.1} s, {:.1} ns a program",
            c.write_amplification(),
            t.elapsed().as_secs_f64(),
            t.elapsed().as_secs_f64() * 1e9 / (c.nand_bytes() >> 16) as f64
        );
    }
    let t = std::time::Instant::now();
    let r = esker_ftl::reproduce(1).unwrap();
    for row in &r.rows {
        println!(
            "{:40} {:>10.2} {:>10.2} {:>+6.1} % {}",
            row.what,
            row.published,
            row.model,
            row.deviation * 100.0,
            row.counts
        );
    }
    println!("{:.1} s", t.elapsed().as_secs_f64());
}
