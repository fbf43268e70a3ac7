//! Compares the emulator with the chip: random PTX and the library's kernels, the same text on both.
//!
//! ```text
//! against_chip [--out FILE] [--programs COUNT] [--seed SEED] [--chip emulator]
//! ```
//! Integers, copies and IEEE arithmetic must agree to the bit, sums that the chip orders in its own way within the reference's
//! bound. A random program counts where it differs without the assembler's optimisations, too; every difference is told. With
//! `--chip emulator` the emulator stands in for the chip, to try the comparison itself.

mod generator;
mod library;
mod programs;
mod rows;
mod trace;
mod values;

use std::sync::Arc;

use tessera_emu::{EmuOptions, LaunchOptions};
use tessera_runtime::{Device, DriverDevice};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let (mut out, mut count, mut seed, mut chip) = (None, 10_240, 1, "cuda".to_owned());
    let mut list = std::env::args().skip(1);
    while let Some(flag) = list.next() {
        let value = list.next().ok_or(format!("`{flag}` needs a value"))?;
        match flag.as_str() {
            "--out" => out = Some(value),
            "--programs" => count = value.parse()?,
            "--seed" => seed = value.parse()?,
            "--chip" => chip = value,
            _ => return Err(format!("unknown argument `{flag}`").into()),
        }
    }
    let emulator = |threads| {
        let launch = LaunchOptions { threads, ..LaunchOptions::default() };
        tessera_emu::driver(&EmuOptions { launch, ..EmuOptions::default() }).map(Arc::new)
    };
    let real = || {
        Ok::<_, Box<dyn std::error::Error>>(if chip == "emulator" { emulator(None)? } else { Arc::new(tessera_cuda::driver()?) })
    };
    // Programs are spread over threads already, the library's kernels are not.
    let tables = [real()?, emulator(Some(1))?];
    let open = |table: Arc<_>| DriverDevice::open(table, 0).map(Device::Driver);
    let devices = [open(real()?)?, open(emulator(None)?)?];
    let Device::Driver(there) = &devices[0] else { return Ok(()) };
    let properties = there.properties();
    let mut report = format!(
        "The emulator against {}, driver {}, target {}\nagainst_chip --programs {count} --seed {seed}\n\n",
        properties.name,
        properties.driver,
        properties.target()
    );
    let start = std::time::Instant::now();
    let same_programs = programs::agree(&tables, count, seed, &mut report)?;
    println!("{report}\n{:.1} s", start.elapsed().as_secs_f64());
    let told = report.len();
    report.push('\n');
    let same_library = library::agree(&devices, &mut report)?;
    println!("{}\n{:.1} s", &report[told..], start.elapsed().as_secs_f64());
    if let Some(out) = out {
        std::fs::write(out, &report)?;
    }
    if same_programs && same_library { Ok(()) } else { Err("the emulator and the chip differ".into()) }
}
