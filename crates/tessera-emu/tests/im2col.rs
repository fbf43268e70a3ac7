//! Copies of the im2col mode, there and back, against lists of pixels that are written out (PTX ISA, "Tensors: im2col mode").

use tessera_driver::{DevicePtr, Dim3, L2Promotion, OutOfBounds, Params, Swizzle, TensorMapSpec};
use tessera_emu::{EmuError, EmuOptions, Emulator, FindingKind, Im2col, LaunchOptions, Sanitize, Schedule, Walk};
use tessera_types::DType;

/// A tensor of `f32`, channels first in memory, and a copy.
struct Case {
    /// Channels, width, then height and depth, images.
    extents: &'static [i64],
    steps: &'static [u32],
    lower: &'static [i32],
    upper: &'static [i32],
    channels: i64,
    pixels: i64,
    at: &'static [i64],
    offsets: &'static [i64],
    outside: OutOfBounds,
}

const CASES: [Case; 4] = [
    // A 3 x 3 filter with one row of padding around 5 x 4 pixels: its third column and first row, over the end of an image.
    Case {
        extents: &[8, 5, 4, 3],
        steps: &[1, 1, 1, 1],
        lower: &[-1, -1],
        upper: &[-1, -1],
        channels: 8,
        pixels: 24,
        at: &[0, 2, -1, 0],
        offsets: &[2, 0],
        outside: OutOfBounds::Zero,
    },
    // Every second pixel, channels that end behind the tensor's, past the last image.
    Case {
        extents: &[12, 7, 5, 2],
        steps: &[1, 2, 3, 1],
        lower: &[-2, 0],
        upper: &[0, -1],
        channels: 8,
        pixels: 20,
        at: &[8, -2, 0, 1],
        offsets: &[1, 1],
        outside: OutOfBounds::Nan,
    },
    Case {
        extents: &[4, 9, 3],
        steps: &[1, 1, 1],
        lower: &[-3],
        upper: &[2],
        channels: 4,
        pixels: 30,
        at: &[0, 1, 0],
        offsets: &[0],
        outside: OutOfBounds::Zero,
    },
    Case {
        extents: &[4, 3, 4, 2, 2],
        steps: &[1, 1, 2, 1, 1],
        lower: &[-1, 0, -1],
        upper: &[1, -1, 0],
        channels: 4,
        pixels: 40,
        at: &[0, 0, 0, 0, 0],
        offsets: &[0, 1, 1],
        outside: OutOfBounds::Zero,
    },
];

fn list(numbers: &[i64]) -> String {
    numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
}

impl Case {
    fn elements(&self) -> usize {
        (self.channels * self.pixels) as usize
    }

    fn map(&self, address: DevicePtr) -> Result<[u8; 128], EmuError> {
        let extents: Vec<u64> = self.extents.iter().map(|&extent| extent as u64).collect();
        let strides = extents.iter().scan(4, |bytes, extent| {
            *bytes *= extent;
            Some(*bytes)
        });
        let spec = TensorMapSpec {
            dtype: DType::F32,
            address,
            strides: strides.take(extents.len() - 1).collect(),
            extents,
            tile: Vec::new(),
            swizzle: Swizzle::None,
            l2: L2Promotion::None,
            outside: self.outside,
        };
        let im2col = Im2col {
            lower: self.lower.to_vec(),
            upper: self.upper.to_vec(),
            channels: self.channels as u32,
            pixels: self.pixels as u32,
        };
        Emulator::tensor_map_walking(&spec, &Walk { steps: self.steps.to_vec(), im2col: Some(im2col) })
    }

