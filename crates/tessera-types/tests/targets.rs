//! The table of targets: factors against published figures, limits against each other, names.

use std::collections::BTreeSet;

use tessera_types::{Arch, DType, Device, Feature, Issuer, Mover, Target, Unit};

#[test]
fn every_peak_is_the_product_of_its_factors() {
    let mut worst = (0.0_f64, String::new());
    for device in Device::ALL {
        for peak in device.peaks {
            let formula = peak.tera_at(device.sms, peak.mhz);
            let error = (formula / peak.tera - 1.0).abs();
            let row = format!("{} {:?} {:?}: {formula:.2} for {}", device.name, peak.unit, peak.operands, peak.tera);
            assert!(error < 0.02, "{row}");
            assert!(peak.mhz <= device.boost_mhz, "{row}");
            assert!(device.peak_at_boost(peak) >= peak.tera);
            if error > worst.0 {
                worst = (error, row);
            }
        }
    }
    println!("furthest: {} ({:.2} %)", worst.1, worst.0 * 100.0);
}

#[test]
fn published_dense_figures_are_found_by_name_and_format() {
    let cases = [
        ("V100", DType::F16, DType::F32, Some(125.0)),
        ("V100", DType::BF16, DType::F32, None),
        ("T4", DType::I8, DType::I32, Some(130.0)),
        ("T4", DType::TF32, DType::F32, None),
        ("A100", DType::BF16, DType::F32, Some(312.0)),
        ("A100", DType::F64, DType::F64, Some(19.5)),
        ("A100", DType::F8E4M3, DType::F32, None),
        ("A10", DType::BF16, DType::F32, Some(125.0)),
        ("L4", DType::BF16, DType::F32, Some(121.0)),
        ("L40S", DType::F16, DType::F32, Some(362.05)),
        ("RTX 3090", DType::F16, DType::F32, Some(71.0)),
        ("RTX3090", DType::F16, DType::F16, Some(142.0)),
        ("RTX4090", DType::F8E4M3, DType::F32, Some(330.3)),
        ("H100 SXM", DType::F8E5M2, DType::F32, Some(1978.9)),
        ("H100 PCIe", DType::BF16, DType::F32, Some(756.0)),
        ("H200", DType::TF32, DType::F32, Some(494.7)),
        ("H200", DType::F32, DType::F32, Some(66.9)),
        ("H200", DType::F6E2M3, DType::F32, None),
        ("B200", DType::F6E2M3, DType::F32, Some(4500.0)),
        ("B200", DType::F4E2M1, DType::F32, Some(9000.0)),
    ];
    for (name, operand, accumulator, tera) in cases {
        let device = Device::by_name(name).unwrap();
        assert_eq!(device.peak(operand, accumulator).map(|p| p.tera), tera, "{name} {operand}");
    }
    let h200 = Device::by_name("h200").unwrap();
    let bf16 = h200.peak(DType::BF16, DType::F32).unwrap();
    assert_eq!(h200.ridge(bf16).round(), 206.0);
    assert_eq!(h200.peak_at_boost(bf16).round(), 1071.0);
    assert_eq!(h200.peak_of(Unit::Vector, DType::F64, DType::F64).unwrap().tera, 33.5);
    assert_eq!(h200.peak(DType::F64, DType::F64).unwrap().tera, 66.9);
}

#[test]
fn a_tensor_peak_exists_only_where_the_instruction_does() {
    for device in Device::ALL {
        let has = |dtype: DType| device.peaks.iter().any(|p| p.unit == Unit::Tensor && p.operands.contains(&dtype));
        let arch = device.arch;
        for (dtype, instruction) in [
            (DType::F16, arch.has_f16_mma()),
            (DType::BF16, arch.has_bf16_mma()),
            (DType::TF32, arch.has_tf32_mma()),
            (DType::I8, arch.has_i8_mma()),
            (DType::F8E4M3, arch.has_fp8_mma()),
            (DType::F6E3M2, arch.has_fp6_fp4_mma()),
            (DType::F4E2M1, arch.has_fp6_fp4_mma()),
        ] {
            assert_eq!(has(dtype), instruction, "{} {dtype}", device.name);
        }
        assert!(!has(DType::I4) || arch.has_i4_mma());
        assert!(!has(DType::F64) || arch.has_f64_mma());
        // One row answers one question.
        for dtype in DType::ALL {
            for accumulator in DType::ALL {
                for unit in [Unit::Tensor, Unit::Vector] {
                    let answers = device
                        .peaks
                        .iter()
                        .filter(|p| p.unit == unit && p.operands.contains(dtype) && p.accumulators.contains(accumulator));
                    assert!(answers.count() <= 1, "{} {dtype} {accumulator}", device.name);
                }
            }
        }
    }
}

#[test]
fn limits_fit_together() {
    for arch in Arch::ALL {
        let limits = arch.limits();
        assert_eq!(limits.threads_per_sm, limits.warps_per_sm * Arch::WARP, "{arch}");
        assert!(limits.shared_per_block + limits.shared_reserved_per_block <= limits.shared_per_sm, "{arch}");
        assert!(limits.shared_per_block_default <= limits.shared_per_block);
        assert!(limits.threads_per_block <= limits.threads_per_sm);
        assert_eq!(limits.blocks_per_cluster > 1, arch.has_clusters());
        let (major, minor) = arch.compute_capability();
        assert_eq!(arch.name().trim_end_matches('a'), format!("sm_{major}{minor}"));
    }
    assert!(Arch::ALL.windows(2).all(|p| p[0].first_ptx_version() <= p[1].first_ptx_version()));
    let hopper = Arch::Sm90a.limits();
    assert_eq!((hopper.shared_per_block, hopper.threads_per_sm, hopper.registers_per_thread), (232_448, 2048, 255));
}

