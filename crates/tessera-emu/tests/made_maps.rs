//! Tensor maps that a kernel makes of 128 zeros with `tensormap.replace`: fields that it leaves alone mean one dimension, `u8`,
//! one element, steps of one, zeros outside.

use tessera_driver::{DevicePtr, Dim3, Params};
use tessera_emu::{EmuError, EmuOptions, Emulator, Finding, LaunchOptions, Sanitize, Schedule};

/// A map and what is read through it.
struct Made {
    /// `field`, its dimension where it has some, value.
    fields: &'static [(&'static str, Option<u32>, u64)],
    element: usize,
    extents: &'static [i64],
    tile: &'static [i64],
    steps: &'static [i64],
    at: &'static [i64],
}

impl Made {
    fn kernel(&self) -> String {
        let rank = self.at.len();
        let replace = |(field, dim, value): &(&str, Option<u32>, u64)| {
            let dim = dim.map_or(String::new(), |dim| format!("{dim}, "));
            let wide = *field == "global_stride";
            let (ty, value) = if wide { ("b64", format!("{value:#x}")) } else { ("b32", value.to_string()) };
            format!("@%first tensormap.replace.tile.{field}.shared::cta.b1024.{ty} [%map], {dim}{value};\n")
        };
        let fields: String = self.fields.iter().map(replace).collect();
        let at: Vec<String> = self.at.iter().map(i64::to_string).collect();
        let bytes = self.count() * self.element;
        format!(
            ".version 8.3
.target sm_90a
.address_size 64
.shared .align 1024 .b8 tile[4096];
.shared .align 128 .b8 map[128];
.shared .align 8 .b64 bar;
.visible .entry k(.param .u64 from, .param .u64 room, .param .u64 to)
{{
    .reg .pred %first, %q, %more;
    .reg .b32 %t, %map, %tile, %bar, %x, %v;
    .reg .b64 %from, %room, %to, %o;
    ld.param.u64 %from, [from];
    ld.param.u64 %room, [room];
    ld.param.u64 %to, [to];
    mov.u32 %t, %tid.x;
    mov.u32 %map, map;
    mov.u32 %tile, tile;
    mov.u32 %bar, bar;
    setp.eq.u32 %first, %t, 0;
    mad.lo.u32 %x, %t, 4, %map;
    st.shared.b32 [%x], 0;
    bar.warp.sync -1;
    @%first tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%map], %from;
    {fields}
    bar.warp.sync -1;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%room], [%map], 128;
    fence.proxy.tensormap::generic.acquire.gpu [%room], 128;
    @%first mbarrier.init.shared::cta.b64 [%bar], 1;
    @%first fence.mbarrier_init.release.cluster;
    bar.warp.sync -1;
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {bytes};
    @%first cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%room, {{{at}}}], [%bar];
wait:
    mbarrier.try_wait.parity.shared::cta.b64 %q, [%bar], 0;
    @!%q bra wait;
    mov.u32 %x, %t;
copy:
    setp.ge.u32 %more, %x, {bytes};
    @%more bra done;
    add.u32 %v, %tile, %x;
    ld.shared.u8 %v, [%v];
    cvt.u64.u32 %o, %x;
    add.u64 %o, %o, %to;
    st.global.u8 [%o], %v;
    add.u32 %x, %x, 32;
    bra copy;
done:
    ret;
}}",
            at = at.join(", ")
        )
    }

    fn count(&self) -> usize {
        self.tile.iter().zip(self.steps).map(|(side, step)| ((side + step - 1) / step) as usize).product()
    }

    /// What comes, of data whose byte number `i` is a hash of it.
    fn wanted(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for element in 0..self.count() {
            let (mut rest, mut index, mut stride, mut inside) = (element as i64, 0, 1, true);
            for dim in 0..self.at.len() {
                let side = (self.tile[dim] + self.steps[dim] - 1) / self.steps[dim];
                let place = self.at[dim] + rest % side * self.steps[dim];
                rest /= side;
                inside &= (0..self.extents[dim]).contains(&place);
                index += place * stride;
                stride *= self.extents[dim];
            }
            out.extend((0..self.element).map(|byte| if inside { byte_at(index as usize * self.element + byte) } else { 0 }));
        }
        out
    }
}

fn byte_at(index: usize) -> u8 {
    (index as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]
}

