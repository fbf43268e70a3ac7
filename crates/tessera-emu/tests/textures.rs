//! Textures and surfaces against what is worked out by hand, and im2col copies against loops.

use tessera_driver::{DevicePtr, Dim3, Params};
use tessera_emu::{EmuError, EmuOptions, Emulator, FindingKind, Image, LaunchOptions, Outside, Sampler, Sanitize};
use tessera_types::DType;

/// A device with an image of the bytes.
struct Machine {
    emulator: Emulator,
    image: Image,
    out: DevicePtr,
}

const OUT: u64 = 4096;

impl Machine {
    fn new(bytes: &[u8], dtype: DType, channels: u32, extents: [u32; 3], layers: u32) -> Machine {
        let emulator = Emulator::new(&EmuOptions::default()).unwrap();
        let address = emulator.alloc(bytes.len() as u64).unwrap();
        emulator.write(address, bytes).unwrap();
        let pitch = u64::from(extents[0] * channels * dtype.bits() / 8);
        let image = Image { address, dtype, channels, extents, layers, cube: false, pitch };
        let out = emulator.alloc(OUT).unwrap();
        Machine { emulator, image, out }
    }

    /// Runs one thread, or several: `%handle`, `%lane` and `%out` (of the lane, 64 bytes apart) are given.
    fn run(&self, handle: u64, body: &str, threads: u32) -> Result<Vec<u32>, EmuError> {
        let text = format!(
            ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 handle, .param .u64 out)\n{{\n\
             .reg .b64 %handle, %out, %d<8>; .reg .b32 %lane, %r<32>; .reg .f32 %f<32>; .reg .b16 %h<16>; .reg .pred %p<4>;\n\
             ld.param.u64 %handle, [handle];\nld.param.u64 %out, [out];\nmov.u32 %lane, %tid.x;\n\
             mad.wide.u32 %out, %lane, 64, %out;\n{body}\nret;\n}}\n"
        );
        let module = self.emulator.load(&text)?;
        let params = Params::new().u64(handle).pointer(self.out);
        let options = LaunchOptions { sanitize: Sanitize::ALL, ..LaunchOptions::default() };
        let report = self.emulator.launch(&module, "k", Dim3::ONE, Dim3::from(threads), &params, &options)?;
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        let mut bytes = vec![0; OUT as usize];
        self.emulator.read(self.out, &mut bytes).unwrap();
        Ok(bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect())
    }

    /// Four results of one thread.
    fn four(&self, sampler: &Sampler, instruction: &str) -> Vec<f32> {
        let handle = self.emulator.texture(&self.image, sampler).unwrap();
        let body = format!("{instruction}\nst.global.v4.f32 [%out], {{%f0, %f1, %f2, %f3}};");
        self.run(handle, &body, 1).unwrap()[..4].iter().map(|word| f32::from_bits(*word)).collect()
    }
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn at(values: &[f32]) -> String {
    values.iter().enumerate().map(|(index, value)| format!("mov.b32 %f{}, 0f{:08X};\n", 10 + index, value.to_bits())).collect()
}

/// 4 x 3 texels of one f32: 10 y + x.
fn grid() -> Machine {
    let values: Vec<f32> = (0..12).map(|i| (i / 4 * 10 + i % 4) as f32).collect();
    Machine::new(&floats(&values), DType::F32, 1, [4, 3, 0], 0)
}

