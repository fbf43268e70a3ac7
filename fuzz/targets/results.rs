//! Results files: reading never panics, and what is read can be shown, compared with itself and reported.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tessera_bench::{CompareOptions, Results, compare, footer, report, table};

fuzz_target!(|bytes: &[u8]| {
    let Ok(results) = Results::parse(bytes) else { return };
    table(&results);
    footer(&results);
    let side = [results];
    if let Ok(comparison) = compare(&side, &side, CompareOptions::default()) {
        report::comparison_markdown(&comparison);
    }
    let sources = side.map(|results| report::Source { name: "results.jsonl".into(), results });
    report::csv(&sources);
    report::markdown(&sources);
    let _ = report::html(&sources, 0);
});
