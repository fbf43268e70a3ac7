//! Textures and surfaces: what an instruction reads of an image, and writes to it. The model of sampling stands in [`crate::texture`].

use smallvec::SmallVec;
use tessera_ptx::{Type, Word};
use tessera_types::{DType, NumberClass};

use super::access::{Kind, Target, addresses, shifted};
use super::atomic;
use super::undefined::{Origin, Who};
use super::{Cluster, Fault, Warp};
use crate::finding::FindingKind;
use crate::lanes::lanes;
use crate::ops::half::to_f16;
use crate::program::{Addr, Beyond, Order, Reg, Sample, Scope, Space, Surface, SurfaceOp};
use crate::texture::{self, Bound, Geometry, Image, Place, Sampler, Spot};

/// A texel's codes, channel by channel, and where the undefined bits among them come from.
type Texel = (SmallVec<[u64; 4]>, Option<Origin>);

fn kind(write: bool) -> Kind {
    Kind::plain(write, 4, Order::Weak, Scope::Gpu)
}

fn refuse(lane: usize, message: impl Into<String>) -> Fault {
    Fault::new(FindingKind::Texture, lane, message)
}

/// A 32-bit value as the code of a channel: floats rounded, integers cut to the nearest that there is.
fn code(dtype: DType, word: u32) -> u64 {
    let bits = dtype.bits();
    match (dtype, dtype.class()) {
        (DType::F16, _) => u64::from(to_f16(f32::from_bits(word))),
        (_, NumberClass::Signed) if bits < 32 => {
            let most = (1i32 << (bits - 1)) - 1;
            (word as i32).clamp(-most - 1, most) as u64 & ((1 << bits) - 1)
        }
        (_, NumberClass::Unsigned) if bits < 32 => u64::from(word.min((1 << bits) - 1)),
        _ => u64::from(word),
    }
}