#[test]
fn the_nearest_texel_and_mixtures() {
    let machine = grid();
    let nearest = Sampler::default();
    let linear = Sampler { linear: true, ..Sampler::default() };
    let tex = |x: f32, y: f32| format!("{}tex.2d.v4.f32.f32 {{%f0, %f1, %f2, %f3}}, [%handle, {{%f10, %f11}}];", at(&[x, y]));
    assert_eq!(machine.four(&nearest, &tex(2.99, 1.0)), [12.0, 0.0, 0.0, 1.0]);
    assert_eq!(machine.four(&nearest, &tex(-7.0, 99.0)), [20.0, 0.0, 0.0, 1.0]);
    // Halfway between texel centres 1 and 2, three quarters of the way from row 0 to row 1.
    assert_eq!(machine.four(&linear, &tex(2.0, 1.25)), [1.5 + 7.5, 0.0, 0.0, 1.0]);
    // A weight of 1/512 is rounded to 1/256: to the nearest, away from zero.
    assert_eq!(machine.four(&linear, &tex(1.5 + 1.0 / 512.0, 0.5))[0], 1.0 + 1.0 / 256.0);
    assert_eq!(machine.four(&linear, &tex(1.5 + 1.0 / 1024.0, 0.5))[0], 1.0);
    let wrapped = Sampler {
        linear: true,
        normalized: true,
        outside: [Outside::Wrap, Outside::Mirror, Outside::Clamp],
        ..Sampler::default()
    };
    // x: u = 4, between texel 3 and texel 0; y: u = -0.75 - 0.5, rows -2 and -1 are rows 1 and 0.
    assert_eq!(machine.four(&wrapped, &tex(1.0, -0.25))[0], 1.5 + 10.0 * 0.25);
    let bordered = Sampler { outside: [Outside::Border; 3], border: [5.0, 6.0, 7.0, 8.0], ..Sampler::default() };
    assert_eq!(machine.four(&bordered, &tex(-0.5, 0.0)), [5.0, 6.0, 7.0, 8.0]);
}

#[test]
fn integers_fetches_levels_offsets_and_gathers() {
    let machine = grid();
    let nearest = Sampler::default();
    let fetch = "mov.u32 %r0, 3; mov.u32 %r1, 2; tex.2d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [%handle, {%r0, %r1}];";
    assert_eq!(machine.four(&nearest, fetch)[0], 23.0);
    let level = format!("{}tex.level.2d.v4.f32.f32 {{%f0, %f1, %f2, %f3}}, [%handle, {{%f10, %f11}}], %f10;", at(&[1.5, 1.5]));
    assert_eq!(machine.four(&nearest, &level)[0], 11.0);
    let moved = format!(
        "{}mov.u32 %r0, 1; mov.u32 %r1, -1; tex.2d.v4.f32.f32 {{%f0, %f1, %f2, %f3}}, [%handle, {{%f10, %f11}}], {{%r0, %r1}};",
        at(&[1.5, 1.5])
    );
    assert_eq!(machine.four(&nearest, &moved)[0], 2.0);
    let gather = format!("{}tld4.r.2d.v4.f32.f32 {{%f0, %f1, %f2, %f3}}, [%handle, {{%f10, %f11}}];", at(&[2.0, 1.0]));
    assert_eq!(machine.four(&nearest, &gather), [11.0, 12.0, 2.0, 1.0]);
}

#[test]
fn small_integers_are_numbers_or_codes() {
    let machine = Machine::new(&[0, 255, 128, 51], DType::U8, 4, [1, 0, 0], 0);
    let tex = "mov.b32 %f10, 0f3F000000; tex.1d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%handle, {%f10}];";
    assert_eq!(machine.four(&Sampler::default(), tex), [0.0, 1.0, 128.0 / 255.0, 0.2]);
    let handle = machine.emulator.texture(&machine.image, &Sampler::default()).unwrap();
    let raw = "mov.b32 %f10, 0; tex.1d.v4.u32.f32 {%r0, %r1, %r2, %r3}, [%handle, {%f10}];\nst.global.v4.u32 [%out], {%r0, %r1, %r2, %r3};";
    assert_eq!(machine.run(handle, raw, 1).unwrap()[..4], [0, 255, 128, 51]);
    let signed = Machine::new(&[0x80, 0x81, 0x7f, 1], DType::I8, 4, [1, 0, 0], 0);
    assert_eq!(signed.four(&Sampler::default(), tex), [-1.0, -1.0, 1.0, 1.0 / 127.0]);
    let handle = signed.emulator.texture(&signed.image, &Sampler::default()).unwrap();
    assert_eq!(signed.run(handle, &raw.replace("u32.f32", "s32.f32"), 1).unwrap()[..2], [-128i32 as u32, -127i32 as u32]);
    // Linear samplers do not mix integers.
    let handle = machine.emulator.texture(&machine.image, &Sampler { linear: true, ..Sampler::default() }).unwrap();
    let Err(EmuError::Fault { finding, .. }) = machine.run(handle, raw, 1) else { panic!("no fault") };
    assert_eq!(finding.kind, FindingKind::Texture);
}

