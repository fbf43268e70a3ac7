//! PTX text: parsing and checking never panic, and what is printed parses to the same module.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tessera_ptx::{check, parse, print};

fuzz_target!(|text: &str| match parse(text) {
    Ok(module) => {
        check(&module).iter().for_each(|problem| drop(problem.render(text)));
        let printed = print(&module);
        match parse(&printed) {
            Ok(again) => assert_eq!(print(&again), printed),
            Err(error) => panic!("does not parse again: {}", error.render(&printed)),
        }
    }
    Err(error) => drop(error.render(text)),
});