    /// Where the copy's pixels stand in the tensor, each the index of its first channel; none outside.
    fn wanted(&self, offsets: &[i64]) -> Vec<Option<i64>> {
        let spatial = self.lower.len();
        // All base pixels of all images, and of some that are not there, in the order in which they are taken.
        let mut all: Vec<Vec<i64>> = (0..self.extents[spatial + 1] + 9).map(|image| vec![image]).collect();
        for axis in (0..spatial).rev() {
            let last = self.extents[axis + 1] - 1 + i64::from(self.upper[axis]);
            let line: Vec<i64> = (i64::from(self.lower[axis])..=last).step_by(self.steps[axis + 1] as usize).collect();
            all = all.iter().flat_map(|outer| line.iter().map(move |&at| [&outer[..], &[at]].concat())).collect();
        }
        let first: Vec<i64> = self.at[1..].iter().rev().copied().collect();
        let start = all.iter().position(|pixel| *pixel == first).expect("the copy starts at a base pixel");
        let taken = all[start..start + self.pixels as usize].iter().map(|pixel| {
            let mut index = 0;
            let mut inside = pixel[0] < self.extents[spatial + 1];
            for (axis, base) in pixel.iter().enumerate() {
                let dim = spatial + 1 - axis;
                let at = base + if axis == 0 { 0 } else { offsets.get(dim - 1).copied().unwrap_or(0) };
                inside &= (0..self.extents[dim]).contains(&at);
                index = index * self.extents[dim] + at;
            }
            inside.then_some(index * self.extents[0])
        });
        taken.collect()
    }

    fn kernel(&self, body: &str) -> String {
        format!(
            ".version 8.7\n.target sm_90a\n.address_size 64\n.shared .align 1024 .b8 tile[16384];\n.shared .align 8 .b64 bar;\n\
             .visible .entry k(.param .align 64 .b8 map[128], .param .u64 to)\n{{\n\
             .reg .pred %first, %q, %more; .reg .b32 %t, %tile, %x, %v; .reg .b64 %to, %o, %map; .reg .b16 %h<3>; .reg .f32 %f;\n\
             ld.param.u64 %to, [to];\nmov.u64 %map, map;\ncvta.param.u64 %map, %map;\nmov.u32 %t, %tid.x;\nmov.u32 %tile, tile;\n\
             setp.eq.u32 %first, %t, 0;\n@%first mbarrier.init.shared::cta.b64 [bar], 1;\n\
             @%first fence.mbarrier_init.release.cluster;\nbar.sync 0;\n{body}\nret;\n}}\n"
        )
    }

    fn load(&self) -> String {
        let (rank, count) = (self.at.len(), self.elements());
        let offsets: String = self.offsets.iter().enumerate().map(|(at, by)| format!("mov.b16 %h{at}, {by};\n")).collect();
        let names: Vec<String> = (0..self.offsets.len()).map(|at| format!("%h{at}")).collect();
        self.kernel(&format!(
            "{offsets}@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {bytes};\n\
             @%first cp.async.bulk.tensor.{rank}d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%tile], [%map, {{{at}}}], [bar], {{{names}}};\n\
             wait: mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], 0;\n@!%q bra wait;\nmov.u32 %x, %t;\n\
             copy: setp.ge.u32 %more, %x, {count};\n@%more bra done;\nmad.lo.u32 %v, %x, 4, %tile;\nld.shared.b32 %v, [%v];\n\
             mad.wide.u32 %o, %x, 4, %to;\nst.global.b32 [%o], %v;\nadd.u32 %x, %x, 32;\nbra copy;\ndone:",
            bytes = 4 * count,
            at = list(self.at),
            names = names.join(", ")
        ))
    }

    /// Writes 1000 and the element's number to where the pixels stand.
    fn store(&self) -> String {
        let (rank, count) = (self.at.len(), self.elements());
        self.kernel(&format!(
            "mov.u32 %x, %t;\nfill: setp.ge.u32 %more, %x, {count};\n@%more bra filled;\nadd.u32 %v, %x, 1000;\n\
             cvt.rn.f32.u32 %f, %v;\nmad.lo.u32 %v, %x, 4, %tile;\nst.shared.f32 [%v], %f;\nadd.u32 %x, %x, 32;\nbra fill;\n\
             filled: fence.proxy.async.shared::cta;\nbar.sync 0;\n\
             @%first cp.async.bulk.tensor.{rank}d.global.shared::cta.im2col_no_offs.bulk_group [%map, {{{at}}}], [%tile];\n\
             cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;",
            at = list(self.at)
        ))
    }
}

