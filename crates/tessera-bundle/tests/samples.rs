//! Variants and devices to test with.

use std::sync::Arc;

use smallvec::smallvec;
use tessera_bundle::{Code, Fixed, Variant};
use tessera_driver::{ContextHandle, DeviceAttribute, DriverTable, StreamHandle};
use tessera_ir::{
    Abi, AbiParam, Extent, GridRule, HiddenParam, ImageCode, IndexType, KernelImage, LaunchFacts, ParamKind, TensorMapPlan,
    TileCount,
};
use tessera_launch::{Constant, DriverDevice, Interface};
use tessera_types::{DType, L2Promotion, OutOfBounds, Swizzle};

fn matrix(name: &str, dtype: DType, align: u32) -> AbiParam {
    let kind = ParamKind::Array {
        dtype,
        shape: smallvec![Extent::Dynamic, Extent::Dynamic],
        strides: smallvec![Extent::Dynamic, Extent::Static(1)],
        index: IndexType::I32,
        align,
        lines: align,
        disjoint: true,
    };
    AbiParam { name: name.into(), kind }
}

/// `y = a * x` over tiles of `TILE` lines, for arrays of a type whose lines are multiples of `align` bytes.
pub(crate) fn scale(target: &str, dtype: DType, align: u32, tile: i64) -> Variant {
    let scalar = AbiParam { name: "a".into(), kind: ParamKind::Scalar { dtype: DType::F32 } };
    let abi = Abi { params: vec![matrix("x", dtype, align), matrix("y", dtype, align), scalar], stated: Vec::new() };
    let axes = ["x", "y"].map(|name| (name.to_string(), vec!["M".to_string(), "N".to_string()]));
    let tiles = Some(vec![TileCount { param: 1, axis: 0, tile: tile as u32 }]);
    let interface = Interface { abi: abi.clone(), written: vec![false, true, false], axes: axes.into(), tiles };
    let map = TensorMapPlan {
        param: 0,
        axes: vec![1, 0],
        tile: vec![64, 16],
        dtype: None,
        swizzle: Swizzle::B128,
        l2: L2Promotion::B256,
        outside: OutOfBounds::Zero,
    };
    let image = KernelImage {
        entry: "scale_entry".into(),
        target: target.into(),
        code: ImageCode::Ptx(format!("// {target} {dtype} {align} {tile}\n")),
        abi,
        hidden: vec![HiddenParam::TensorMap(map), HiddenParam::Grid, HiddenParam::Workspace { bytes: 64, bytes_per_block: 8 }],
        launch: LaunchFacts {
            threads: [128, 1, 1],
            shared_bytes: 4096,
            cluster: Some([2, 1, 1]),
            grid: GridRule { per_multiprocessor: Some(1), ..GridRule::default() },
            ..LaunchFacts::default()
        },
    };
    Variant::new("scale", image, interface, vec![("TILE".into(), Constant::Int(tile))])
}

/// Variants that use everything that a bundle can hold.
pub(crate) fn all() -> Vec<Variant> {
    let mut coded = scale("sm_90a", DType::BF16, 16, 64);
    coded.code = Code { cubin: Some(vec![0x7f, b'E', b'L', b'F', 0, 255].into()), ..coded.code };
    let mut fixed = scale("sm_80", DType::F32, 4, 32);
    fixed.kernel = "scale.fixed".into();
    fixed.fixed = Some(Fixed {
        grid: [3, 1, 1],
        shapes: vec![("x".into(), vec![8, 64]), ("y".into(), vec![8, 64])],
        numbers: vec![("a".into(), Constant::Float(1.0))],
    });
    fixed.constants.extend([
        ("eps".to_string(), Constant::Float(0.1)),
        ("limit".to_string(), Constant::Float(f64::INFINITY)),
        ("causal".to_string(), Constant::Bool(true)),
        ("mode".to_string(), Constant::Text("a \"b\"\n".into())),
        ("acc".to_string(), Constant::Type(DType::F8E4M3)),
        ("shape".to_string(), Constant::Tuple(vec![Constant::Int(-1), Constant::None])),
    ]);
    vec![scale("sm_80", DType::F32, 16, 32), scale("sm_80", DType::F32, 4, 32), coded, fixed]
}

/// A device of a compute capability that can be opened, and nothing else.
pub(crate) fn device((major, minor): (i32, i32)) -> DriverDevice {
    let mut table = DriverTable::empty("pretended");
    table.device_count = Some(Box::new(|| Ok(1)));
    table.device_name = Some(Box::new(|_| Ok("Pretended".into())));
    table.context_retain = Some(Box::new(|_| Ok(ContextHandle(1))));
    table.context_release = Some(Box::new(|_| Ok(())));
    table.context_set_current = Some(Box::new(|_| Ok(())));
    table.stream_create = Some(Box::new(|| Ok(StreamHandle(1))));
    table.stream_destroy = Some(Box::new(|_| Ok(())));
    table.device_attribute = Some(Box::new(move |_, attribute| {
        Ok(match attribute {
            DeviceAttribute::CapabilityMajor => major,
            DeviceAttribute::CapabilityMinor => minor,
            _ => 0,
        })
    }));
    DriverDevice::open(Arc::new(table), 0).expect("a device")
}
