//! Copies between buffers in shared memory, and how elements change places where the buffers' fastest axes differ.
//!
//! A thread turns a block of one word across by 16 bytes down: it reads a word of each of the source's lines, permutes bytes, and writes
//! 16 bytes of each of the target's lines. The lanes of a warp read neighbouring words, so a read meets no bank twice:
//!
//! ```text
//! source (8 bits)        4 words read       permuted        one piece of 4 written lines
//!   k0:  a0 a1 a2 a3     a0 a1 a2 a3        a0 b0 c0 d0     n0: .. a0 b0 c0 d0 ..
//!   k1:  b0 b1 b2 b3     b0 b1 b2 b3   ->   a1 b1 c1 d1     n1: .. a1 b1 c1 d1 ..
//!   k2:  c0 ..           c0 ..              a2 b2 c2 d2
//! ```
//!
//! Lines of the target that neighbouring lanes write at the same time differ in their number modulo 8, so that a swizzle spreads
//! them over all banks: lane `w` writes its lines in the order `i ^ f(w)`, where the turn of `f` is put into the permutations'
//! selectors.

use rustc_hash::FxHashMap;
use tessera_ir::OpData;
use tessera_layout::Distribution;
use tessera_ptx::Type as Ty;
use tessera_ptx::ssa::{Address, Value as Reg};
use tessera_types::Arch;

use super::bound::Buffer;
use super::lowering::{Lowered, Lowering};

/// Bytes of a line that a thread writes at once.
const PIECE: u64 = 16;

/// Words that a thread reads at a time; it reads the next ones before it writes these.
const AHEAD: usize = 16;

/// Two buffers with different fastest axes, and how their blocks are shared among threads. All numbers are powers of two.
struct Turn {
    source: Buffer,
    target: Buffer,
    /// The source's fastest axis.
    across: usize,
    /// The target's fastest axis.
    down: usize,
    /// Elements of a word, and of a piece.
    word: u64,
    piece: u64,
    /// Words along a line of the source, and pieces along a line of the target.
    words: u64,
    pieces: u64,
}

impl Turn {
    fn of(source: Buffer, target: Buffer) -> Option<Turn> {
        let fastest = |buffer: &Buffer| buffer.strides.iter().position(|&stride| stride == 1);
        let (across, down) = (fastest(&source)?, fastest(&target)?);
        let bytes = source.elem.unpacked_bytes() as u64;
        if across == down || source.shape.len() != 2 || !matches!(bytes, 1 | 2 | 4) {
            return None;
        }
        let (word, piece) = (4 / bytes, PIECE / bytes);
        let (width, height) = (u64::from(source.shape[across]), u64::from(source.shape[down]));
        let whole = width.is_power_of_two() && height.is_power_of_two() && width >= word && height >= piece;
        let granule = |buffer: &Buffer| buffer.swizzle.bits == 0 || buffer.swizzle.base >= 4;
        let lines = |buffer: &Buffer, axis: usize| (buffer.strides[axis] * bytes).is_multiple_of(PIECE) && buffer.align >= PIECE;
        if !whole || !granule(&source) || !granule(&target) || !lines(&source, down) || !lines(&target, across) {
            return None;
        }
        Some(Turn { across, down, word, piece, words: width / word, pieces: height / piece, source, target })
    }
}

/// What a thread's blocks have in common.
struct Corner {
    /// The word along the source's lines and the piece along the target's, of the thread's first block.
    word: Reg,
    piece: Reg,
    /// Which of a word's elements goes first.
    first: Option<Reg>,
    selectors: Vec<Reg>,
    /// Mixed addresses in the source, by the block's first word and the line within the pattern.
    reads: FxHashMap<(u64, u64), Reg>,
    /// Mixed addresses in the target, by the block's first word and the line within the block.
    writes: FxHashMap<(u64, u64), Reg>,
}

