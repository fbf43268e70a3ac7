//! The model of collectives, and the document that it prints; `UPDATE_EXPECT=1` writes its tables anew.

use std::path::Path;

use tessera_bench::collectives::Collective;
use tessera_bench::scale::{Algorithm, MEASURED, Machine, Measured, PUBLISHED, Product, document, fit};

const BEGIN: &str = "<!-- tables: cargo run -p tessera-bench --example scale -->\n";

#[test]
fn the_document_has_the_tables_that_the_model_prints() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scale.md");
    let text = std::fs::read_to_string(&path).expect("the document");
    let (before, _) = text.split_once(BEGIN).expect("the line before the tables");
    let wanted = format!("{before}{BEGIN}\n{}", document(MEASURED).expect("points enough"));
    let wanted = format!("{}\n", wanted.trim_end());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, wanted).expect("written");
        return;
    }
    assert!(text == wanted, "docs/scale.md is not what the model prints\nhelp: `cargo xtask bless scale`");
}

#[test]
fn a_fit_finds_what_was_planted_and_refuses_what_contradicts() {
    let planted = |steps: f64, bytes: f64| (steps, bytes, 5.0 + 0.75 * steps + bytes / 300e3);
    let points: Vec<_> =
        [2.0, 6.0, 14.0].into_iter().flat_map(|steps| [4e3, 1e6, 1e9].map(|bytes| planted(steps, bytes))).collect();
    let found = fit(&points).expect("a fit");
    assert!((found.base - 5.0).abs() < 1e-6 && (found.step.unwrap() - 0.75).abs() < 1e-6, "{found:?}");
    assert!((found.rate / 300e3 - 1.0).abs() < 1e-9, "{found:?}");
    let same_steps: Vec<_> = [4e3, 1e6, 1e9].map(|bytes| planted(6.0, bytes)).into();
    let found = fit(&same_steps).expect("a fit");
    assert!(found.step.is_none() && (found.base - 9.5).abs() < 1e-6, "{found:?}");
    assert_eq!(fit(&same_steps[..1]), None);
    assert_eq!(fit(&[(6.0, 1e3, 20.0), (6.0, 1e6, 10.0)]), None);
    // A point of another number of ranks separates steps from what comes before them.
    let more = Measured { collective: Collective::AllReduce, algorithm: Algorithm::Ring, ranks: 2, bytes: 1 << 20, us: 25.0 };
    let machine = Machine::fitted(&[MEASURED, &[more]].concat(), 8, 400.0).expect("points enough");
    assert_ne!(machine.ring.step, Machine::hopper().ring.step);
}

#[test]
fn fitted_links_are_near_their_points() {
    let machine = Machine::hopper();
    for link in [machine.one_shot, machine.two_shot, machine.ring_ll, machine.ring] {
        assert!(link.worst < 0.16, "{link:?}");
        assert!((100e3..450e3).contains(&link.rate), "an NVLink of an H200 carries 450 GB/s one way: {link:?}");
    }
}

#[test]
fn published_figures_are_within_a_quarter_but_for_one() {
    let mut far = Vec::new();
    for own in PUBLISHED {
        let machine = Machine::fitted(MEASURED, own.gpus, own.network).expect("points enough");
        let ranks = own.nodes * own.gpus;
        let model = match own.algorithm {
            Some(algorithm) => machine.time(algorithm, Collective::AllReduce, ranks, own.bytes).expect("an algorithm for it"),
            None => machine.best_of_nccl(Collective::AllReduce, ranks, own.bytes).1,
        };
        if !(0.8..1.25).contains(&(model / own.us)) {
            far.push((own.machine, own.bytes, model / own.us));
        }
    }
    assert_eq!(far.len(), 1, "{far:?}");
    assert_eq!(far[0].1, 4096);
}

#[test]
fn more_bytes_never_take_less_and_no_link_carries_more_than_it_can() {
    let machine = Machine::hopper();
    for collective in Collective::ALL {
        for ranks in [2, 3, 4, 8, 16, 64, 1024, 16_384] {
            let mut last = 0.0;
            for bytes in (12..=34).map(|power| 1u64 << power) {
                let (algorithm, us) = machine.best(collective, ranks, bytes);
                assert!(us >= last, "{collective} of {bytes} bytes among {ranks} by {}: {us} after {last}", algorithm.name());
                assert!(us <= machine.best_of_nccl(collective, ranks, bytes).1);
                last = us;
            }
            if ranks > 16 {
                // A card carries what leaves its node: at least a node's part of the message, in each direction.
                let leaving = collective.bus_factor(ranks / 8) * (1u64 << 34) as f64 / 8.0;
                assert!(last >= leaving / 50e3, "{collective} among {ranks}");
            }
        }
    }
    assert_eq!(machine.time(Algorithm::Ring, Collective::AllReduce, 12, 1 << 20), None, "half a node");
    assert_eq!(machine.time(Algorithm::OneShot, Collective::AllReduce, 16, 1 << 10), None, "no peer memory between nodes");
}

#[test]
fn overlap_takes_the_longer_part_and_one_piece_of_the_other() {
    let product = Product { m: 8192, n: 8192, k: 8192, element: 2, rate: 725e6 };
    let own = product.gathered(&Machine::hopper(), 4);
    assert!(own.overlapped < own.serial && own.overlapped > own.compute.max(own.exchange), "{own:?}");
    assert!((own.overlapped - own.compute.max(own.exchange) - own.compute.min(own.exchange) / 4.0).abs() < 1e-9);
}
