//! A fast tier in front of a capacity tier. Here both are files; block devices work the same way.
//!
//! `cargo run --example two_tiers [FAST CAPACITY]`

use esker::{Blocking, Error, Options};

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let at = |name: &str| {
        let path = std::env::temp_dir().join(format!("esker-{name}-{}", std::process::id()));
        path.display().to_string()
    };
    let fast = arguments.next().unwrap_or_else(|| at("fast"));
    let capacity = arguments.next().unwrap_or_else(|| at("capacity"));
    let options = Options::fast_and_capacity(fast, capacity)
        .indirection_unit_bytes(64 << 10)
        .segment_bytes(1 << 20)
        .fast_limit_bytes(16 << 20)
        .capacity_limit_bytes(1 << 30);
    let store = Blocking::open(options)?;

    // More than the fast tier holds: its oldest records are destaged to the capacity tier.
    let value = vec![7u8; 4000];
    for n in 0..10_000u32 {
        store.put(n.to_le_bytes(), &value)?;
    }
    // A value of at least one indirection unit is written directly to the capacity tier.
    store.put("large", vec![1u8; 64 << 10])?;

    let stats = store.stats();
    for tier in &stats.tiers {
        println!(
            "{:>8}: {} of {} segments free, {} live bytes, writes of whole {} bytes",
            tier.name, tier.segments_free, tier.segments_total, tier.live_bytes, tier.unit_bytes
        );
    }
    assert!(stats.activity.segments_freed > 0 && stats.tiers[1].live_bytes > 0);
    for n in [0, 5000, 9999u32] {
        assert_eq!(store.get(n.to_le_bytes())?.as_deref(), Some(&value[..]));
    }
    store.close()
}
