//! Textures and surfaces: arrays of texels in device memory, where a texel lies, and how several are mixed.
//!
//! An image is an ordinary array; a handle of 64 bits names it together with how it is sampled, as CUDA's texture and surface objects do.
//! Kernels take handles as arguments or find them in variables (`.texref`, `.surfref`).
//!
//! The model of sampling, with N texels along an axis ("CUDA C++ Programming Guide", "Texture Fetching"):
//!
//! | step | rule |
//! |---|---|
//! | coordinate | u = x, or x N where coordinates are normalized; exact |
//! | nearest | texel floor(u) |
//! | linear | texels i and i + 1 with i = floor(u - 0.5); the weight a of the second is u - 0.5 - i, rounded to 8 bits behind the point |
//! | clamp | texels outside are the nearest one |
//! | border | texels outside are the border's colour, or zeros |
//! | wrap, mirror | of normalized coordinates alone, else as clamp: i mod N; mirrored every second time |
//! | mixture | (1 - a) first + a second, axis after axis, in f64, rounded to `f32` at the end |
//! | numbers | texels of 8 and 16 bits read as `f32` are c / (2^bits - 1), signed ones at least -1; `f16` is widened |
//! | channels | those that an image does not have are 0, 0 and 1 |
//!
//! An image has one level: levels and gradients change nothing. Faces of cubes are clamped at their edges.

use tessera_driver::DevicePtr;
use tessera_types::{DType, NumberClass, element};

/// The shape of an image and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The first texel.
    pub address: DevicePtr,
    /// The type of a channel: 8, 16 or 32 bits.
    pub dtype: DType,
    /// Channels of a texel: 1, 2 or 4.
    pub channels: u32,
    /// Texels along x, y and z; 0 for axes that it does not have.
    pub extents: [u32; 3],
    /// Layers; 0 where it is not layered. A cube has 6, one a face.
    pub layers: u32,
    /// Whether the layers are faces of cubes.
    pub cube: bool,
    /// Bytes from a row to the next.
    pub pitch: u64,
}

/// What lies outside of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outside {
    /// The nearest texel.
    #[default]
    Clamp,
    /// The image again.
    Wrap,
    /// The image, every second time mirrored.
    Mirror,
    /// One colour.
    Border,
}

/// How an image is sampled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampler {
    /// Whether neighbours are mixed.
    pub linear: bool,
    /// Whether coordinates run from 0 to 1.
    pub normalized: bool,
    /// Along x, y and z.
    pub outside: [Outside; 3],
    /// The border's colour.
    pub border: [f32; 4],
}

/// What a handle names.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Bound {
    Texture(Image, Sampler),
    Surface(Image),
    Sampler(Sampler),
}

/// No image is larger.
const MOST_BYTES: u64 = 1 << 40;

/// Where handles stand.
const WINDOW: u64 = 0x7b00_0000_0000;
const SPACING: u64 = 32;

/// The handle of what is bound at a place of the list.
pub(crate) fn handle(index: usize) -> u64 {
    WINDOW + SPACING * (index as u64 + 1)
}

/// The place in the list of what a handle names, if the value can be one.
pub(crate) fn index(handle: u64) -> Option<usize> {
    let place = handle.checked_sub(WINDOW + SPACING)?;
    (place < 1 << 32 && place.is_multiple_of(SPACING)).then_some((place / SPACING) as usize)
}

/// A texel: its place in x, y and z, and its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) at: [u32; 3],
    pub(crate) layer: u32,
}

/// How a kind of image is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Geometry {
    /// One to three axes, layered or not.
    Axes { count: u8, layered: bool },
    /// The six faces of a cube, or of one of several.
    Cube { layered: bool },
}