impl<'a> Cluster<'a> {
    /// What the handle names that an operand is, or that lies where it points.
    fn bound(&self, warp: &mut Warp, addr: Addr, lane: usize) -> Result<&'a Bound, Fault> {
        let address = addresses(warp, addr)[lane];
        let handle = match addr.space {
            Space::Generic | Space::Global if texture::index(address).is_some() => address,
            space => {
                let held = self.resolve(warp, space, address, 8, 8, lane).map_err(|_| {
                    refuse(lane, format!("{address:#x} is no texture or surface, and no variable that holds one"))
                })?;
                self.read(warp, held, 8, lane)
            }
        };
        let found = texture::index(handle).and_then(|index| self.launch.heap.bound(index));
        found.ok_or_else(|| {
            let message = match handle {
                0 => "no image is bound to the texture or surface".to_owned(),
                _ => format!("{handle:#x} is no texture or surface"),
            };
            refuse(lane, message)
        })
    }

    fn texture(&self, warp: &mut Warp, sample: &Sample, lane: usize) -> Result<(&'a Image, &'a Sampler), Fault> {
        let (image, own) = match self.bound(warp, sample.image, lane)? {
            Bound::Texture(image, sampler) => (image, sampler),
            Bound::Surface(_) | Bound::Sampler(_) => return Err(refuse(lane, "a surface or sampler where a texture is needed")),
        };
        if !image.fits(sample.geometry) {
            return Err(refuse(lane, format!("the texture is {}: the instruction wants another shape", image.describe())));
        }
        match sample.sampler.map(|addr| self.bound(warp, addr, lane)).transpose()? {
            None => Ok((image, own)),
            Some(Bound::Sampler(sampler)) => Ok((image, sampler)),
            Some(_) => Err(refuse(lane, "a texture or surface where a sampler is needed")),
        }
    }

    /// A texel's codes.
    fn texel(&mut self, warp: &mut Warp, (image, place): (&Image, Place), lane: usize, pc: u32) -> Result<Texel, Fault> {
        let bytes = image.texel_bytes();
        let address = image.address(place, u64::from(place.at[0]) * u64::from(bytes));
        let target = self.resolve(warp, Space::Global, address, bytes, 1, lane)?;
        if self.sanitizer.is_some() {
            self.observe(warp, target, bytes, lane, kind(false), pc);
        }
        let mut origin = None;
        if self.follows_undefined() && !self.is_defined(warp, target, bytes, lane) {
            origin = self.undefined_bytes(Some(warp), target, bytes, Who::lane(warp, lane, pc)).first();
        }
        let each = image.dtype.bits() / 8;
        let codes = (0..image.channels).map(|channel| self.read(warp, shifted(target, channel * each), each, lane));
        Ok((codes.collect(), origin))
    }

    /// `tex`, `tld4`
    pub(super) fn sample(&mut self, warp: &mut Warp, active: u32, pc: u32, sample: &Sample) -> Result<(), Fault> {
        for lane in lanes(active) {
            let (image, sampler) = self.texture(warp, sample, lane)?;
            let (words, origin) = match sample.gather {
                Some(channel) => self.gather_texels(warp, sample, (image, sampler), usize::from(channel), (lane, pc))?,
                None => self.mixture(warp, sample, (image, sampler), (lane, pc))?,
            };
            let results: SmallVec<[u64; 4]> = match sample.ty {
                Type::F16 => words.iter().map(|word| u64::from(to_f16(f32::from_bits(*word)))).collect(),
                Type::F16x2 => {
                    let half = |word: u32| u64::from(to_f16(f32::from_bits(word)));
                    words.chunks(2).map(|pair| half(pair[0]) | half(pair[1]) << 16).collect()
                }
                _ => words.iter().map(|word| u64::from(*word)).collect(),
            };
            for (to, value) in sample.to.iter().zip(results) {
                let Some(to) = to else { continue };
                warp.set(*to, lane, value);
                if let (Some(undefined), Some(origin)) = (&mut warp.undefined, origin) {
                    undefined.set(to.slot, to.wide, lane, u64::from(u32::MAX), origin);
                }
            }
            if let Some(resident) = sample.resident {
                warp.predicates[resident as usize] |= 1 << lane;
            }
        }
        Ok(())
    }

    /// Where a lane's coordinates lead.
    fn spot(warp: &Warp, sample: &Sample, image: &Image, sampler: &Sampler, lane: usize) -> Spot {
        let float = |index: usize| f64::from(f32::from_bits(warp.value(sample.at[index], lane) as u32));
        let layer_of = |layers: u32| (warp.value(sample.at[0], lane) as u32).min(layers.saturating_sub(1));
        match sample.geometry {
            Geometry::Axes { count, layered } => {
                let (axes, first) = (usize::from(count), usize::from(layered));
                let layer = if layered { layer_of(image.layers) } else { 0 };
                let mut at = [0.0; 3];
                for (axis, at) in at.iter_mut().enumerate().take(axes) {
                    let x = float(first + axis);
                    *at = if sampler.normalized { x * f64::from(image.extents[axis]) } else { x };
                }
                Spot { at, axes, layer }
            }
            Geometry::Cube { layered } => {
                let first = usize::from(layered);
                let (face, [s, t]) = texture::face([float(first), float(first + 1), float(first + 2)]);
                let cube = if layered { layer_of(image.layers / 6) } else { 0 };
                let side = f64::from(image.extents[0]);
                Spot { at: [s * side, t * side, 0.0], axes: 2, layer: 6 * cube + face }
            }
        }
    }

    fn offsets(warp: &Warp, sample: &Sample, lane: usize) -> [i64; 3] {
        std::array::from_fn(|axis| sample.offsets.get(axis).map_or(0, |reg| i64::from(warp.value(*reg, lane) as i32)))
    }

    /// The four channels at a place, of integers as they are and of floats as `f32`.
    fn mixture(
        &mut self,
        warp: &mut Warp,
        sample: &Sample,
        (image, sampler): (&Image, &Sampler),
        (lane, pc): (usize, u32),
    ) -> Result<([u32; 4], Option<Origin>), Fault> {
        let offsets = Self::offsets(warp, sample, lane);
        let parts = if sample.fetches {
            let Geometry::Axes { count, layered } = sample.geometry else {
                return Err(refuse(lane, "a cube has no integer coordinates"));
            };
            let integer = |index: usize| i64::from(warp.value(sample.at[index], lane) as i32);
            let layer = if layered { integer(0).clamp(0, i64::from(image.layers) - 1) as u32 } else { 0 };
            let mut at = [0; 3];
            for (axis, at) in at.iter_mut().enumerate().take(usize::from(count)) {
                *at = integer(usize::from(layered) + axis) + offsets[axis];
            }
            vec![(texture::fetch_place(image, sampler, at, usize::from(count), layer), 1.0)]
        } else {
            texture::footprint(image, sampler, Self::spot(warp, sample, image, sampler, lane), offsets)
        };
        let integers = matches!(sample.ty, Type::U32 | Type::S32);
        if integers && parts.len() > 1 {
            return Err(refuse(
                lane,
                "a linear sampler mixes, which integers are not: read them as `f32`, or sample the nearest",
            ));
        }
        let (mut sums, mut words, mut origin) = ([0.0; 4], [0; 4], None);
        for (place, weight) in parts.into_iter().filter(|(_, weight)| *weight != 0.0) {
            let numbers = match place {
                None => {
                    words = sampler.border.map(|channel| if image.dtype.is_float() { channel.to_bits() } else { channel as u32 });
                    sampler.border
                }
                Some(place) => {
                    let (codes, from) = self.texel(warp, (image, place), lane, pc)?;
                    origin = origin.or(from);
                    words = image.words(&codes);
                    if integers { [0.0; 4] } else { self.numbers(image, &codes, lane)? }
                }
            };
            for (sum, number) in sums.iter_mut().zip(numbers) {
                *sum += weight * f64::from(number);
            }
        }
        Ok((if integers { words } else { sums.map(|sum| (sum as f32).to_bits()) }, origin))
    }

    fn numbers(&self, image: &Image, codes: &[u64], lane: usize) -> Result<[f32; 4], Fault> {
        let no_number = || refuse(lane, format!("texels of {} are read as integers", image.dtype));
        image.numbers(codes).ok_or_else(no_number)
    }

    /// One channel of the four texels around a place.
    fn gather_texels(
        &mut self,
        warp: &mut Warp,
        sample: &Sample,
        (image, sampler): (&Image, &Sampler),
        channel: usize,
        (lane, pc): (usize, u32),
    ) -> Result<([u32; 4], Option<Origin>), Fault> {
        let offsets = Self::offsets(warp, sample, lane);
        let places = texture::gathered(image, sampler, Self::spot(warp, sample, image, sampler, lane), offsets);
        let (mut words, mut origin) = ([0; 4], None);
        for (word, place) in words.iter_mut().zip(places) {
            let integers = matches!(sample.ty, Type::U32 | Type::S32);
            *word = match place {
                None if integers && !image.dtype.is_float() => sampler.border[channel] as u32,
                None => sampler.border[channel].to_bits(),
                Some(place) => {
                    let (codes, from) = self.texel(warp, (image, place), lane, pc)?;
                    origin = origin.or(from);
                    if integers { image.words(&codes)[channel] } else { self.numbers(image, &codes, lane)?[channel].to_bits() }
                }
            };
        }
        Ok((words, origin))
    }

    /// `txq`, `suq`
    pub(super) fn query(
        &mut self,
        warp: &mut Warp,
        active: u32,
        to: Reg,
        image: Addr,
        (what, texture): (Word, bool),
    ) -> Result<(), Fault> {
        for lane in lanes(active) {
            let bound = self.bound(warp, image, lane)?;
            let value = match (bound, texture) {
                (Bound::Texture(image, sampler), true) => property(image, Some(sampler), what),
                (Bound::Surface(image), false) => property(image, None, what),
                (Bound::Sampler(sampler), true) => sampled(sampler, what),
                _ => None,
            };
            let value = value.ok_or_else(|| refuse(lane, format!("this handle has no `.{what}`")))?;
            warp.set(to, lane, u64::from(value));
        }
        Ok(())
    }

    /// `istypep`
    pub(super) fn is_handle(&mut self, warp: &mut Warp, active: u32, to: u32, from: Reg, kind: Type) {
        for lane in lanes(active) {
            let addr = Addr { base: from, offset: 0, space: Space::Generic };
            let holds = match self.bound(warp, addr, lane) {
                Ok(Bound::Texture(..)) => kind == Type::Texref,
                Ok(Bound::Surface(_)) => kind == Type::Surfref,
                Ok(Bound::Sampler(_)) => kind == Type::Samplerref,
                Err(_) => false,
            };
            let flags = &mut warp.predicates[to as usize];
            *flags = (*flags & !(1 << lane)) | u32::from(holds) << lane;
        }
    }

    /// The bytes of a surface that a lane touches; none where the access is left out.
    fn cell(
        &mut self,
        warp: &mut Warp,
        surface: &Surface,
        bytes: u32,
        lane: usize,
    ) -> Result<Option<(Target, &'a Image)>, Fault> {
        let image = match self.bound(warp, surface.image, lane)? {
            Bound::Surface(image) => image,
            Bound::Texture(..) | Bound::Sampler(_) => return Err(refuse(lane, "a texture or sampler where a surface is needed")),
        };
        let Geometry::Axes { count, layered } = surface.geometry else {
            return Err(refuse(lane, "a surface is no cube"));
        };
        if !image.fits(surface.geometry) {
            return Err(refuse(lane, format!("the surface is {}: the instruction wants another shape", image.describe())));
        }
        let (texel, first) = (image.texel_bytes(), usize::from(layered));
        let formatted = matches!(surface.op, SurfaceOp::StoreTexel { .. } | SurfaceOp::Reduce { formatted: true, .. });
        let bytes = if formatted { texel } else { bytes };
        let at = |index: usize| i64::from(warp.value(surface.at[index], lane) as i32);
        let x = at(first) * if formatted { i64::from(texel) } else { 1 };
        let most = i64::from(image.extents[0]) * i64::from(texel) - i64::from(bytes);
        let mut place = Place { at: [0; 3], layer: 0 };
        let mut inside = (0..=most).contains(&x);
        let mut cut = |value: i64, extent: u32| {
            inside &= (0..i64::from(extent)).contains(&value);
            value.clamp(0, i64::from(extent) - 1) as u32
        };
        for axis in 1..usize::from(count) {
            place.at[axis] = cut(at(first + axis), image.extents[axis]);
        }
        if layered {
            place.layer = cut(at(0), image.layers);
        }
        if !inside {
            match surface.beyond {
                Beyond::Nothing => return Ok(None),
                Beyond::Nearest if most >= 0 => {}
                _ => {
                    let place: Vec<i64> = (0..usize::from(count) + first).map(at).collect();
                    let message = format!("an access of {bytes} bytes at {place:?} of {}", image.describe());
                    return Err(Fault::new(FindingKind::OutOfBounds, lane, message));
                }
            }
        }
        let x = x.clamp(0, most.max(0)) as u64;
        let x = if inside { x } else { x / u64::from(bytes) * u64::from(bytes) };
        if !x.is_multiple_of(u64::from(bytes)) {
            let message = format!("an access of {bytes} bytes at byte {x} of a surface's row, which is no multiple of {bytes}");
            return Err(Fault::new(FindingKind::Misaligned, lane, message));
        }
        let target = self.resolve(warp, Space::Global, image.address(place, x), bytes, 1, lane)?;
        Ok(Some((target, image)))
    }

    /// The same; where a launch goes on behind findings, what cannot be touched is left out.
    fn cell_passing(
        &mut self,
        warp: &mut Warp,
        surface: &Surface,
        bytes: u32,
        (lane, pc): (usize, u32),
    ) -> Result<Option<(Target, &'a Image)>, Fault> {
        match self.cell(warp, surface, bytes, lane) {
            Ok(cell) => Ok(cell),
            Err(fault) => self.pass(warp, pc, fault).map(|()| None),
        }
    }

    /// `suld`, `sust`, `sured`
    pub(super) fn surface(&mut self, warp: &mut Warp, active: u32, pc: u32, surface: &Surface) -> Result<(), Fault> {
        for lane in lanes(active) {
            let who = Who::lane(warp, lane, pc);
            match &surface.op {
                SurfaceOp::Load { to, bytes } => {
                    let total = bytes * to.len() as u32;
                    let cell = self.cell_passing(warp, surface, total, (lane, pc))?;
                    if let Some((target, _)) = cell {
                        self.watch(warp, target, total, (lane, pc), kind(false));
                    }
                    for (index, to) in to.iter().enumerate() {
                        let part = cell.map(|(target, _)| shifted(target, index as u32 * bytes));
                        let value = part.map_or(0, |part| self.read(warp, part, *bytes, lane));
                        to.iter().for_each(|to| warp.set(*to, lane, value));
                    }
                    if let Some((target, _)) = cell
                        && self.follows_undefined()
                        && !self.is_defined(warp, target, total, lane)
                    {
                        self.load_undefined(warp, target, to, (*bytes, false), who);
                    }
                }
                SurfaceOp::Store { from, bytes } => {
                    self.progress += 1;
                    let total = bytes * from.len() as u32;
                    let Some((target, _)) = self.cell_passing(warp, surface, total, (lane, pc))? else { continue };
                    self.watch(warp, target, total, (lane, pc), kind(true));
                    for (index, reg) in from.iter().enumerate() {
                        let value = warp.value(*reg, lane);
                        self.write(warp, shifted(target, index as u32 * bytes), *bytes, lane, value)?;
                    }
                    if self.follows_undefined() {
                        self.store_registers(warp, target, from, *bytes, who);
                    }
                }
                SurfaceOp::StoreTexel { from } => {
                    self.progress += 1;
                    let Some((target, image)) = self.cell_passing(warp, surface, 0, (lane, pc))? else { continue };
                    self.watch(warp, target, image.texel_bytes(), (lane, pc), kind(true));
                    let each = image.dtype.bits() / 8;
                    for channel in 0..image.channels {
                        let word = from.get(channel as usize).map_or(0, |reg| warp.value(*reg, lane) as u32);
                        self.write(warp, shifted(target, channel * each), each, lane, code(image.dtype, word))?;
                    }
                    if self.follows_undefined() {
                        from.iter().for_each(|reg| self.store_registers(warp, target, &[*reg], each.min(4), who));
                    }
                }
                SurfaceOp::Reduce { how, ty, formatted, value } => {
                    warp.strong = true;
                    self.progress += 1;
                    let bytes = ty.bits() / 8;
                    let Some((target, image)) = self.cell_passing(warp, surface, bytes, (lane, pc))? else { continue };
                    if *formatted && image.texel_bytes() != bytes {
                        let message = format!("a reduction of {bytes} bytes on {}", image.describe());
                        return Err(refuse(lane, message));
                    }
                    // Formatted, the image says what the bits are.
                    let ty = match (formatted, image.dtype.class() == NumberClass::Signed, bytes) {
                        (false, ..) => *ty,
                        (true, true, 8) => Type::S64,
                        (true, true, _) => Type::S32,
                        (true, false, 8) => Type::U64,
                        (true, false, _) => Type::U32,
                    };
                    self.watch(warp, target, bytes, (lane, pc), Kind::update(ty, Order::Relaxed, Scope::Gpu));
                    if self.follows_undefined() {
                        self.change_undefined(warp, target, (*how, bytes), &[], [&[*value], &[]], who);
                    }
                    let operand = warp.value(*value, lane);
                    self.update(target, bytes, &mut |old| atomic::apply(*how, ty, old, operand, 0));
                }
            }
        }
        Ok(())
    }

    fn watch(&mut self, warp: &Warp, target: Target, bytes: u32, (lane, pc): (usize, u32), kind: Kind) {
        if self.sanitizer.is_some() {
            self.observe(warp, target, bytes, lane, kind, pc);
        }
    }
}

