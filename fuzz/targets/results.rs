//! Results files: reading never panics, and what is read can be shown, compared with itself and reported.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tessera_bench::{CompareOptions, Results, compare, footer, report, table};

fuzz_target!(|bytes: &[u8]| {
    let Ok(results) = Results::parse(bytes) else { return };
    table(&results);
    footer(&results);
    if let Ok(comparison) = compare(&results, &results, CompareOptions::default()) {
        report::comparison_markdown(&comparison);
    }
    let results = [results];
    report::csv(&results);
    report::markdown(&results);
    let _ = report::html(&results, 0);
});