fn run(text: &str, bytes: usize, schedule: Schedule) -> (Vec<u8>, Vec<Finding>) {
    let emulator = Emulator::new(&EmuOptions::default()).unwrap();
    let module = emulator.load(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let data: Vec<u8> = (0..8192).map(byte_at).collect();
    let from = emulator.alloc(8192).unwrap();
    emulator.write(from, &data).unwrap();
    let (room, to): (DevicePtr, DevicePtr) = (emulator.alloc(128).unwrap(), emulator.alloc(4096).unwrap());
    let args = Params::new().pointer(from).pointer(room).pointer(to);
    let options = LaunchOptions { sanitize: Sanitize::ALL, schedule, ..LaunchOptions::default() };
    let findings = match emulator.launch(&module, "k", Dim3::ONE, Dim3::from(32), &args, &options) {
        Ok(report) => report.findings,
        Err(EmuError::Fault { report, .. }) => report.findings,
        Err(error) => panic!("{error}"),
    };
    let mut out = vec![0; bytes];
    emulator.read(to, &mut out).unwrap();
    (out, findings)
}

const MAPS: [Made; 6] = [
    // One dimension of bytes: neither rank nor type nor steps are said.
    Made {
        fields: &[("global_dim", Some(0), 1000), ("box_dim", Some(0), 64)],
        element: 1,
        extents: &[1000],
        tile: &[64],
        steps: &[1],
        at: &[960],
    },
    // Two of bytes, as fp8 and int8 are.
    Made {
        fields: &[
            ("rank", None, 1),
            ("global_dim", Some(0), 64),
            ("global_dim", Some(1), 50),
            ("global_stride", Some(0), 64),
            ("box_dim", Some(0), 32),
            ("box_dim", Some(1), 8),
        ],
        element: 1,
        extents: &[64, 50],
        tile: &[32, 8],
        steps: &[1, 1],
        at: &[48, 45],
    },
    // A type, and the box along dimension 1 left at one.
    Made {
        fields: &[
            ("rank", None, 1),
            ("elemtype", None, 7),
            ("fill_mode", None, 0),
            ("interleave_layout", None, 0),
            ("swizzle_mode", None, 0),
            ("global_dim", Some(0), 40),
            ("global_dim", Some(1), 20),
            ("global_stride", Some(0), 160),
            ("box_dim", Some(0), 16),
        ],
        element: 4,
        extents: &[40, 20],
        tile: &[16, 1],
        steps: &[1, 1],
        at: &[30, 7],
    },
    // Every third row.
    Made {
        fields: &[
            ("rank", None, 1),
            ("elemtype", None, 10),
            ("element_stride", Some(0), 1),
            ("element_stride", Some(1), 3),
            ("global_dim", Some(0), 32),
            ("global_dim", Some(1), 60),
            ("global_stride", Some(0), 64),
            ("box_dim", Some(0), 32),
            ("box_dim", Some(1), 8),
        ],
        element: 2,
        extents: &[32, 60],
        tile: &[32, 8],
        steps: &[1, 3],
        at: &[0, 54],
    },
    // Dimensions of one element that are not said.
    Made {
        fields: &[
            ("rank", None, 4),
            ("elemtype", None, 1),
            ("global_dim", Some(0), 24),
            ("global_dim", Some(1), 6),
            ("global_stride", Some(0), 48),
            ("global_stride", Some(1), 288),
            ("global_stride", Some(2), 288),
            ("global_stride", Some(3), 288),
            ("box_dim", Some(0), 8),
            ("box_dim", Some(1), 4),
        ],
        element: 2,
        extents: &[24, 6, 1, 1, 1],
        tile: &[8, 4, 1, 1, 1],
        steps: &[1, 1, 1, 1, 1],
        at: &[16, 3, 0, 0, 0],
    },
    Made {
        fields: &[("elemtype", None, 5), ("global_dim", Some(0), 9), ("box_dim", Some(0), 16)],
        element: 8,
        extents: &[9],
        tile: &[16],
        steps: &[1],
        at: &[-2],
    },
];

#[test]
fn fields_left_zero_mean_one() {
    for (number, made) in MAPS.iter().enumerate() {
        let wanted = made.wanted();
        for schedule in [Schedule::Eager, Schedule::Lazy, Schedule::Random] {
            let (found, findings) = run(&made.kernel(), wanted.len(), schedule);
            assert_eq!(findings, [], "map {number}");
            assert_eq!(found, wanted, "map {number}, {schedule:?}");
        }
    }
}

#[test]
fn what_is_wrong_with_a_map_is_said() {
    let first = |from: &str, to: &str| {
        let text = MAPS[1].kernel();
        assert!(text.contains(from));
        let (_, findings) = run(&text.replace(from, to), 1, Schedule::Eager);
        findings[0].to_string()
    };
    // A field's value, a map of another rank, no address, bytes that have no NaN.
    assert!(first("rank.shared::cta.b1024.b32 [%map], 1;", "rank.shared::cta.b1024.b32 [%map], 5;").contains("`rank`"));
    assert!(first("rank.shared::cta.b1024.b32 [%map], 1;", "rank.shared::cta.b1024.b32 [%map], 2;").contains("3 dimensions"));
    assert!(first("[%map], %from;", "[%map], 0;").contains("out-of-bounds"));
    let fill = "tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%map], 1;\n@%first tensormap.replace.tile.rank";
    assert!(first("tensormap.replace.tile.rank", fill).contains("NaN"));
}