impl Image {
    /// Why this is no image, if it is none.
    ///
    /// # Errors
    /// The type, the channels, a size, or the pitch.
    pub fn check(&self) -> Result<(), String> {
        let [x, y, z] = self.extents;
        if !matches!(self.dtype.bits(), 8 | 16 | 32) || self.dtype == DType::TF32 {
            return Err(format!("a texel's channels have 8, 16 or 32 bits, not those of {}", self.dtype));
        }
        if !matches!(self.channels, 1 | 2 | 4) {
            return Err(format!("a texel has 1, 2 or 4 channels, not {}", self.channels));
        }
        if x == 0 || (y == 0 && z != 0) || (z != 0 && self.layers != 0) {
            return Err(format!("no image has the sizes {:?} and {} layers", self.extents, self.layers));
        }
        if self.cube && (y != x || z != 0 || !self.layers.is_multiple_of(6) || self.layers == 0) {
            return Err(format!("a cube has six square faces, not {} of {x} x {y}", self.layers));
        }
        if self.bytes() > MOST_BYTES {
            return Err(format!("an image of {} bytes is too large", self.bytes()));
        }
        if self.pitch < u64::from(x) * u64::from(self.texel_bytes()) {
            return Err(format!("rows of {x} texels do not fit a pitch of {} bytes", self.pitch));
        }
        Ok(())
    }

    pub(crate) fn texel_bytes(&self) -> u32 {
        self.dtype.bits() / 8 * self.channels
    }

    /// Bytes of the whole image.
    pub fn bytes(&self) -> u64 {
        let counts = [self.extents[1], self.extents[2], self.layers].map(|count| u64::from(count.max(1)));
        let rows = counts.into_iter().fold(1, u64::saturating_mul);
        let row = u64::from(self.extents[0]) * u64::from(self.texel_bytes());
        (rows - 1).saturating_mul(self.pitch).saturating_add(row)
    }

    /// Whether an instruction of this geometry can use it.
    pub(crate) fn fits(&self, geometry: Geometry) -> bool {
        let axes = self.extents.iter().filter(|&&extent| extent > 0).count();
        match geometry {
            Geometry::Axes { count, layered } => usize::from(count) == axes && layered == (self.layers > 0) && !self.cube,
            Geometry::Cube { layered } => self.cube && (layered || self.layers == 6),
        }
    }

    /// The image in words.
    pub(crate) fn describe(&self) -> String {
        let sizes: Vec<String> = self.extents.iter().filter(|&&extent| extent > 0).map(u32::to_string).collect();
        let layers = match (self.layers, self.cube) {
            (0, _) => String::new(),
            (layers, true) => format!(", {} cube faces", layers),
            (layers, false) => format!(", {layers} layers"),
        };
        format!("an image of {} texels of {} x {}{layers}", sizes.join(" x "), self.channels, self.dtype)
    }

    /// Where a texel, or a byte of its row, lies.
    pub(crate) fn address(&self, place: Place, byte: u64) -> u64 {
        let rows = u64::from(self.extents[1].max(1));
        let slices = u64::from(self.extents[2].max(1));
        let slice = u64::from(place.layer) * slices + u64::from(place.at[2]);
        self.address.0 + (slice * rows + u64::from(place.at[1])) * self.pitch + byte
    }

    /// A channel's code as a number; none where the type cannot be read so.
    fn number(&self, code: u64) -> Option<f32> {
        let bits = self.dtype.bits();
        let signed = (code as i64) << (64 - bits) >> (64 - bits);
        Some(match (self.dtype, self.dtype.class()) {
            (DType::F32, _) => f32::from_bits(code as u32),
            (DType::F16, _) => element::f16_to_f32(code as u16),
            (_, NumberClass::Unsigned) if bits < 32 => code as f32 / ((1u64 << bits) - 1) as f32,
            (_, NumberClass::Signed) if bits < 32 => (signed as f32 / ((1i64 << (bits - 1)) - 1) as f32).max(-1.0),
            _ => return None,
        })
    }

    /// A texel's four channels as numbers.
    pub(crate) fn numbers(&self, codes: &[u64]) -> Option<[f32; 4]> {
        let mut out = [0.0, 0.0, 0.0, 1.0];
        for (out, code) in out.iter_mut().zip(codes) {
            *out = self.number(*code)?;
        }
        Some(out)
    }

    /// A texel's four channels as 32 bits each: integers extended, floats as `f32`.
    pub(crate) fn words(&self, codes: &[u64]) -> [u32; 4] {
        let mut out = [0, 0, 0, if self.dtype.is_float() { 1.0f32.to_bits() } else { 1 }];
        for (out, &code) in out.iter_mut().zip(codes) {
            let bits = self.dtype.bits();
            *out = match self.dtype.class() {
                NumberClass::Signed => ((code as i64) << (64 - bits) >> (64 - bits)) as u32,
                NumberClass::Float => self.number(code).map_or(code as u32, f32::to_bits),
                _ => code as u32,
            };
        }
        out
    }
}