/// What the kernel leaves in the tensor and in its other array; the tensor holds its elements' numbers.
fn run(case: &Case, text: &str) -> (Vec<f32>, Vec<f32>) {
    let emulator = Emulator::new(&EmuOptions::default()).unwrap();
    let module = emulator.load(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let count: i64 = case.extents.iter().product();
    let bytes: Vec<u8> = (0..count).flat_map(|index| (index as f32).to_le_bytes()).collect();
    let from = emulator.alloc(bytes.len() as u64).unwrap();
    emulator.write(from, &bytes).unwrap();
    let to = emulator.alloc(4 * case.elements() as u64).unwrap();
    let params = Params::new().aligned(&case.map(from).unwrap(), 64).pointer(to);
    for schedule in [Schedule::Eager, Schedule::Lazy] {
        let options = LaunchOptions { sanitize: Sanitize::ALL, schedule, ..LaunchOptions::default() };
        let report =
            emulator.launch(&module, "k", Dim3::ONE, Dim3::from(32), &params, &options).unwrap_or_else(|e| panic!("{e}"));
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
    let read = |at: DevicePtr, count: usize| {
        let mut bytes = vec![0; 4 * count];
        emulator.read(at, &mut bytes).unwrap();
        bytes.chunks(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect()
    };
    (read(from, count as usize), read(to, case.elements()))
}

#[test]
fn pixels_come_in_the_order_of_the_box() {
    for (number, case) in CASES.iter().enumerate() {
        let (_, found) = run(case, &case.load());
        for (pixel, place) in case.wanted(case.offsets).into_iter().enumerate() {
            for channel in 0..case.channels {
                let there = case.at[0] + channel < case.extents[0];
                let wanted = place.filter(|_| there).map(|place| (place + case.at[0] + channel) as f32);
                let found = found[pixel * case.channels as usize + channel as usize];
                let same = match (wanted, case.outside) {
                    (Some(wanted), _) => found == wanted,
                    (None, OutOfBounds::Zero) => found == 0.0,
                    (None, OutOfBounds::Nan) => found.is_nan(),
                };
                assert!(same, "case {number}, pixel {pixel}, channel {channel}: {found}, wanted {wanted:?}");
            }
        }
    }
}

#[test]
fn stores_write_the_pixels_that_are_there() {
    for (number, case) in CASES.iter().enumerate() {
        let (tensor, _) = run(case, &case.store());
        let mut wanted: Vec<f32> = (0..tensor.len()).map(|index| index as f32).collect();
        for (pixel, place) in case.wanted(&[]).into_iter().enumerate() {
            for channel in (0..case.channels).filter(|channel| case.at[0] + channel < case.extents[0]) {
                if let Some(place) = place {
                    wanted[(place + case.at[0] + channel) as usize] = (1000 + pixel as i64 * case.channels + channel) as f32;
                }
            }
        }
        assert_eq!(tensor, wanted, "case {number}");
    }
}

#[test]
fn maps_and_copies_are_of_one_mode() {
    let case = &CASES[0];
    let emulator = Emulator::new(&EmuOptions::default()).unwrap();
    let tiled = case.load().replace(".im2col", "").replace(", {%h0, %h1};", ";");
    let module = emulator.load(&tiled).unwrap();
    let (from, to) = (emulator.alloc(4096).unwrap(), emulator.alloc(4096).unwrap());
    let params = Params::new().aligned(&case.map(from).unwrap(), 64).pointer(to);
    let result = emulator.launch(&module, "k", Dim3::ONE, Dim3::from(32), &params, &LaunchOptions::default());
    let Err(EmuError::Fault { finding, .. }) = result else { panic!("no fault") };
    assert_eq!(finding.kind, FindingKind::BulkCopy);
    assert!(finding.to_string().contains("im2col mode"), "{finding}");
    let wrong = Case { lower: &[-1], ..CASES[0] };
    assert!(wrong.map(from).unwrap_err().to_string().contains("corners"), "a corner with one coordinate");
}
