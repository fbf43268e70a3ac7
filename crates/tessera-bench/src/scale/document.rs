//! The tables of `docs/scale.md`, as Markdown. The command that prints them is `cargo run -p tessera-bench --example scale`.

use std::fmt::Write;

use super::algorithm::Algorithm;
use super::machine::{Link, Machine};
use super::operators::{Overlap, Product, RingAttention};
use super::points::{Measured, PUBLISHED, Published};
use crate::collectives::Collective;
use crate::units::{self, significant};

const RANKS: [usize; 12] = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384];
const SIZES: [u64; 4] = [64 << 10, 1 << 20, 64 << 20, 1 << 30];

/// All tables, for links fitted to these points and nodes of 8 GPUs with a card of 400 Gbit/s each. `None` where the points tell too
/// little.
pub fn document(points: &[Measured]) -> Option<String> {
    let machine = Machine::fitted(points, 8, 400.0)?;
    let mut text = String::new();
    fits(&mut text, &machine);
    checks(&mut text, points);
    stops(&mut text, &machine);
    for collective in Collective::ALL {
        collectives(&mut text, &machine, collective);
    }
    products(&mut text, &machine);
    ring(&mut text, &machine);
    Some(text)
}

fn table(text: &mut String, title: &str, header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    let _ = writeln!(text, "### {title}\n\n| {} |\n|{}", header.join(" | "), "---|".repeat(header.len()));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text.push('\n');
}

/// Microseconds in a unit that fits.
fn time(us: f64) -> String {
    units::time(us * 1e3)
}

fn size(bytes: u64) -> String {
    units::bytes(bytes as f64)
}

fn fits(text: &mut String, machine: &Machine) {
    let row = |name: &str, link: &Link| {
        vec![
            name.to_string(),
            significant(link.base, 3),
            significant(link.step, 2),
            significant(link.rate / 1e3, 3),
            format!("{:.0} %", link.worst * 100.0),
        ]
    };
    let rows = [
        row("one-shot (PyTorch's kernel)", &machine.one_shot),
        row("two-shot (PyTorch's kernel)", &machine.two_shot),
        row("NCCL ring, LL", &machine.ring_ll),
        row("NCCL ring", &machine.ring),
    ];
    table(text, "Fitted links inside a node", &["algorithm", "base, us", "step, us", "GB/s", "worst point"], rows);
}

/// What the model says of a published figure.
fn predicted(points: &[Measured], published: &Published) -> Option<f64> {
    let machine = Machine::fitted(points, published.gpus, published.network)?;
    let ranks = published.nodes * published.gpus;
    match published.algorithm {
        Some(algorithm) => machine.time(algorithm, Collective::AllReduce, ranks, published.bytes),
        None => Some(machine.best_of_nccl(Collective::AllReduce, ranks, published.bytes).1),
    }
}

fn checks(text: &mut String, points: &[Measured]) {
    let rows = PUBLISHED.iter().filter_map(|own| {
        let model = predicted(points, own)?;
        let algorithm = own.algorithm.map_or("NCCL's choice".to_string(), Algorithm::name);
        Some(vec![
            own.machine.to_string(),
            algorithm,
            size(own.bytes),
            time(own.us),
            time(model),
            significant(model / own.us, 3),
            own.source.to_string(),
        ])
    });
    let header = ["machine", "algorithm", "all-reduce of", "published", "model", "model / published", "source"];
    table(text, "Checked against published figures", &header, rows);
}

fn stops(text: &mut String, machine: &Machine) {
    let rows = [2usize, 3, 4, 6, 8].map(|ranks| {
        let first_two_shot = (12..=30).map(|power| 1u64 << power);
        let two_shot =
            first_two_shot.into_iter().find(|&bytes| machine.one_shot_or_two_shot(ranks, bytes).0 == Algorithm::TwoShot);
        let name = |bytes: Option<u64>| bytes.map_or("never up to 1 GiB".to_string(), size);
        vec![ranks.to_string(), name(two_shot), name(machine.stops(ranks))]
    });
    table(
        text,
        "Predicted: where our kernels stop, inside a node, if they are as fast as PyTorch's",
        &["ranks", "two-shot from", "NCCL from"],
        rows,
    );
}

fn collectives(text: &mut String, machine: &Machine, collective: Collective) {
    let rows = RANKS.map(|ranks| {
        let cells = SIZES.map(|bytes| {
            let (algorithm, us) = machine.best(collective, ranks, bytes);
            let nccl = machine.best_of_nccl(collective, ranks, bytes).1;
            let other = if nccl > 1.005 * us { format!(" (NCCL {})", time(nccl)) } else { String::new() };
            format!("{}, {}{other}", time(us), algorithm.name())
        });
        std::iter::once(ranks.to_string()).chain(cells).collect()
    });
    let sizes = SIZES.map(size);
    let header: Vec<&str> = std::iter::once("ranks").chain(sizes.iter().map(String::as_str)).collect();
    table(text, &format!("Predicted: {}", collective.name()), &header, rows);
}

fn overlap_cells(own: Overlap) -> [String; 4] {
    [time(own.compute), time(own.exchange), time(own.serial), time(own.overlapped)]
}

fn products(text: &mut String, machine: &Machine) {
    let product = Product { m: 8192, n: 8192, k: 8192, element: 2, rate: 725e6 };
    let rows = [2usize, 4, 8, 16, 32, 64].into_iter().flat_map(|ranks| {
        let both = [
            ("all-gather + product", product.gathered(machine, ranks)),
            ("product + reduce-scatter", product.scattered(machine, ranks)),
        ];
        both.map(|(name, own)| [ranks.to_string(), name.to_string()].into_iter().chain(overlap_cells(own)).collect())
    });
    let header = ["ranks", "operator", "product", "exchange", "one after another", "overlapped"];
    table(text, "Predicted: products of 8192 cubed in bf16, at 725 TFLOP/s a GPU", &header, rows);
}

fn ring(text: &mut String, machine: &Machine) {
    let attention = RingAttention { tokens: 8192, heads: 32, kv_heads: 8, width: 128, element: 2, rate: 700e6 };
    let rows = RANKS.map(|ranks| {
        let own = attention.time(machine, ranks);
        let tokens = (attention.tokens * ranks as u64).to_string();
        let from = attention.hidden_from(machine, ranks);
        let from = from.map_or_else(|| format!("more than {}", RingAttention::MOST_TOKENS), |tokens| tokens.to_string());
        [ranks.to_string(), tokens].into_iter().chain(overlap_cells(own)).chain([from]).collect()
    });
    let header = ["ranks", "tokens", "attention", "exchange", "one after another", "overlapped", "hidden from tokens a rank"];
    let title = "Predicted: ring attention, 8192 tokens a rank, 32 heads of 128 with 8 of keys, bf16, at 700 TFLOP/s a GPU";
    table(text, title, &header, rows);
}
