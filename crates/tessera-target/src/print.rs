//! Printing: the driver's `vprintf`, called by the block's first thread, or by each where scalars are each thread's own.
//!
//! The printing thread reads tiles from shared memory, where the others have put them. What has few values is one call, so that
//! lines of several blocks do not mix; a larger tile is a loop of calls, one an element.
//!
//! ```text
//! %p = print_tko [%n, %t] {format="%d: %5.2f\n"}      %t : tile<2x2xf32>
//!     vprintf("%lld: [[%5.2f, %5.2f], [%5.2f, %5.2f]]\n", ...)
//! ```

use tessera_ir::uniformity::{Uniformity, UniformityMap};
use tessera_ir::{Elem, Op, OpData};
use tessera_ptx::ssa::{Address, Class, Value as Reg};
use tessera_ptx::{Type as Ty, Word};
use tessera_types::DType;
use tessera_types::printf::{Conversion, Part, parts};

use super::lowering::{Lowered, Lowering};

/// How many values one call prints.
const MOST_VALUES: usize = 32;

/// A tile in shared memory.
struct Spread {
    base: Reg,
    extents: Vec<u32>,
}

/// What the next call prints.
#[derive(Default)]
struct Line {
    format: String,
    values: Vec<Reg>,
}

impl Lowering<'_> {
    /// Lowers an operation that prints.
    pub(super) fn print(&mut self, op: Op, data: &OpData, format: &str) -> Lowered<()> {
        let spread = self.spread_tiles(data)?;
        let behind = self.prints_alone(op, data).then(|| {
            let first = self.is_first_thread();
            let (prints, behind) = (self.b.new_block(&[]), self.b.new_block(&[]));
            self.b.branch(first, (prints, &[]), (behind, &[]));
            self.b.switch_to(prints);
            behind
        });
        let (mut line, mut position) = (Line::default(), 0);
        for part in parts(format) {
            let conversion = match part {
                Part::Text(text) => {
                    line.format.push_str(&text.replace('%', "%%"));
                    continue;
                }
                Part::Value(conversion) => conversion,
            };
            let Some(&value) = data.group(0).get(position) else {
                return Err(self.broken("a format with more conversions than values"));
            };
            let dtype = self.dtype(value)?;
            match &spread[position] {
                None => {
                    self.room(&mut line, 1);
                    let reg = self.reg(value)?;
                    let printed = self.printed(&conversion, dtype, reg)?;
                    line.format.push_str(&in_words(&conversion));
                    line.values.push(printed);
                }
                Some(tile) => self.print_tile(&mut line, &conversion, dtype, tile)?,
            }
            position += 1;
        }
        self.flush(&mut line);
        if let Some(behind) = behind {
            self.b.jump(behind, &[]);
            self.b.switch_to(behind);
        }
        Ok(())
    }

    /// Puts the tiles that are printed into shared memory, one behind the other; `None` for scalars.
    fn spread_tiles(&mut self, data: &OpData) -> Lowered<Vec<Option<Spread>>> {
        let mut places = Vec::new();
        let mut end = 0;
        for &value in data.group(0) {
            let ty = self.func.ty(value);
            let tile = ty.as_tile().filter(|_| !ty.is_scalar());
            places.push(tile.map(|tile| {
                let at = end;
                end += (tile.len() as u64 * tile.elem.bytes()).next_multiple_of(16);
                (at, tile.shape.to_vec())
            }));
        }
        if end == 0 {
            return Ok(places.iter().map(|_| None).collect());
        }
        let base = self.exchange(end, 16)?;
        let mut spread = Vec::new();
        for (&value, place) in data.group(0).iter().zip(places) {
            let Some((at, extents)) = place else {
                spread.push(None);
                continue;
            };
            let at = self.b.u32(at as u32);
            let base = self.b.add(Ty::U32, base, at);
            let (layout, regs, elem) = (self.layout(value)?, self.regs(value)?, self.elem(value)?);
            self.spread(elem, (&layout, &regs), base);
            spread.push(Some(Spread { base, extents }));
        }
        self.meet();
        Ok(spread)
    }

    /// Whether one thread prints for all: they have the same to say, or run one program.
    fn prints_alone(&self, op: Op, data: &OpData) -> bool {
        if !self.per_thread {
            return true;
        }
        let map = UniformityMap::new(self.func);
        let same = |uniformity| uniformity <= Uniformity::Block;
        let tiles = data.group(0).iter().any(|&value| !self.func.ty(value).is_scalar());
        tiles || same(map.condition(op).uniformity) && data.group(0).iter().all(|&value| same(map.value(value)))
    }

    fn print_tile(&mut self, line: &mut Line, conversion: &Conversion, dtype: DType, tile: &Spread) -> Lowered<()> {
        let count: u32 = tile.extents.iter().product();
        let bytes = Elem::Num(dtype).bytes();
        let word = in_words(conversion);
        // How many elements lie between two brackets of each kind, outermost first, and what stands in front of the first behind one.
        let mut seams = vec![(count, "[".repeat(tile.extents.len()))];
        let mut period = count;
        for (depth, extent) in tile.extents.iter().enumerate() {
            period /= extent;
            let crossed = tile.extents.len() - 1 - depth;
            seams.push((period, format!("{}, {}", "]".repeat(crossed), "[".repeat(crossed))));
        }
        if count as usize <= MOST_VALUES {
            self.room(line, count as usize);
            for index in 0..count {
                let address: Address = (tile.base, (u64::from(index) * bytes) as i64).into();
                let reg = self.take(Elem::Num(dtype), address);
                let seam = seams.iter().find(|(period, _)| index % period == 0).map_or("", |(_, text)| text);
                line.format.push_str(seam);
                line.format.push_str(&word);
                line.values.push(self.printed(conversion, dtype, reg)?);
            }
        } else {
            self.flush(line);
            let (zero, one, end) = (self.b.u32(0), self.b.u32(1), self.b.u32(count));
            let (head, exit) = (self.b.new_block(&[Class::B32]), self.b.new_block(&[]));
            self.b.jump(head, &[zero]);
            self.b.switch_to(head);
            let index = self.b.block_params(head)[0];
            let bytes = self.b.u32(bytes as u32);
            let address = self.b.mad(Ty::U32, index, bytes, tile.base);
            let reg = self.take(Elem::Num(dtype), address);
            let value = self.printed(conversion, dtype, reg)?;
            let joined = self.b.new_block(&[]);
            for (period, seam) in &seams {
                let format = format!("{seam}{word}");
                if *period == 1 {
                    self.b.print(&format, &[value]);
                    break;
                }
                let period = self.b.u32(*period);
                let rest = self.b.rem(Ty::U32, index, period);
                let here = self.b.setp(Word::Eq, Ty::U32, rest, zero);
                let (seam, other) = (self.b.new_block(&[]), self.b.new_block(&[]));
                self.b.branch(here, (seam, &[]), (other, &[]));
                self.b.switch_to(seam);
                self.b.print(&format, &[value]);
                self.b.jump(joined, &[]);
                self.b.switch_to(other);
            }
            self.b.jump(joined, &[]);
            self.b.switch_to(joined);
            let next = self.b.add(Ty::U32, index, one);
            let again = self.b.setp(Word::Lt, Ty::U32, next, end);
            self.b.branch(again, (head, &[next]), (exit, &[]));
            self.b.switch_to(exit);
        }
        line.format.push_str(&"]".repeat(tile.extents.len()));
        Ok(())
    }

    /// Prints what there is, unless so many values more still fit.
    fn room(&mut self, line: &mut Line, values: usize) {
        if line.values.len() + values > MOST_VALUES {
            self.flush(line);
        }
    }

    fn flush(&mut self, line: &mut Line) {
        if !line.format.is_empty() {
            self.b.print(&line.format, &line.values);
            *line = Line::default();
        }
    }

    /// A number as `vprintf` takes it: 64 bits of an integer or a `double`.
    fn printed(&mut self, conversion: &Conversion, dtype: DType, reg: Reg) -> Lowered<Reg> {
        if dtype.is_float() {
            let wide = self.wide_of(dtype, reg)?;
            let real = if dtype == DType::F64 { wide } else { self.op("cvt.f64.f32", &[wide]) };
            let is_nan = self.b.setp(Word::Unordered, Ty::F64, real, real);
            if conversion.is_real() {
                // A NaN has no sign where it is printed.
                let nan = self.b.f64(f64::NAN);
                return Ok(self.b.select(is_nan, nan, real));
            }
            let (integer, zero) = (self.op("cvt.rzi.s64.f64", &[real]), self.b.s64(0));
            return Ok(self.b.select(is_nan, zero, integer));
        }
        let signed = !conversion.is_unsigned() && dtype != DType::B1;
        let word = if signed { self.signed(dtype, reg) } else { self.unsigned(dtype, reg) };
        let wide = match (self.class(word), signed) {
            (Class::B64, _) => word,
            (_, true) => self.b.cvt(Ty::S64, Ty::S32, word),
            (_, false) => self.b.cvt(Ty::U64, Ty::U32, word),
        };
        Ok(if conversion.is_real() { self.op("cvt.rn.f64.s64", &[wide]) } else { wide })
    }
}

/// A conversion as `vprintf` takes it.
fn in_words(conversion: &Conversion) -> String {
    match conversion.letter {
        'p' => Conversion { letter: 'x', flags: format!("{}#", conversion.flags), ..conversion.clone() }.written("ll"),
        'd' | 'i' | 'u' | 'x' | 'X' | 'o' => conversion.written("ll"),
        _ if conversion.is_real() => conversion.written(""),
        _ => Conversion { letter: 'd', ..conversion.clone() }.written("ll"),
    }
}
