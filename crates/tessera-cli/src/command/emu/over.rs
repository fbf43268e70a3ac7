//! Tensor maps, textures and surfaces over arrays, from their options.

use tessera::driver::{DevicePtr, L2Promotion, OutOfBounds, Swizzle, TensorMapSpec};
use tessera::emu::{Emulator, Im2col, Image, Outside, Sampler, Walk};
use tessera::types::DType;

use super::value::Kind;

/// The array that something is made over.
pub(super) struct Source {
    pub(super) at: DevicePtr,
    pub(super) dtype: DType,
    /// The outermost first; none of a part of an array.
    pub(super) shape: Option<Vec<usize>>,
}

type Options = [(String, String)];

const MAP_HELP: &str = "help: `map(ARRAY;tile=INNER,...)`, and `swizzle=BYTES`, `shape=INNER,...`, `strides=BYTES,...` of the outer dimensions, \
                        `steps=N,...`, `fill=nan`, `type=DTYPE`; in im2col mode `channels=N;pixels=N;lower=W,...;upper=W,...` instead of the tile";
const IMAGE_HELP: &str = "help: `tex(ARRAY)` or `surf(ARRAY)`, and `channels=N`, `layered`, `cube`, `shape=W,H,D`, `pitch=BYTES`, `type=DTYPE`; of \
                          textures `linear`, `normalized`, `address=clamp|wrap|mirror|border,...`, `border=R,G,B,A`";

fn list<T: std::str::FromStr>(text: &str) -> Result<Vec<T>, String> {
    let numbers = text.split(',').map(|part| part.trim().parse().ok()).collect::<Option<Vec<T>>>();
    numbers.ok_or_else(|| format!("`{text}` is no list of numbers"))
}

fn one<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

fn dtype(text: &str) -> Result<DType, String> {
    DType::parse(text).ok_or_else(|| format!("`{text}` is no element type"))
}

fn sizes(source: &Source) -> Result<Vec<u64>, String> {
    let shape = source.shape.as_ref().ok_or("of a part of an array, `shape=INNER,...` has to be said")?;
    Ok(shape.iter().rev().map(|&extent| extent as u64).collect())
}

/// The 128 bytes of a tensor map.
pub(super) fn tensor_map(source: &Source, options: &Options) -> Result<Vec<u8>, String> {
    make_map(source, options).map_err(|why| format!("{why}\n{MAP_HELP}"))
}

fn make_map(source: &Source, options: &Options) -> Result<Vec<u8>, String> {
    let mut spec = TensorMapSpec {
        dtype: source.dtype,
        address: source.at,
        extents: Vec::new(),
        strides: Vec::new(),
        tile: Vec::new(),
        swizzle: Swizzle::None,
        l2: L2Promotion::None,
        outside: OutOfBounds::Zero,
    };
    let (mut walk, mut strides) = (Walk::default(), None);
    let mut im2col = Im2col { lower: Vec::new(), upper: Vec::new(), channels: 0, pixels: 0 };
    for (key, value) in options {
        match key.as_str() {
            "tile" => spec.tile = list(value)?,
            "shape" => spec.extents = list(value)?,
            "strides" => strides = Some(list(value)?),
            "steps" => walk.steps = list(value)?,
            "type" => spec.dtype = dtype(value)?,
            "lower" => im2col.lower = list(value)?,
            "upper" => im2col.upper = list(value)?,
            "channels" => im2col.channels = one(value)?,
            "pixels" => im2col.pixels = one(value)?,
            "fill" => {
                spec.outside = match value.as_str() {
                    "nan" => OutOfBounds::Nan,
                    "zero" => OutOfBounds::Zero,
                    other => return Err(format!("`fill={other}`: `zero` or `nan`")),
                };
            }
            "swizzle" => {
                spec.swizzle = match value.as_str() {
                    "0" => Swizzle::None,
                    "32" => Swizzle::B32,
                    "64" => Swizzle::B64,
                    "128" => Swizzle::B128,
                    other => return Err(format!("`{other}` is no swizzle: 0, 32, 64 or 128")),
                };
            }
            other => return Err(format!("a map has no `{other}`")),
        }
    }
    if spec.extents.is_empty() {
        spec.extents = sizes(source)?;
    }
    // Rows lie one behind the other unless strides are said.
    let dense = spec.extents.iter().scan(u64::from(spec.dtype.bits() / 8), |bytes, extent| {
        *bytes = bytes.saturating_mul(*extent);
        Some(*bytes)
    });
    spec.strides = strides.unwrap_or_else(|| dense.take(spec.extents.len().saturating_sub(1)).collect());
    if im2col.channels > 0 || im2col.pixels > 0 || !im2col.lower.is_empty() || !im2col.upper.is_empty() {
        if !spec.tile.is_empty() {
            return Err("a map has a tile, or the channels and pixels of the im2col mode".to_owned());
        }
        let spatial = spec.extents.len().saturating_sub(2);
        for corner in [&mut im2col.lower, &mut im2col.upper] {
            if corner.is_empty() {
                *corner = vec![0; spatial];
            }
        }
        walk.im2col = Some(im2col);
    } else if spec.tile.is_empty() {
        return Err("a map needs a tile".to_owned());
    }
    Emulator::tensor_map_walking(&spec, &walk).map(|map| map.to_vec()).map_err(|error| error.to_string())
}

