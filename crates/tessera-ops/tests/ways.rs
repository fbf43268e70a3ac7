//! Plans with a lockfile: which choice is taken, and what is said where there is none, or one that does not fit.

use std::sync::Arc;

use tessera_ops::{Call, CallError, Machine, Operator, PlanError, Problem, Way, find};
use tessera_runtime::lock::{Entry, Key, Lockfile};
use tessera_runtime::{CompileOptions, Device, KernelError, LaunchGrid, Lock, OptLevel, Site, Tensor};
use tessera_types::{Arch, DType, Policy};

fn gemm() -> &'static Operator {
    find("gemm").expect("an operator")
}

fn bf16() -> Policy {
    "bf16".parse().expect("a policy")
}

fn problem(k: u64) -> Problem {
    Problem::new(&[("batch", 1), ("m", 64), ("n", 200), ("k", k)], "nn")
}

fn call(device: &Device, k: usize, lock: Option<&Arc<Lock>>) -> Call<'static> {
    let ones = |shape: [usize; 2]| Tensor::ones(DType::BF16, &shape).and_then(|made| made.to_device(device)).expect("memory");
    let tensors = vec![("A", ones([64, k])), ("B", ones([k, 200]))];
    Call { tensors, lock: lock.cloned(), ..Call::default() }
}

/// A frozen lockfile of these choices.
fn frozen(choices: &[(Key, Way)]) -> Arc<Lock> {
    let lock = Lock::read("no/tessera.lock").expect("none is none").frozen();
    let mut entries = Lockfile::default();
    for (key, way) in choices {
        entries.insert(key.clone(), Entry { config: way.clone(), ..Entry::default() });
    }
    lock.set(entries);
    Arc::new(lock)
}

/// Two ways whose results have other blocks than that of the plan.
fn others() -> [Way; 2] {
    let ways = gemm().ways(&problem(128), bf16(), Machine::Gpu(Arch::Sm90a)).expect("ways");
    let with = |columns: i64| {
        let fits = |way: &&Way| (way["TN"], way["num_ctas"], way["EXCHANGED"], way["sharing"]) == (columns, 0, 0, 0);
        ways.iter().skip(1).map(|possible| &possible.way).find(fits).expect("a way").clone()
    };
    [with(64), with(128)]
}

fn blocks(way: Option<&Way>) -> [u32; 3] {
    let machine = Machine::Gpu(Arch::Sm90a);
    let plan = match way {
        Some(way) => gemm().plan_in(&problem(128), bf16(), machine, way),
        None => gemm().plan(&problem(128), bf16(), machine),
    };
    plan.expect("a plan").launches[0].grid
}

#[test]
fn a_call_is_cut_as_a_lockfile_says() {
    let device = Device::emulator().expect("an emulator");
    let key = gemm().way_key(&problem(128), bf16(), Site::Device(&device)).expect("several ways");
    let run = |way: Option<&Way>| {
        // Kernels have entries of their own, and a frozen lockfile wants them: what is looked at here is the plan.
        let lock = way.map(|way| frozen(&[(key.clone(), way.clone())]));
        let resolved = gemm().resolve(&call(&device, 128, lock.as_ref())).expect("resolved");
        assert_eq!(resolved.tuned().map(|tuned| &tuned.entry.config), way);
        let result = &resolved.outputs()[0];
        let output = Tensor::zeros_on(result.dtype, &result.shape, &device).expect("memory");
        let unasked = CompileOptions { level: OptLevel::O0, ..CompileOptions::default() };
        let launches = resolved.prepare(std::slice::from_ref(&output), &unasked).expect("prepared");
        launches.iter().try_for_each(|launch| launch.run()).expect("it runs");
        let sums = output.to_device(&Device::Cpu).and_then(|host| host.to_f64()).expect("numbers");
        assert!(sums.iter().all(|&sum| sum == 128.0));
        launches[0].grid()
    };
    let others = others();
    let all = [run(None), run(Some(&others[0])), run(Some(&others[1]))];
    assert_eq!(all, [blocks(None), blocks(Some(&others[0])), blocks(Some(&others[1]))]);
    assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2], "{all:?}");
}

