//! What is chosen for some products.

use super::*;

const ALL: May = May { copy: true, exchange: true, cluster: true, added: false, banded: false };

fn chosen(sizes: [u64; 3]) -> Choice {
    of(sizes, DType::BF16, LINE, false)
}

fn of([m, n, k]: [u64; 3], storage: DType, lines: u64, along: bool) -> Choice {
    let product = product([m, n, k], storage, [lines; 2], along);
    choose(Product { may: May { copy: false, ..ALL }, ..product }, Arch::Sm90a)
}

fn product([m, n, k]: [u64; 3], storage: DType, lines: [u64; 2], along: bool) -> Product {
    Product { sizes: [1, m, n, k], storage, result: DType::F32, lines, along: [true, along], may: ALL, ragged: false }
}

fn shares_rounds(choice: &Choice) -> bool {
    matches!(choice.sharing, Sharing::Rounds | Sharing::Cluster)
}

#[test]
fn ragged_lines_are_copied_where_that_pays() {
    let copied = |sizes: [u64; 3], lines: [u64; 2]| choose(product(sizes, DType::BF16, lines, false), Arch::Sm90a).copied;
    // Both factors that threads would bring.
    assert_eq!(copied([3001, 3001, 3001], [2, 2]), [true, true]);
    assert_eq!(copied([57, 38, 5881], [2, 4]), [true, true]);
    // Those of the edges.
    assert_eq!(copied([33, 31, 449], [2, 2]), [true, true]);
    assert_eq!(copied([17, 64, 449], [2, 128]), [true, false]);
    assert_eq!(copied([4096, 4096, 4096], [128, 128]), [false, false]);
    assert_eq!(copied([256, 256, 136], [16, 128]), [false, false]);
    let shared = choose(product([57, 38, 5881], DType::BF16, [2, 4], false), Arch::Sm90a);
    assert!(shares_rounds(&shared), "what is padded can be shared: {shared:?}");
    let unasked = Product { may: May { copy: false, ..ALL }, ..product([3001, 3001, 3001], DType::BF16, [2, 2], false) };
    assert_eq!(choose(unasked, Arch::Sm90a).copied, [false, false]);
}

#[test]
fn groups_of_few_rows_are_columns_and_share_no_rounds() {
    let groups = |rows, result| {
        let sizes = [8, rows, 4096, 4096];
        let product = Product {
            sizes,
            storage: DType::BF16,
            result,
            lines: [LINE; 2],
            along: [true; 2],
            may: May::default(),
            ragged: true,
        };
        choose(product, Arch::Sm90a)
    };
    let few = groups(8, DType::BF16);
    assert_eq!((few.exchanged, few.tile[0], few.sharing), (true, 16, Sharing::Nothing));
    assert!(!groups(33, DType::BF16).exchanged);
    let many = groups(2048, DType::BF16);
    assert_eq!((many.tile[0] * many.tile[1], many.sharing, many.cluster > 0), (128 * 256, Sharing::Blocks, false));
}

#[test]
fn large_products_take_the_largest_tiles() {
    for sizes in [[4096, 4096, 4096], [8192, 8192, 8192]] {
        let choice = chosen(sizes);
        assert_eq!((choice.tile[0] * choice.tile[1], choice.sharing), (128 * 256, Sharing::Blocks), "{sizes:?}");
    }
}

#[test]
fn tiles_fill_the_last_wave() {
    // 528 blocks are four waves, where 544 of the other tile with as many elements are more.
    let choice = chosen([4096, 4104, 4096]);
    assert_eq!((choice.tile, choice.sharing), ([256, 128, 64], Sharing::Blocks));
    assert_eq!(chosen([3072, 3072, 3072]).tile, [192, 192, 64]);
    // 132 blocks are all of one wave, where the right factor may be cut so, or the left one of the transposed product.
    let exchanged = chosen([1536, 1536, 1536]);
    assert_eq!((exchanged.tile, exchanged.exchanged), ([144, 128, 64], true));
    let along = of([1536, 1536, 1536], DType::BF16, LINE, true);
    assert_eq!(along.tile, [128, 144, 64]);
}