/// The texel that a place along an axis means; none for the border.
fn along(i: i64, extent: u32, outside: Outside, normalized: bool) -> Option<u32> {
    let last = i64::from(extent) - 1;
    let clamped = i.clamp(0, last);
    let place = match outside {
        Outside::Wrap if normalized => i.rem_euclid(i64::from(extent)),
        Outside::Mirror if normalized => {
            let there = i.rem_euclid(2 * i64::from(extent));
            if there > last { 2 * i64::from(extent) - 1 - there } else { there }
        }
        Outside::Border if clamped != i => return None,
        _ => clamped,
    };
    Some(place as u32)
}

/// Where a sample is taken: coordinates in texels, and the layer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Spot {
    pub(crate) at: [f64; 3],
    pub(crate) axes: usize,
    pub(crate) layer: u32,
}

/// Integer coordinates, which are never mixed or normalized.
pub(crate) fn fetch_place(image: &Image, sampler: &Sampler, at: [i64; 3], axes: usize, layer: u32) -> Option<Place> {
    let mut place = Place { at: [0; 3], layer };
    for (axis, &at) in at.iter().enumerate().take(axes) {
        place.at[axis] = along(at, image.extents[axis], sampler.outside[axis], false)?;
    }
    Some(place)
}

/// The texels of a sample and their weights; a texel that is none is the border's.
pub(crate) fn footprint(image: &Image, sampler: &Sampler, spot: Spot, offsets: [i64; 3]) -> Vec<(Option<Place>, f64)> {
    let mut list = vec![(Some(Place { at: [0; 3], layer: spot.layer }), 1.0)];
    for (axis, &offset) in offsets.iter().enumerate().take(spot.axes) {
        let u = spot.at[axis];
        let texel = |i: i64| along(i, image.extents[axis], sampler.outside[axis], sampler.normalized);
        let parts: Vec<(Option<u32>, f64)> = match sampler.linear {
            false => vec![(texel(u.floor() as i64 + offset), 1.0)],
            true => {
                let start = (u - 0.5).floor();
                let second = ((u - 0.5 - start) * 256.0).round() / 256.0;
                let first = start as i64 + offset;
                vec![(texel(first), 1.0 - second), (texel(first + 1), second)]
            }
        };
        let mut next = Vec::with_capacity(2 * list.len());
        for (place, weight) in list {
            for (along, share) in &parts {
                let place = place.zip(*along).map(|(mut place, along)| {
                    place.at[axis] = along;
                    place
                });
                next.push((place, weight * share));
            }
        }
        list = next;
    }
    list
}

/// The four texels around a place of a 2D image, in the order of `tld4`: against the clock from the lower left, y upwards.
pub(crate) fn gathered(image: &Image, sampler: &Sampler, spot: Spot, offsets: [i64; 3]) -> [Option<Place>; 4] {
    let corner = |axis: usize, next: i64| {
        let i = (spot.at[axis] - 0.5).floor() as i64 + offsets[axis] + next;
        along(i, image.extents[axis], sampler.outside[axis], sampler.normalized)
    };
    [(0, 1), (1, 1), (1, 0), (0, 0)].map(|(x, y)| Some(Place { at: [corner(0, x)?, corner(1, y)?, 0], layer: spot.layer }))
}

/// The face of a cube that a direction meets, and where: from 0 to 1 along its two axes.
pub(crate) fn face([x, y, z]: [f64; 3]) -> (u32, [f64; 2]) {
    let (face, s, t, m) = if x.abs() >= y.abs() && x.abs() >= z.abs() {
        if x >= 0.0 { (0, -z, -y, x) } else { (1, z, -y, -x) }
    } else if y.abs() >= z.abs() {
        if y >= 0.0 { (2, x, z, y) } else { (3, x, -z, -y) }
    } else if z >= 0.0 {
        (4, x, -y, z)
    } else {
        (5, -x, -y, -z)
    };
    (face, [(s / m + 1.0) / 2.0, (t / m + 1.0) / 2.0])
}

