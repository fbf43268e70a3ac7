//! Kernel files: parsing and lowering never panic, whatever the source, and what lowers verifies. The last byte chooses
//! what the kernel's arguments are: two bits each, a scalar or an array of one to three axes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tessera_lang::{ArgType, ConstValue, LowerOptions, lower, parse_file};
use tessera_types::DType;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, text)) = bytes.split_last() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let file = parse_file("fuzz.py", text);
    file.diagnostics.iter().for_each(|diagnostic| drop(diagnostic.render(&file.sources, false)));
    for kernel in file.kernels.values() {
        let kind = |(i, param): (usize, &tessera_lang::Param)| {
            let ty = match choice >> (2 * (i % 4)) & 3 {
                _ if param.is_constant() => ArgType::Const(ConstValue::Int(16)),
                0 => ArgType::Scalar(DType::I32),
                rank => ArgType::array(DType::F32, usize::from(rank)),
            };
            (param.name.clone(), ty)
        };
        let arguments: Vec<(String, ArgType)> = kernel.params.iter().enumerate().map(kind).collect();
        match lower(&file, &kernel.name, &arguments, &LowerOptions::default()) {
            Ok(module) => assert_eq!(tessera_ir::verify(&module), []),
            Err(problems) => problems.iter().for_each(|problem| drop(problem.render(&file.sources, false))),
        }
    }
});
