fn main() {
    let t = std::time::Instant::now();
    let e = tessera_bench::Environment::detect();
    println!("{e:#?} {:?}", tessera_bench::Environment::available_bytes());
    let c = tessera_bench::Ceilings::measure(tessera_bench::ProbeOptions::for_cases(e.last_level_bytes, 1 << 30));
    println!("{:?}", t.elapsed());
    for r in &c.copy {
        println!("copy {:>10} {:.1} GB/s med {:.1} {}", r.footprint_bytes, r.best / 1e9, r.median / 1e9, r.how)
    }
    for r in &c.read {
        println!("read {:>10} {:.1} GB/s med {:.1} {}", r.footprint_bytes, r.best / 1e9, r.median / 1e9, r.how)
    }
    for (k, r) in &c.compute {
        println!("{k:?} {:.1} G med {:.1} {}", r.best / 1e9, r.median / 1e9, r.how)
    }
    println!("{:?}", tessera_bench::ClockFacts::measure(&tessera_bench::Monotonic::default()));
}