#[test]
fn a_frozen_lockfile_wants_a_choice_where_there_are_several_ways() {
    let device = Device::emulator().expect("an emulator");
    let key = gemm().way_key(&problem(128), bf16(), Site::Device(&device)).expect("several ways");
    let [way, _] = others();
    let lock = frozen(&[(key.clone(), way)]);
    let error = gemm().resolve(&call(&device, 256, Some(&lock))).expect_err("another shape");
    let CallError::Plan(PlanError::Lock(KernelError::Untuned { key: missing, .. })) = &error else { panic!("{error}") };
    assert_eq!((missing.kernel.as_str(), missing.shape.as_str()), ("gemm", "batch 1/1, m 64/64, n 256/8, k 256/128"));
    // What decides is in the key: another precision, however it is spelt, another variant, another place.
    let of = |problem: &Problem, policy: &str, site: Site<'_>| {
        gemm().way_key(problem, policy.parse().expect("a policy"), site).expect("several ways")
    };
    assert_eq!(of(&problem(128), "bf16@accum(fp32)", Site::Device(&device)), key);
    assert_ne!(of(&problem(128), "bf16->bf16", Site::Device(&device)).ir, key.ir);
    assert_ne!(of(&Problem { variant: "nt".into(), ..problem(128) }, "bf16", Site::Device(&device)).ir, key.ir);
    assert_eq!(of(&problem(128), "bf16", Site::Target("sm_90a")).device, "sm_90a");
    // On the CPU, and in a precision with one way, nothing is missing.
    gemm().resolve(&call(&Device::Cpu, 256, Some(&lock))).expect("one way");
    let machine = Machine::Gpu(Arch::Sm90a);
    let parts: Policy = "fp32@3xtf32".parse().expect("a policy");
    assert!(gemm().plan_with(&problem(256), parts, machine, Some((&lock, Site::Device(&device)))).is_ok());
    // Of alpha and beta what counts is whether C is read.
    let with = |variant: &str| Problem { variant: variant.into(), ..problem(128) };
    let blended = |variant: &str| of(&with(variant), "bf16", Site::Device(&device));
    assert_eq!(blended("nn alpha=0.5"), key);
    assert_ne!(blended("nn alpha=0.5 beta=1"), key);
    assert_eq!(blended("nn beta=1"), blended("nn alpha=0.5 beta=-0.5"));
    assert!(find("softmax").expect("an operator").way_key(&problem(128), bf16(), Site::Device(&device)).is_none());
}

#[test]
fn a_choice_that_is_no_way_is_told() {
    let device = Device::emulator().expect("an emulator");
    let [way, _] = others();
    let told = |policy: &str, change: (&str, i64)| {
        let policy: Policy = policy.parse().expect("a policy");
        let key = gemm().way_key(&problem(128), policy, Site::Device(&device)).expect("several ways");
        let mut way = way.clone();
        way.insert(change.0.to_string(), change.1);
        let lock = frozen(&[(key, way)]);
        let machine = Machine::Gpu(Arch::Sm90a);
        let planned = gemm().plan_with(&problem(128), policy, machine, Some((&lock, Site::Device(&device))));
        planned.expect_err("no way").to_string()
    };
    let text = told("bf16", ("sharing", 7));
    assert!(
        text.starts_with("the choice of `no/tessera.lock` for `gemm` for batch 1/1, m 64/64, n 256/8, k 128/128 on emu "),
        "{text}"
    );
    assert!(text.contains("is no way to cut it: `sharing=7`: from 0 to 4\nhelp: delete its table"), "{text}");
    assert!(told("bf16", ("TILE", 1)).contains("`TILE` is no choice of a product"));
    assert!(told("fp32@3xtf32", ("TN", 32)).contains("gemm cuts `fp32@3xtf32` in one way alone here"));
}

#[test]
fn what_is_packed_for_a_target_is_cut_as_for_a_product_of_it() {
    let options = CompileOptions::default();
    let key = gemm().way_key(&problem(128), bf16(), Site::Target("sm_90a")).expect("several ways");
    let of = |product: &str| Key {
        device: format!("sm_90a NVIDIA {product}"),
        toolchain: format!("{}, driver 12.8", key.toolchain),
        ..key.clone()
    };
    let packed = |choices: &[(Key, Way)]| {
        let lock = Lock::read("no/tessera.lock").expect("none is none");
        lock.set(frozen(choices).entries().clone());
        let ahead = gemm().ahead(&problem(128), bf16(), Arch::Sm90a, &options, Some(&Arc::new(lock)));
        ahead.map_err(|error| error.to_string())
    };
    let [one, other] = others();
    for way in [&one, &other] {
        let ahead = packed(&[(of("H200"), way.clone()), (of("H100"), way.clone())]).expect("packed");
        assert_eq!(ahead.tuned.map(|tuned| tuned.entry.config).as_ref(), Some(way));
        let fixed = ahead.packed[0].variant.fixed.as_ref().expect("sizes are fixed");
        assert_eq!(LaunchGrid::from(fixed.grid), LaunchGrid::from(blocks(Some(way))));
    }
    let error = packed(&[(of("H200"), one), (of("H100"), other)]).expect_err("which of them?");
    assert!(error.contains("`gemm` differ: sm_90a NVIDIA H"), "{error}");
    let missing = gemm().ahead(&problem(128), bf16(), Arch::Sm90a, &options, Some(&frozen(&[]))).expect_err("none").to_string();
    assert!(missing.contains("`no/tessera.lock` has no choice for `gemm`"), "{missing}");
    assert!(packed(&[]).expect("packed").tuned.is_none());
}