#[test]
fn pairs_of_blocks_bring_ragged_lines_together() {
    let tile = |sizes: [u64; 3]| of(sizes, DType::BF16, VECTOR, false).tile;
    assert_eq!(tile([5000, 5000, 5000]), [128, 256, 64]);
    assert_eq!(tile([3000, 3000, 3000]), [192, 192, 64]);
    assert_eq!(tile([4096, 4104, 4096]), [128, 256, 64]);
    // Nor is a factor copied for that.
    let one = Product { lines: [LINE, VECTOR], ..product([4096, 4104, 4096], DType::BF16, [VECTOR; 2], false) };
    let one = choose(Product { along: [true, false], ..one }, Arch::Sm90a);
    assert_eq!((one.tile[0] * one.tile[1], one.copied), (128 * 256, [false; 2]));
    let choice = of([3000, 3000, 3000], DType::BF16, VECTOR, false);
    assert_eq!((choice.cluster > 0, choice.sharing), (true, Sharing::Blocks));
    assert_eq!(chosen([3072, 3072, 3072]).cluster, 0);
    // Nothing comes by the copy engine.
    assert_eq!(of([3001, 3001, 3001], DType::BF16, 2, false).cluster, 0);
}

#[test]
fn few_tiles_with_a_long_contraction_are_shared() {
    let one = chosen([128, 128, 65536]);
    assert_eq!((one.sharing, one.clusters > 1), (Sharing::Cluster, true), "{one:?}");
    assert_eq!(chosen([512, 512, 64]).sharing, Sharing::Nothing);
}

#[test]
fn long_contractions_of_few_rows_are_split_in_clusters() {
    for (sizes, storage) in [([128, 768, 12160], DType::BF16), ([64, 4096, 14336], DType::F8E4M3), ([100, 512, 8192], DType::I8)]
    {
        let choice = of(sizes, storage, LINE, true);
        assert_eq!((choice.sharing, choice.cluster > 1), (Sharing::Cluster, true), "{choice:?}");
    }
    // Sums fit where the slots of a factor were, and there are rounds for each block.
    let ways = ways(product([640, 640, 256], DType::BF16, [LINE; 2], true), Arch::Sm90a);
    let split: Vec<&Way> = ways.iter().map(|possible| &possible.way).filter(|way| way["sharing"] == 4).collect();
    assert!(split.iter().any(|way| (way["TM"], way["TN"], way["num_ctas"]) == (128, 256, 4)));
    assert!(split.iter().all(|way| (way["TM"], way["TN"]) != (192, 192) && way["num_ctas"] <= 256 / way["TK"]));
}

#[test]
fn tiles_with_few_rounds_are_taken_in_turn() {
    assert_eq!(chosen([8192, 8192, 512]).sharing, Sharing::Turns);
    assert_eq!(chosen([8192, 8192, 512]).tile, [128, 128, 64]);
    // Sums that take longer than they are stored are done by all warps.
    assert_eq!(chosen([4096, 4096, 4096]).sharing, Sharing::Blocks);
}

#[test]
fn few_rows_are_columns() {
    let thin = chosen([1, 4096, 4096]);
    assert_eq!((thin.tile, thin.exchanged), ([8, 64, 256], true));
    // Few tiles with long contractions are shared.
    let few = chosen([1, 512, 16384]);
    assert_eq!((few.tile[..2].to_vec(), few.exchanged, shares_rounds(&few)), (vec![8, 64], true, true), "{few:?}");
    assert_eq!(chosen([33, 4096, 14336]).tile[..2], [64, 64]);
    assert_eq!(chosen([65, 4096, 4096]).tile[2], 64);
    // Of other types where their lines lie along the contraction.
    assert!(!of([1, 4096, 4096], DType::F8E4M3, LINE, false).exchanged);
    let bytes = of([1, 4096, 4096], DType::F8E4M3, LINE, true);
    assert_eq!((bytes.tile, bytes.exchanged), ([8, 64, 512], true));
    assert!(!of([1, 4095, 4096], DType::BF16, 2, false).exchanged);
}

