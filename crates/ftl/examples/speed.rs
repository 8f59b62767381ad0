//! Fit.
fn main() {
    use esker_ftl::*;
    for op in [0.122, 0.126] {
        let p = Profile { over_provisioning: op, ..PROFILES[0] };
        let r: Vec<_> = [4096u64, 65536]
            .iter()
            .map(|b| {
                run(&p, &p.shape(1.0), &Job { block: *b, ..Job::default() }, 1).unwrap().write_amplification
            })
            .collect();
        println!("{op} {r:?}");
    }
    for op in [0.15, 0.155] {
        let p = Profile { over_provisioning: op, ..PROFILES[1] };
        let r: Vec<_> = [1.0, 3.2 / 3.84]
            .iter()
            .map(|s| {
                run(&p, &p.shape(*s), &Job { writers: 8, queue_depth: 32, ..Job::default() }, 1).unwrap()
            })
            .map(|r| (r.write_amplification, r.writes_per_s))
            .collect();
        println!("{op} {r:?} {}", r[1].1 / r[0].1);
    }
}