/// The handle of a texture or surface.
pub(super) fn image(emulator: &Emulator, kind: Kind, source: &Source, options: &Options) -> Result<u64, String> {
    make_image(emulator, kind, source, options).map_err(|why| format!("{why}\n{IMAGE_HELP}"))
}

fn make_image(emulator: &Emulator, kind: Kind, source: &Source, options: &Options) -> Result<u64, String> {
    let (mut sampler, mut dtype_, mut channels, mut layered, mut cube) = (Sampler::default(), source.dtype, 0, false, false);
    let (mut shape, mut pitch, mut sampled) = (None, None, None);
    for (key, value) in options {
        match key.as_str() {
            "channels" => channels = one(value)?,
            "layered" => layered = true,
            "cube" => cube = true,
            "shape" => shape = Some(list::<u64>(value)?),
            "pitch" => pitch = Some(one(value)?),
            "type" => dtype_ = dtype(value)?,
            "linear" => sampler.linear = true,
            "normalized" => sampler.normalized = true,
            "address" => {
                let modes = value.split(',').map(|mode| match mode.trim() {
                    "clamp" => Ok(Outside::Clamp),
                    "wrap" => Ok(Outside::Wrap),
                    "mirror" => Ok(Outside::Mirror),
                    "border" => Ok(Outside::Border),
                    other => Err(format!("`{other}`: `clamp`, `wrap`, `mirror` or `border`")),
                });
                let modes = modes.collect::<Result<Vec<_>, _>>()?;
                // The last one holds for the axes behind it.
                sampler.outside = std::array::from_fn(|axis| modes[axis.min(modes.len() - 1)]);
            }
            "border" => {
                let colour = list::<f32>(value)?;
                sampler.border = colour.try_into().map_err(|_| format!("`border={value}`: four numbers"))?;
            }
            other => return Err(format!("a texture or surface has no `{other}`")),
        }
        if matches!(key.as_str(), "linear" | "normalized" | "address" | "border") {
            sampled = Some(key);
        }
    }
    if let (Kind::Surface, Some(option)) = (kind, sampled) {
        return Err(format!("`{option}` is for textures: a surface is not sampled"));
    }
    // The innermost axis of the array is that of the channels, where there are some; the outermost that of the layers.
    let mut axes = match shape {
        Some(shape) => shape,
        None => {
            let mut axes = sizes(source)?;
            if channels > 0 {
                let found = if axes.is_empty() { 0 } else { axes.remove(0) };
                if found != u64::from(channels) {
                    return Err(format!("the array's last axis has {found} elements, not {channels} channels"));
                }
            }
            axes
        }
    };
    let layers = if layered || cube { axes.pop().unwrap_or(0) } else { 0 };
    if axes.is_empty() || axes.len() > 3 {
        return Err(format!("an image has 1 to 3 axes, not {}", axes.len()));
    }
    let extent =
        |axis: usize| axes.get(axis).map_or(Ok(0), |&extent| u32::try_from(extent).map_err(|_| "an axis is too long".to_owned()));
    let channels = channels.max(1);
    let extents = [extent(0)?, extent(1)?, extent(2)?];
    let layers = u32::try_from(layers).map_err(|_| "too many layers".to_owned())?;
    let dense = u64::from(extents[0]) * u64::from(channels) * u64::from(dtype_.bits() / 8);
    let image = Image { address: source.at, dtype: dtype_, channels, extents, layers, cube, pitch: pitch.unwrap_or(dense) };
    let handle = match kind {
        Kind::Surface => emulator.surface(&image),
        Kind::Texture | Kind::Map => emulator.texture(&image, &sampler),
    };
    handle.map_err(|error| error.to_string())
}