#[test]
fn factors_are_turned_by_a_launch_where_that_pays() {
    let copied = |sizes, storage, along| {
        let product = Product { along, ..product(sizes, storage, [LINE; 2], true) };
        choose(product, Arch::Sm90a).copied
    };
    assert_eq!(copied([4096; 3], DType::TF32, [true, false]), [false, true]);
    assert_eq!(copied([4096; 3], DType::F8E4M3, [false, false]), [true, true]);
    assert_eq!(copied([4096; 3], DType::I8, [true, true]), [false, false]);
    assert_eq!(copied([64; 3], DType::F8E4M3, [true, false]), [false, false]);
}

#[test]
fn a_way_says_what_a_choice_is() {
    let product = product([640, 640, 8192], DType::BF16, [VECTOR; 2], true);
    let ways = ways(product, Arch::Sm90a);
    assert!(ways.len() > 100, "{} ways", ways.len());
    for (at, PossibleWay { way, .. }) in ways.iter().enumerate() {
        let choice = Choice::of_way(way, &product).expect("a way of this product");
        assert_eq!(choice.way(), *way);
        assert!(ways[..at].iter().all(|other| other.way != *way), "{choice:?} comes twice");
    }
    let falls = ways[1..].windows(2).filter(|pair| pair[1].clocks < pair[0].clocks).count();
    assert_eq!(falls, 1, "those that should take least come first: the best of each kind, then what is like them");
    assert_eq!(ways[0].way, choose(product, Arch::Sm90a).way());
    let refused = |product: &Product, way: &Way| Choice::of_way(way, product).expect_err("no way").0;
    let with =
        |name: &str, value: i64| [(name.to_string(), value)].into_iter().chain(without(&ways[0].way, name)).collect::<Way>();
    assert_eq!(refused(&product, &with("TM", 0)), "`TM=0`: from 1 to 1024");
    assert_eq!(refused(&product, &without(&ways[0].way, "TM").collect()), "a product wants `TM` chosen, too");
    assert!(
        refused(&product, &with("VECTOR_WIDTH", 4)).starts_with("`VECTOR_WIDTH` is no choice of a product, which has TM, TN")
    );
    let whole = Product { lines: [LINE; 2], ..product };
    assert_eq!(refused(&whole, &with("COPY_A", 1)), "`COPY_A=1`: this factor is taken as it lies");
    let alone: Way = with("sharing", 4).into_iter().chain([("num_ctas".to_string(), 0)]).collect();
    assert_eq!(refused(&product, &alone), "`sharing=4`: the blocks of a cluster split rounds, `num_ctas` of 2, 4 or 8");
    let one: Way =
        without(&alone, "num_clusters").chain([("num_clusters".to_string(), 3), ("num_ctas".to_string(), 2)]).collect();
    assert!(Choice::of_way(&one, &product).is_ok_and(|choice| choice.clusters == 3));
    let rounds: Way = without(&one, "sharing").chain([("sharing".to_string(), 2)]).collect();
    let told = "`num_clusters=3`: clusters share the rounds that blocks split, `sharing=4`";
    assert_eq!(refused(&product, &rounds), told);
    let several = Product { sizes: [3, 640, 640, 8192], ..product };
    assert_eq!(refused(&several, &with("EXCHANGED", 1)), "`EXCHANGED=1`: for one matrix alone");
}

fn without<'w>(way: &'w Way, name: &'w str) -> impl Iterator<Item = (String, i64)> + 'w {
    way.iter().filter(move |(own, _)| *own != name).map(|(own, value)| (own.clone(), *value))
}
