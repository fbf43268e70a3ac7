//! IR text: parsing, verifying, printing and optimising never panic; what verifies prints as text that parses to the same
//! module and stays valid through the whole pipeline.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tessera_compile::{CompileOptions, compile_module};
use tessera_document::parse_module;
use tessera_ir::text::print_module;
use tessera_ir::verify;

fuzz_target!(|text: &str| {
    let module = match parse_module("fuzz.tir", text) {
        Ok(module) => module,
        Err((module, error)) => return drop(error.render(&module.sources, false)),
    };
    let problems = verify(&module);
    problems.iter().for_each(|problem| drop(problem.render(&module.sources, false)));
    if !problems.is_empty() {
        return;
    }
    let printed = print_module(&module);
    let Ok(again) = parse_module("again.tir", &printed) else { panic!("does not parse again:\n{printed}") };
    assert_eq!(printed, print_module(&again));
    if let Ok(compiled) = compile_module(module, &[], &CompileOptions::default()) {
        let problems = verify(&compiled.module);
        assert!(problems.is_empty(), "{}\n{}", problems[0].message, print_module(&compiled.module));
    }
});