impl Lowering<'_> {
    /// Lowers a copy of a buffer to another.
    pub(super) fn copy_shared(&mut self, data: &OpData) -> Lowered<()> {
        let (source, target) = (self.buffer(data.one(0))?, self.buffer(data.one(1))?);
        if let Some(turn) = Turn::of(source.clone(), target.clone()) {
            self.turn(&turn);
            return Ok(());
        }
        let shape: Vec<u64> = source.shape.iter().map(|&extent| u64::from(extent)).collect();
        let mut order: Vec<usize> = (0..shape.len()).collect();
        order.sort_by_key(|&axis| target.strides[axis]);
        let vector = PIECE / source.elem.unpacked_bytes() as u64;
        let threads = u64::from(self.team.warps * Arch::WARP);
        let layout = Distribution::blocked(&shape, &order, vector, threads)
            .map_err(|_| self.broken("a buffer that cannot be laid out"))?;
        let regs = self.load_buffer(&source, &layout);
        self.store_buffer(&target, &layout, &regs);
        Ok(())
    }

    fn turn(&mut self, turn: &Turn) {
        let all = u64::from(self.team.warps * Arch::WARP);
        let threads = 1 << all.ilog2();
        let (columns, rows) = (turn.words.min(threads), turn.pieces.min((threads / turn.words).max(1)));
        let mut corner = self.corner(turn, columns, rows);
        let steps = (turn.words / columns, turn.pieces / rows);
        let blocks: Vec<(u64, u64)> =
            (0..steps.0).flat_map(|column| (0..steps.1).map(move |row| (column * columns, row * rows))).collect();
        let work = |this: &mut Self, corner: &mut Corner| {
            let mut under_way: Vec<((u64, u64), Vec<Reg>)> = Vec::new();
            for blocks in blocks.chunks(AHEAD / turn.piece.min(AHEAD as u64) as usize) {
                let read = blocks.iter().map(|&block| (block, this.block_words(turn, corner, block))).collect();
                for (block, words) in std::mem::replace(&mut under_way, read) {
                    this.write_block(turn, corner, block, &words);
                }
            }
            for (block, words) in under_way {
                this.write_block(turn, corner, block, &words);
            }
        };
        if all == columns * rows {
            work(self, &mut corner);
            return;
        }
        // More threads than blocks: the first ones have one each.
        let (thread, count) = (self.thread(), self.b.u32((columns * rows) as u32));
        let mine = self.b.setp(tessera_ptx::Word::Lt, Ty::U32, thread, count);
        let (inside, behind) = (self.b.new_block(&[]), self.b.new_block(&[]));
        self.b.branch(mine, (inside, &[]), (behind, &[]));
        self.b.switch_to(inside);
        work(self, &mut corner);
        self.b.jump(behind, &[]);
        self.b.switch_to(behind);
    }

    fn corner(&mut self, turn: &Turn, columns: u64, rows: u64) -> Corner {
        let thread = self.thread();
        let mask = self.b.u32(columns as u32 - 1);
        let word = self.b.and(thread, mask);
        let (count, mask) = (self.b.u32(columns.trailing_zeros()), self.b.u32(rows as u32 - 1));
        let piece = self.b.shr(Ty::U32, thread, count);
        let piece = self.b.and(piece, mask);
        if turn.word == 1 {
            return Corner {
                word,
                piece,
                first: None,
                selectors: Vec::new(),
                reads: FxHashMap::default(),
                writes: FxHashMap::default(),
            };
        }
        // Eight lines apart, lines of a swizzled buffer lie in the same banks again.
        let (count, mask) = (self.b.u32((8 / turn.word).trailing_zeros()), self.b.u32(turn.word as u32 - 1));
        let first = self.b.shr(Ty::U32, word, count);
        let first = self.b.and(first, mask);
        let mut selectors = Vec::new();
        // Bytes 0 and 1 of two words, and bytes 2 and 3; then halves 0 of two words, and halves 1.
        let pairs: &[(u32, u32, u32)] =
            if turn.word == 4 { &[(2, 0x5140, 0x7362), (1, 0x5410, 0x7632)] } else { &[(1, 0x5410, 0x7632)] };
        let zero = self.b.u32(0);
        for &(bit, low, high) in pairs {
            let bit = self.b.u32(bit);
            let bit = self.b.and(first, bit);
            let turned = self.b.setp(tessera_ptx::Word::Ne, Ty::U32, bit, zero);
            let (low, high) = (self.b.u32(low), self.b.u32(high));
            selectors.push(self.b.select(turned, high, low));
            selectors.push(self.b.select(turned, low, high));
        }
        Corner { word, piece, first: Some(first), selectors, reads: FxHashMap::default(), writes: FxHashMap::default() }
    }

    /// The words of a block, one of each line of the source. Lines at a distance of the pattern's span are mixed alike.
    fn block_words(&mut self, turn: &Turn, corner: &mut Corner, (column, row): (u64, u64)) -> Vec<Reg> {
        let source = &turn.source;
        let stride = source.strides[turn.down] * source.elem.unpacked_bytes() as u64;
        let period = (source.swizzle.span() / stride).max(1);
        let mut words = Vec::new();
        for line in row * turn.piece..(row + 1) * turn.piece {
            let key = (column, line % period);
            let mixed = match corner.reads.get(&key) {
                Some(&mixed) => mixed,
                None => {
                    let element = self.scaled(corner.word, column, turn.word);
                    let start = self.along(source, turn.across, element, source.base);
                    let first = self.scaled(corner.piece, 0, turn.piece);
                    let start = self.along(source, turn.down, first, start);
                    let offset = self.b.u32((key.1 * stride) as u32);
                    let address = self.b.add(Ty::U32, start, offset);
                    let mixed = self.mixed(source.swizzle, address);
                    corner.reads.insert(key, mixed);
                    mixed
                }
            };
            let address: Address = self.b.at(mixed, (line / period * period * stride) as i64);
            words.push(self.b.ld("shared", Ty::B32, address));
        }
        words
    }

    /// Writes a block. Its piece changes bits of the address that no line has set, so it is put in behind the mixing.
    fn write_block(&mut self, turn: &Turn, corner: &mut Corner, (column, row): (u64, u64), words: &[Reg]) {
        let target = &turn.target;
        let bytes = target.elem.unpacked_bytes() as u64;
        let along = row * turn.piece;
        let (slab, within) = match target.slabs {
            Some(slabs) => (along / slabs.elements * slabs.stride, along % slabs.elements * bytes),
            None => (0, along * bytes),
        };
        for line in 0..turn.word {
            let mixed = match corner.writes.get(&(column, line)) {
                Some(&mixed) => mixed,
                None => {
                    let element = self.scaled(corner.word, column, turn.word);
                    let number = self.b.u32(line as u32);
                    let element = match corner.first {
                        Some(first) => {
                            let turned = self.b.xor(first, number);
                            self.b.add(Ty::U32, element, turned)
                        }
                        None => element,
                    };
                    let piece = self.scaled(corner.piece, 0, turn.piece);
                    let start = self.along(target, turn.down, piece, target.base);
                    let address = self.along(target, turn.across, element, start);
                    let mixed = self.mixed(target.swizzle, address);
                    corner.writes.insert((column, line), mixed);
                    mixed
                }
            };
            let within = self.b.u32(within as u32);
            let address = if target.swizzle.bits == 0 { self.b.add(Ty::U32, mixed, within) } else { self.b.xor(mixed, within) };
            let address: Address = self.b.at(address, slab as i64);
            let piece = self.line_of_block(turn, corner, line as usize, words);
            self.b.st_vector("shared", Ty::B32, address, &piece);
        }
    }

    /// The 16 bytes of a block's line.
    fn line_of_block(&mut self, turn: &Turn, corner: &Corner, line: usize, words: &[Reg]) -> Vec<Reg> {
        let s = &corner.selectors;
        match turn.word {
            4 => words
                .chunks(4)
                .map(|four| {
                    let low = self.b.prmt(four[0], four[1], s[line / 2]);
                    let high = self.b.prmt(four[2], four[3], s[line / 2]);
                    self.b.prmt(low, high, s[2 + line % 2])
                })
                .collect(),
            2 => words.chunks(2).map(|two| self.b.prmt(two[0], two[1], s[line])).collect(),
            _ => words.to_vec(),
        }
    }

    /// `(index + ahead) * size`
    fn scaled(&mut self, index: Reg, ahead: u64, size: u64) -> Reg {
        let (ahead, size) = (self.b.u32((ahead * size) as u32), self.b.u32(size as u32));
        self.b.mad(Ty::U32, index, size, ahead)
    }
}
