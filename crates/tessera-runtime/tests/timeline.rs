//! Timelines on the emulated device: what is recorded, what it costs where nobody asks, and that results stay what they are.

use std::sync::Arc;

use tessera_emu::EmuOptions;
use tessera_ir::{HiddenParam, ImageCode};
use tessera_runtime::{
    CompileOptions, Device, DriverDevice, Kernel, LaunchGrid, PreparedLaunch, RandomStream, Tensor, Timeline, Value,
};
use tessera_types::DType;

const PRODUCT: &str = "
import cuda.tile as ct

@ct.kernel
def product(A, B, C):
    i = ct.bid(0)
    j = ct.bid(1)
    acc = ct.zeros((128, 128), ct.float32)
    for k in range(ct.cdiv(A.shape[1], 64)):
        a = ct.load(A, (i, k), (128, 64), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (k, j), (64, 128), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, b, acc)
    ct.store(C, (i, j), acc.astype(C.dtype))
";

fn emulated() -> Device {
    let table = tessera_emu::driver(&EmuOptions::default()).unwrap();
    Device::Driver(DriverDevice::open(Arc::new(table), 0).unwrap())
}

fn product(timeline: Option<u32>) -> (PreparedLaunch, Vec<f64>) {
    let device = emulated();
    let kernel = Kernel::from_source("product.py", PRODUCT, "product").unwrap();
    let (m, n, k) = (128, 128, 256);
    let there = |tensor: Tensor| tensor.to_device(&device).unwrap();
    let random = RandomStream::new(1);
    let a = there(random.rand(DType::BF16, &[m, k]).unwrap());
    let b = there(random.rand(DType::BF16, &[k, n]).unwrap());
    let c = there(Tensor::empty(DType::BF16, &[m, n]).unwrap());
    let args: Vec<(&str, Value)> = vec![("A", Value::from(&a)), ("B", Value::from(&b)), ("C", Value::from(&c))];
    let options = CompileOptions { timeline, ..CompileOptions::default() };
    let launch = kernel.prepare(&args, LaunchGrid::Blocks([1, 1, 1]), &options, &device).unwrap();
    launch.run().unwrap();
    let result = c.to_f64().unwrap();
    (launch, result)
}

fn recorded(launch: &PreparedLaunch) -> Option<Timeline> {
    launch.on_device().unwrap().timeline().unwrap()
}

fn text(launch: &PreparedLaunch) -> String {
    match &launch.on_device().unwrap().kernel().image().code {
        ImageCode::Ptx(text) => text.clone(),
        ImageCode::Cubin(_) => String::new(),
    }
}

#[test]
fn roles_and_stages_of_a_product_are_recorded_and_change_nothing() {
    let (plain, expected) = product(None);
    assert!(recorded(&plain).is_none());
    assert!(!text(&plain).contains("globaltimer"), "marks cost something where nobody asks for them");
    let (launch, found) = product(Some(1));
    assert_eq!(found, expected);
    let timeline = recorded(&launch).expect("a timeline");
    let spans = timeline.spans();
    let named = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    for name in ["loading warps", "multiplying warps", "wait for data", "wait for a free slot"] {
        assert!(!named(name).is_empty(), "no span `{name}`: {:?}", timeline.plan.marks);
    }
    // Whoever loads does not multiply.
    let loading: Vec<u32> = named("loading warps").iter().map(|span| span.warp).collect();
    assert!(named("multiplying warps").iter().all(|span| !loading.contains(&span.warp)));
    // What is waited for lies within its warp's role.
    for wait in named("wait for data") {
        let role =
            spans.iter().find(|span| span.block == wait.block && span.warp == wait.warp && span.name == "multiplying warps");
        let role = role.expect("a role around it");
        let end = |span: &tessera_runtime::Span| span.start + span.length.unwrap_or(0);
        assert!(role.start <= wait.start && end(wait) <= end(role), "{role:?} {wait:?}");
    }
    let trace = timeline.chrome_trace();
    assert!(trace.contains(r#""displayTimeUnit":"ns""#) && trace.contains(r#""name":"process_name""#), "{trace}");
}

#[test]
fn only_sampled_blocks_have_memory() {
    let source = "
import tessera
from tessera import Tensor, tile

@tessera.kernel
def double(x: Tensor[\"N\", fp32]):
    i = tile.linear_id()
    if i < x.shape[0]:
        x[i] = x[i] * 2.0
";
    let device = emulated();
    let kernel = Kernel::from_source("double.py", source, "double").unwrap();
    let x = Tensor::ones(DType::F32, &[300]).unwrap().to_device(&device).unwrap();
    let options = CompileOptions { timeline: Some(2), block: Some(64), ..CompileOptions::default() };
    let launch = kernel.prepare(&[("x", Value::from(&x))], LaunchGrid::Blocks([5, 1, 1]), &options, &device).unwrap();
    launch.run().unwrap();
    assert!(x.to_f64().unwrap().iter().all(|&value| value == 2.0));
    let timeline = recorded(&launch).expect("a timeline");
    let mut blocks: Vec<u64> = timeline.spans().iter().map(|span| span.block).collect();
    blocks.dedup();
    assert_eq!(blocks, [0, 2, 4]);
    let hidden = &launch.on_device().unwrap().kernel().image().hidden;
    assert!(hidden.iter().any(|hidden| matches!(hidden, HiddenParam::Timeline(plan) if plan.every == 2 && plan.warps == 2)));
}
