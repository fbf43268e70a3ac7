//! Arguments as text: reading never panics, small arrays can be made, and a mistake can be shown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tessera_ir::SourceMap;
use tessera_runtime::argspec::{Value, parse, parse_type};

fuzz_target!(|text: &str| {
    let mut sources = SourceMap::default();
    match parse(&mut sources, text) {
        Ok(argument) => {
            let Value::Made(made) = argument.value else { return };
            let count = made.shape.iter().try_fold(1_usize, |count, &extent| count.checked_mul(extent));
            if count.is_none_or(|count| count <= 4096) {
                let _ = made.tensor(&argument.name);
            }
        }
        Err(error) => drop(error.render(&sources, false)),
    }
    if let Err(error) = parse_type(&mut sources, text) {
        error.render(&sources, false);
    }
});