#[test]
fn layers_cubes_and_volumes() {
    let values: Vec<f32> = (0..24).map(|i| i as f32).collect();
    let mut machine = Machine::new(&floats(&values), DType::F32, 1, [2, 2, 0], 6);
    let layered = format!(
        "{}mov.u32 %r0, 4; mov.b32 %r1, %f10; mov.b32 %r2, %f11; tex.a2d.v4.f32.f32 {{%f0, %f1, %f2, %f3}}, [%handle, {{%r0, %f10, %f11, %f11}}];",
        at(&[1.5, 0.5])
    );
    assert_eq!(machine.four(&Sampler::default(), &layered)[0], 17.0);
    machine.image.cube = true;
    let cube = |x: f32, y: f32, z: f32| {
        format!("{}tex.cube.v4.f32.f32 {{%f0, %f1, %f2, %f3}}, [%handle, {{%f10, %f11, %f12, %f12}}];", at(&[x, y, z]))
    };
    // Face 0: s = -z, t = -y; face 3: s = x, t = -z; face 4: s = x, t = -y.
    assert_eq!(machine.four(&Sampler::default(), &cube(1.0, 0.5, 0.5))[0], 0.0);
    assert_eq!(machine.four(&Sampler::default(), &cube(0.5, -1.0, 0.5))[0], 3.0 * 4.0 + 1.0);
    assert_eq!(machine.four(&Sampler::default(), &cube(0.5, -0.5, 2.0))[0], 4.0 * 4.0 + 3.0);
    let volume = Machine::new(&floats(&values), DType::F32, 1, [2, 3, 4], 0);
    let tex = format!("{}tex.3d.v4.f32.f32 {{%f0, %f1, %f2, %f3}}, [%handle, {{%f10, %f11, %f12, %f12}}];", at(&[1.0, 1.5, 3.0]));
    let linear = Sampler { linear: true, ..Sampler::default() };
    // Halfway along x, row 1, between slices 2 and 3.
    assert_eq!(volume.four(&linear, &tex)[0], 0.5 + 2.0 + 15.0);
}

#[test]
fn halves_are_widened_and_made() {
    let machine = Machine::new(&[0x00, 0x3c, 0x00, 0xc0], DType::F16, 2, [1, 0, 0], 0);
    let handle = machine.emulator.texture(&machine.image, &Sampler::default()).unwrap();
    let body = "mov.b32 %f10, 0; tex.1d.v4.f16.f32 {%h0, %h1, %h2, %h3}, [%handle, {%f10}];\nst.global.v4.b16 [%out], {%h0, %h1, %h2, %h3};
        tex.1d.v2.f16x2.f32 {%r0, %r1}, [%handle, {%f10}];\nst.global.v2.b32 [%out+8], {%r0, %r1};";
    assert_eq!(machine.run(handle, body, 1).unwrap()[..4], [0xc000_3c00, 0x3c00_0000, 0xc000_3c00, 0x3c00_0000]);
}

#[test]
fn surfaces_are_bytes_and_texels() {
    let machine = Machine::new(&[0; 64], DType::U8, 4, [4, 4, 0], 0);
    let surface = machine.emulator.surface(&machine.image).unwrap();
    let body = "mov.u32 %r0, 4; mov.u32 %r1, 1; mov.u32 %r2, 0x01020304;
        sust.b.2d.b32.trap [%handle, {%r0, %r1}], {%r2};
        mov.u32 %r0, 2; mov.u32 %r3, 300; mov.u32 %r4, 7;
        sust.p.2d.v4.b32.trap [%handle, {%r0, %r1}], {%r3, %r4, %r4, %r3};
        mov.u32 %r0, 0; suld.b.2d.v2.b32.trap {%r5, %r6}, [%handle, {%r0, %r1}];
        suld.b.2d.b16.zero %h0, [%handle, {%r3, %r1}]; cvt.u32.u16 %r7, %h0;
        mov.u32 %r8, -5; suld.b.2d.b32.clamp %r9, [%handle, {%r3, %r1}];
        suld.b.2d.b32.clamp %r10, [%handle, {%r8, %r1}];
        mov.u32 %r11, 8; sured.b.add.2d.u32.trap [%handle, {%r11, %r1}], %r4;
        suld.b.2d.b32.trap %r12, [%handle, {%r11, %r1}];
        suq.width.b32 %r13, [%handle]; suq.height.b32 %r14, [%handle]; suq.channel_data_type.b32 %r15, [%handle];
        st.global.v4.u32 [%out], {%r5, %r6, %r7, %r9}; st.global.v4.u32 [%out+16], {%r10, %r12, %r13, %r14}; st.global.u32 [%out+32], %r15;";
    // What lies left of a row is its first word, right of it its last; 300 is cut to a byte.
    let wanted = [0, 0x0102_0304, 0, 0, 0, 0xff07_0806, 4, 4, 0x10da];
    assert_eq!(machine.run(surface, body, 1).unwrap()[..9], wanted);
    let beyond = "mov.u32 %r0, 16; mov.u32 %r1, 1; suld.b.2d.b32.trap %r2, [%handle, {%r0, %r1}];";
    let Err(EmuError::Fault { finding, .. }) = machine.run(surface, beyond, 1) else { panic!("no fault") };
    assert_eq!(finding.kind, FindingKind::OutOfBounds);
    let texture = machine.emulator.texture(&machine.image, &Sampler::default()).unwrap();
    let Err(EmuError::Fault { finding, .. }) = machine.run(texture, body, 1) else { panic!("no fault") };
    assert_eq!(finding.kind, FindingKind::Texture);
}