/// What `txq` and `suq` say of an image.
fn property(image: &Image, sampler: Option<&Sampler>, what: Word) -> Option<u32> {
    Some(match what {
        Word::Width => image.extents[0],
        Word::Height => image.extents[1],
        Word::Depth => image.extents[2],
        Word::ArraySize if image.cube => image.layers / 6,
        Word::ArraySize => image.layers,
        Word::ChannelDataType => texture::data_type(image),
        Word::ChannelOrder => texture::order(image),
        Word::NumMipmapLevels | Word::NumSamples => 1,
        Word::MemoryLayout => u32::from(image.extents[1] == 0),
        other => return sampled(sampler?, other),
    })
}

/// What `txq` says of how an image is sampled.
fn sampled(sampler: &Sampler, what: Word) -> Option<u32> {
    let axis = |axis: usize| match sampler.outside[axis] {
        texture::Outside::Wrap => 0,
        texture::Outside::Mirror => 1,
        texture::Outside::Clamp => 3,
        texture::Outside::Border => 4,
    };
    Some(match what {
        Word::NormalizedCoords => u32::from(sampler.normalized),
        Word::ForceUnnormalizedCoords => 0,
        Word::FilterMode => u32::from(sampler.linear),
        Word::AddrMode0 => axis(0),
        Word::AddrMode1 => axis(1),
        Word::AddrMode2 => axis(2),
        _ => return None,
    })
}