/// What `txq` and `suq` say of a channel's type ("Channel Data Type and Channel Order Fields").
pub(crate) fn data_type(image: &Image) -> u32 {
    match (image.dtype, image.dtype.class(), image.dtype.bits()) {
        (DType::F16, ..) => 0x10dd,
        (_, NumberClass::Float, _) => 0x10de,
        (_, NumberClass::Signed, 8) => 0x10d7,
        (_, NumberClass::Signed, 16) => 0x10d8,
        (_, NumberClass::Signed, _) => 0x10d9,
        (_, _, 8) => 0x10da,
        (_, _, 16) => 0x10db,
        _ => 0x10dc,
    }
}

/// The same of a texel's channels.
pub(crate) fn order(image: &Image) -> u32 {
    match image.channels {
        1 => 0x10b0,
        2 => 0x10b2,
        _ => 0x10b5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(outside: Outside, linear: bool, normalized: bool) -> (Image, Sampler) {
        let image = Image {
            address: DevicePtr(0x1000),
            dtype: DType::F32,
            channels: 1,
            extents: [4, 0, 0],
            layers: 0,
            cube: false,
            pitch: 16,
        };
        (image, Sampler { linear, normalized, outside: [outside; 3], border: [0.0; 4] })
    }

    /// The texels along x and their weights in 256ths.
    fn texels(outside: Outside, linear: bool, normalized: bool, x: f64) -> Vec<(Option<u32>, f64)> {
        let (image, sampler) = row(outside, linear, normalized);
        let spot = Spot { at: [x, 0.0, 0.0], axes: 1, layer: 0 };
        footprint(&image, &sampler, spot, [0; 3]).into_iter().map(|(p, w)| (p.map(|p| p.at[0]), w * 256.0)).collect()
    }

    #[test]
    fn neighbours_are_weighted_in_256ths() {
        assert_eq!(texels(Outside::Clamp, true, false, 1.5), [(Some(1), 256.0), (Some(2), 0.0)]);
        assert_eq!(texels(Outside::Clamp, true, false, 1.75), [(Some(1), 192.0), (Some(2), 64.0)]);
        // 0.001 is less than half of a 256th, 0.999 more than 255 and a half.
        assert_eq!(texels(Outside::Clamp, true, false, 1.501), [(Some(1), 256.0), (Some(2), 0.0)]);
        assert_eq!(texels(Outside::Clamp, true, false, 2.499), [(Some(1), 0.0), (Some(2), 256.0)]);
        assert_eq!(texels(Outside::Clamp, true, false, 0.25), [(Some(0), 64.0), (Some(0), 192.0)]);
    }

    #[test]
    fn what_lies_outside_is_the_mode_s() {
        let one = |outside, normalized, x| texels(outside, false, normalized, x)[0].0;
        assert_eq!((one(Outside::Clamp, true, -0.1), one(Outside::Clamp, true, 9.0)), (Some(0), Some(3)));
        assert_eq!((one(Outside::Wrap, true, -0.1), one(Outside::Wrap, true, 9.25)), (Some(3), Some(1)));
        let mirrored = [-0.1, 4.2, 5.2, 8.2].map(|x| one(Outside::Mirror, true, x));
        assert_eq!(mirrored, [Some(0), Some(3), Some(2), Some(0)]);
        assert_eq!((one(Outside::Border, true, -0.1), one(Outside::Border, true, 3.99)), (None, Some(3)));
        // Without normalized coordinates wrapping is clamping.
        assert_eq!((one(Outside::Wrap, false, -0.1), one(Outside::Mirror, false, 9.0)), (Some(0), Some(3)));
    }

    #[test]
    fn directions_meet_faces() {
        assert_eq!(face([1.0, 0.0, 0.0]), (0, [0.5, 0.5]));
        assert_eq!(face([-2.0, 1.0, 0.0]), (1, [0.5, 0.25]));
        assert_eq!(face([0.5, 1.0, 0.5]), (2, [0.75, 0.75]));
        assert_eq!(face([0.0, 0.0, -4.0]), (5, [0.5, 0.5]));
    }

    #[test]
    fn handles_name_places() {
        assert_eq!(index(handle(7)), Some(7));
        assert_eq!((index(0), index(handle(7) + 1)), (None, None));
    }
}