#[test]
fn lanes_race_on_surfaces_and_reductions_do_not() {
    let machine = Machine::new(&[0; 16], DType::U32, 1, [4, 0, 0], 0);
    let surface = machine.emulator.surface(&machine.image).unwrap();
    let add = "mov.u32 %r0, 4; mov.u32 %r1, 3; sured.b.add.1d.u32.trap [%handle, {%r0}], %r1;
        sured.p.max.1d.b32.trap [%handle, {%r1}], %lane;";
    machine.run(surface, add, 64).unwrap();
    let mut held = [0; 16];
    machine.emulator.read(machine.image.address, &mut held).unwrap();
    assert_eq!((held[4], held[12]), (192, 63));
    let text = "mov.u32 %r0, 0; sust.b.1d.b32.trap [%handle, {%r0}], {%lane};";
    let module = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| machine.run(surface, text, 64)));
    assert!(module.is_err() || matches!(module, Ok(Err(_))), "a race was not found");
}

#[test]
fn references_hold_handles_and_know_their_kind() {
    let machine = grid();
    let text = ".version 8.7\n.target sm_90a, texmode_independent\n.address_size 64\n.global .texref t;\n\
        .global .samplerref s = { filter_mode = linear, force_unnormalized_coords = 1 };\n\
        .visible .entry k(.param .u64 out)\n{\n.reg .b64 %out, %d<4>; .reg .f32 %f<8>; .reg .b32 %r<4>; .reg .pred %p<4>;\n\
        ld.param.u64 %out, [out];\nmov.b32 %f4, 0f40000000;\n\
        tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [t, s, {%f4, %f4}];\nst.global.f32 [%out], %f0;\n\
        txq.width.b32 %r0, [t];\nst.global.u32 [%out+4], %r0;\nmov.u64 %d0, t;\nistypep.texref %p0, %d0;\n\
        istypep.surfref %p1, %d0;\nselp.u32 %r1, 1, 0, %p0;\n@%p1 mov.u32 %r1, 7;\nst.global.u32 [%out+8], %r1;\n\
        txq.filter_mode.b32 %r2, [s];\nst.global.u32 [%out+12], %r2;\nret;\n}\n";
    let module = machine.emulator.load(text).unwrap();
    let params = Params::new().pointer(machine.out);
    let run = || machine.emulator.launch(&module, "k", Dim3::ONE, Dim3::ONE, &params, &LaunchOptions::default());
    let Err(EmuError::Fault { finding, .. }) = run() else { panic!("an image that is not bound") };
    assert!(finding.to_string().contains("no image is bound"), "{finding}");
    let handle = machine.emulator.texture(&machine.image, &Sampler::default()).unwrap();
    machine.emulator.write(module.variable("t").unwrap(), &handle.to_le_bytes()).unwrap();
    run().unwrap();
    let mut out = [0; 16];
    machine.emulator.read(machine.out, &mut out).unwrap();
    let words: Vec<u32> = out.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    // At (2, 2) the four texels 1, 2, 11 and 12 rows further down are mixed evenly.
    assert_eq!((f32::from_bits(words[0]), &words[1..]), (16.5, &[4, 1, 1][..]));
}