#[test]
fn hopper_and_blackwell_differ_where_they_should() {
    let differing: Vec<&str> =
        Feature::ALL.iter().filter(|&&f| Arch::Sm90a.has(f) != Arch::Sm100a.has(f)).map(|f| f.name()).collect();
    let expected = ["i4 mma", "fp6 and fp4 mma", "fp6 and fp4 cvt", "f32x2", "wgmma", "tcgen05", "256-bit loads", "kept lines"];
    assert_eq!(differing, expected);
    assert!(!Arch::Sm75.has_cp_async() && Arch::Sm80.has_cp_async());
    assert!(Arch::Sm89.has_fp8_mma() && !Arch::Sm86.has_fp8_mma());
    assert!(Arch::Sm90a.has_tma() && !Arch::Sm89.has_tma());
}

/// The rows of matrix instructions and the features of formats say the same, and each row is an instruction.
#[test]
fn matrix_instructions_are_those_of_the_features() {
    for &arch in Arch::ALL {
        let warp = |dtype| arch.matrix_instructions(Issuer::Warp, dtype).next().is_some();
        for (feature, dtype) in [
            (Feature::Bf16Mma, DType::BF16),
            (Feature::Tf32Mma, DType::TF32),
            (Feature::F64Mma, DType::F64),
            (Feature::Fp8Mma, DType::F8E4M3),
        ] {
            assert_eq!(warp(dtype), arch.has(feature), "{arch}: {dtype}");
        }
        let groups = arch.matrix_instructions(Issuer::Warpgroup, DType::BF16).next();
        assert_eq!(groups.is_some(), arch.has_wgmma(), "{arch}");
        for row in DType::ALL.iter().flat_map(|&dtype| {
            arch.matrix_instructions(Issuer::Warp, dtype).chain(arch.matrix_instructions(Issuer::Warpgroup, dtype))
        }) {
            assert!(row.columns.windows(2).all(|pair| pair[0] < pair[1]) && !row.columns.is_empty(), "{row:?}");
            assert!(!row.left.is_empty() && !row.right.is_empty() && !row.sums.is_empty(), "{row:?}");
        }
    }
    // A warpgroup's largest product of `bf16` holds the tensor cores for 128 clocks, and 8-bit ones twice as deep as long.
    let h200 = Device::by_name("h200").unwrap();
    for dtype in [DType::BF16, DType::F8E4M3, DType::TF32] {
        let row = Arch::Sm90a.matrix_instructions(Issuer::Warpgroup, dtype).next().unwrap();
        assert_eq!(row.clocks(256, h200, DType::F32), Some(128.0), "{dtype}");
    }
}

/// Registers that roles move are among those that the block starts with.
#[test]
fn registers_of_roles_fit_what_a_block_starts_with() {
    let hopper = Arch::Sm90a;
    assert_eq!([128, 256, 384, 512].map(|threads| hopper.registers_at_launch(threads)), [255, 255, 168, 128]);
    let (least, most) = hopper.limits().registers_moved;
    assert!(least % hopper.limits().register_step == 0 && most % hopper.limits().register_step == 0 && least < most);
    assert!(3 * hopper.registers_at_launch(384) >= 40 + 2 * 232);
    assert_eq!([Arch::Sm80, Arch::Sm90, Arch::Sm90a, Arch::Sm100a].map(Arch::multiprocessors), [108, 132, 132, 148]);
    assert!(Arch::ALL.iter().all(|arch| arch.multiprocessors() > 1));
    assert_eq!([(8, 0), (9, 0), (12, 0)].map(Arch::target_of), ["sm_80", "sm_90a", "sm_120a"]);
}

/// Copies are those of the features, costs have a source and a figure.
#[test]
fn copies_and_costs_are_complete() {
    for &arch in Arch::ALL {
        let moves = |wanted| arch.async_copies().iter().any(|copy| copy.mover == wanted);
        assert_eq!((moves(Mover::Threads), moves(Mover::EngineBox)), (arch.has_cp_async(), arch.has_tma()), "{arch}");
        for cost in arch.costs() {
            assert!(!cost.source.is_empty() && (cost.latency.is_some() || cost.per_clock.is_some()), "{arch}: {cost:?}");
        }
    }
}

#[test]
fn targets_parse_and_print() {
    let mut names = BTreeSet::new();
    for &arch in Arch::ALL {
        let target = Target::parse(arch.name()).unwrap();
        assert_eq!((target, target.to_string().as_str()), (Target::from(arch), arch.name()));
        assert!(names.insert(arch.name().to_string()));
    }
    for device in Device::ALL {
        assert_eq!(device.name.parse(), Ok(Target::from(device)));
        for name in [device.name].iter().chain(device.aliases) {
            assert_eq!(Target::parse(&name.to_uppercase()).unwrap().device.unwrap().name, device.name);
        }
        assert!(names.insert(device.name.to_string()), "{} twice", device.name);
    }
}

#[test]
fn similar_products_and_architectures_are_not_taken_for_known_ones() {
    for name in ["NVIDIA GeForce RTX 3090 Ti", "NVIDIA A100-SXM4-40GB", "NVIDIA H100 NVL", "sm_91", "sm_120", "H20", "", "gpu"] {
        let error = Target::parse(name).unwrap_err();
        assert!(error.to_string().starts_with(&format!("`{name}` is not a target")), "{error}");
    }
}
