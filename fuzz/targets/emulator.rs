//! PTX text on the emulator: loading and launching end in a result, an error or a finding, never in a panic; and going on behind
//! a finding does, too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tessera_driver::{Dim3, Params};
use tessera_emu::{EmuOptions, Emulator, LaunchOptions, Sanitize, Schedule};

fuzz_target!(|text: &str| {
    let Ok(emulator) = Emulator::new(&EmuOptions::default()) else { return };
    let Ok(module) = emulator.load(text) else { return };
    let Ok(data) = emulator.alloc(4096) else { return };
    let kernels: Vec<String> = module.kernels().map(str::to_owned).collect();
    for (kernel, keep_going) in kernels.iter().flat_map(|kernel| [(kernel, false), (kernel, true)]) {
        let Ok(parameters) = module.parameters(kernel) else { continue };
        let args = parameters.iter().fold(Params::new(), |args, parameter| match parameter.bytes {
            8 => args.pointer(data),
            128 => args.aligned(&[0; 128], 64),
            _ => args.u32(40),
        });
        let options = LaunchOptions {
            schedule: if keep_going { Schedule::Random } else { Schedule::Lazy },
            sanitize: Sanitize::ALL,
            shared_bytes: 65_536,
            patience: 1 << 10,
            most_instructions: 1 << 16,
            threads: Some(1),
            keep_going,
            ..LaunchOptions::default()
        };
        drop(emulator.launch(&module, kernel, Dim3::from(2), Dim3::from(64), &args, &options));
    }
});
