//! What this process takes of the machine, as Linux says it; zeros elsewhere.

/// Resident memory in bytes.
pub(crate) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0u64) * 1024
}

/// Processor time that was used, in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    // In hundredths of a second on every Linux.
    (ticks(11) + ticks(12)) / 100.0
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn there_is_some_of_both() {
        assert!(super::resident_bytes() > 1 << 20);
        let began = super::cpu_seconds();
        let mut sum = 0u64;
        while super::cpu_seconds() < began + 0.02 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(super::cpu_seconds() > began);
    }
}
