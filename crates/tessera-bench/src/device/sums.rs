//! Sums over stored matrices in f64, made on the device that holds them: what a product's reference and its identity need of
//! problems too large for the host. The kernels are written by hand and decode every format by a table that the host fills, so
//! they share nothing with the kernels that they judge.

use std::sync::Arc;

use tessera_driver::{Context, DeviceBuffer, DevicePtr, Dim3, Kernel, Params, Result, Stream};
use tessera_ops::Matrix;
use tessera_types::DType;

use crate::library::decoder;

const TEXT: &str = include_str!("sums.ptx");
/// Threads of a block.
const THREADS: u32 = 128;
/// Rows that a thread of the product takes.
const TOGETHER: usize = 8;
/// Numbers of the left matrix that are laid out at a time.
const LEFT_NUMBERS: usize = 1 << 24;

/// The kernels, loaded, and the queue they run on.
#[derive(Debug)]
pub(crate) struct Sums {
    context: Context,
    stream: Arc<Stream>,
    matrix_vector: Kernel,
    rows: Kernel,
    product: Kernel,
}

/// Where a tensor lies and how its elements are read.
struct Source {
    data: DevicePtr,
    table: DeviceBuffer,
    bits: u32,
}

/// The text with the parts that repeat for each row of a thread.
fn text() -> String {
    let each = |line: &dyn Fn(usize) -> String| (0..TOGETHER).map(line).collect::<String>();
    let clear = each(&|r| format!("    mov.f64 %s{r}, 0d0000000000000000;\n    mov.f64 %m{r}, 0d0000000000000000;\n"));
    let add = each(&|r| {
        format!(
            "    ld.global.f64 %a, [%at];\n    mul.rn.f64 %t, %a, %x;\n    add.rn.f64 %s{r}, %s{r}, %t;\n    abs.f64 %t, %t;\n    \
             add.rn.f64 %m{r}, %m{r}, %t;\n    add.u64 %at, %at, %line;\n"
        )
    });
    let store = each(&|r| {
        format!(
            "    add.u32 %r4, %r3, {r};\n    setp.lt.u32 %some, %r4, %count;\n    @%some st.global.f64 [%at], %s{r};\n    \
             @%some st.global.f64 [%d1], %m{r};\n    add.u64 %at, %at, %d2;\n    add.u64 %d1, %d1, %d2;\n"
        )
    });
    TEXT.replace("ROWS_CLEAR\n", &clear).replace("ROWS_ADD\n", &add).replace("ROWS_STORE\n", &store)
}

fn bytes_of(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

impl Sums {
    pub(crate) fn load(context: &Context, stream: &Arc<Stream>) -> Result<Sums> {
        let module = context.module(text().as_bytes())?;
        Ok(Sums {
            context: context.clone(),
            stream: stream.clone(),
            matrix_vector: module.kernel("tessera_matrix_vector")?,
            rows: module.kernel("tessera_rows")?,
            product: module.kernel("tessera_product")?,
        })
    }

    /// True for the formats whose elements the kernels read.
    pub(crate) fn reads(dtype: DType) -> bool {
        dtype.bits() <= 16 && dtype != DType::B1 || matches!(dtype, DType::F32 | DType::TF32)
    }

    fn source(&self, data: DevicePtr, dtype: DType) -> Result<Source> {
        let codes = if dtype.bits() > 16 { 1 } else { 1u64 << dtype.bits() };
        let decode = decoder(dtype);
        let numbers: Vec<f64> = (0..codes).map(decode).collect();
        Ok(Source { data, table: self.filled(&numbers)?, bits: dtype.bits() })
    }

    fn filled(&self, numbers: &[f64]) -> Result<DeviceBuffer> {
        let buffer = self.context.buffer(8 * numbers.len() as u64)?;
        buffer.write(0, &bytes_of(numbers), &self.stream)?;
        Ok(buffer)
    }

    fn fetched(&self, buffer: &DeviceBuffer, out: &mut [f64]) -> Result<()> {
        let mut bytes = vec![0; 8 * out.len()];
        buffer.read(0, &mut bytes, &self.stream)?;
        for (number, bytes) in out.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *number = f64::from_le_bytes(*bytes);
        }
        Ok(())
    }

    /// The matrix times `v`, and the squares of each of its rows added up.
    pub(crate) fn matrix_vector(
        &self,
        data: DevicePtr,
        dtype: DType,
        matrix: &Matrix,
        v: &[f64],
    ) -> Result<(Vec<f64>, Vec<f64>)> {
        let source = self.source(data, dtype)?;
        let vector = self.filled(v)?;
        let room = 8 * matrix.rows as u64;
        let (products, squares) = (self.context.buffer(room)?, self.context.buffer(room)?);
        // Neighbouring threads read neighbouring elements.
        let lanes = if matrix.transposed { 1 } else { 32 };
        let (row_stride, column_stride) = matrix.strides();
        let params = Params::new().pointer(source.data).pointer(source.table.pointer()).u32(source.bits).u32(lanes);
        let params = params.u64(matrix.base as u64).u64(matrix.rows as u64).u64(matrix.columns as u64);
        let params = params.u64(row_stride).u64(column_stride).pointer(vector.pointer());
        let params = params.pointer(products.pointer()).pointer(squares.pointer());
        let blocks = (matrix.rows as u64 * u64::from(lanes)).div_ceil(u64::from(THREADS)).max(1) as u32;
        self.matrix_vector.launch(&self.stream, Dim3::from(blocks), Dim3::from(THREADS), 0, &params)?;
        let mut answer = (vec![0.0; matrix.rows], vec![0.0; matrix.rows]);
        self.fetched(&products, &mut answer.0)?;
        self.fetched(&squares, &mut answer.1)?;
        Ok(answer)
    }

    /// Rows of `left` times `right`: the sums of products and of their magnitudes, row after row.
    pub(crate) fn product(
        &self,
        (left, left_type, left_matrix): (DevicePtr, DType, &Matrix),
        rows: &[usize],
        (right, right_type, right_matrix): (DevicePtr, DType, &Matrix),
        (sums, magnitudes): (&mut [f64], &mut [f64]),
    ) -> Result<()> {
        let (left, right) = (self.source(left, left_type)?, self.source(right, right_type)?);
        let (depth, columns) = (left_matrix.columns, right_matrix.columns);
        let most = (LEFT_NUMBERS / depth.max(1)).max(TOGETHER) / TOGETHER * TOGETHER;
        for (part, names) in rows.chunks(most.min(1 << 15)).enumerate() {
            let padded = names.len().next_multiple_of(TOGETHER);
            let numbers = self.context.buffer((8 * padded * depth) as u64)?;
            let names_bytes: Vec<u8> = names.iter().flat_map(|&row| (row as u64).to_le_bytes()).collect();
            let named = self.context.buffer(names_bytes.len() as u64)?;
            named.write(0, &names_bytes, &self.stream)?;
            let across = |extent: usize| (extent as u64).div_ceil(u64::from(THREADS)).max(1) as u32;
            let (row_stride, column_stride) = left_matrix.strides();
            let params =
                Params::new().pointer(left.data).pointer(left.table.pointer()).u32(left.bits).u64(left_matrix.base as u64);
            let params = params.pointer(named.pointer()).u64(depth as u64).u64(row_stride).u64(column_stride);
            let grid = Dim3 { x: across(depth), y: names.len() as u32, z: 1 };
            self.rows.launch(&self.stream, grid, Dim3::from(THREADS), 0, &params.pointer(numbers.pointer()))?;

            let room = (8 * names.len() * columns) as u64;
            let out = (self.context.buffer(room)?, self.context.buffer(room)?);
            let (depth_stride, column_stride) = right_matrix.strides();
            let params = Params::new().pointer(numbers.pointer()).u32(names.len() as u32).u64(depth as u64);
            let params = params.pointer(right.data).pointer(right.table.pointer()).u32(right.bits).u64(right_matrix.base as u64);
            let params = params.u64(columns as u64).u64(depth_stride).u64(column_stride);
            let grid = Dim3 { x: across(columns), y: (padded / TOGETHER) as u32, z: 1 };
            let params = params.pointer(out.0.pointer()).pointer(out.1.pointer());
            self.product.launch(&self.stream, grid, Dim3::from(THREADS), 0, &params)?;
            let place = part * most.min(1 << 15) * columns..;
            let place = place.start..place.start + names.len() * columns;
            self.fetched(&out.0, &mut sums[place.clone()])?;
            self.fetched(&out.1, &mut magnitudes[place])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tessera_emu::EmuOptions;
    use tessera_ops::{Expected, Machine, Matrices as _, Problem, find};
    use tessera_runtime::{Device, DriverDevice};
    use tessera_types::Arch;

    use super::Sums;
    use crate::case::Lane;
    use crate::device::DeviceTensors;

    /// The reference of a product by the device's sums and by the host's own: equal but for the order of the sums.
    #[test]
    fn the_device_sums_up_what_the_host_does() {
        let table = tessera_emu::driver(&EmuOptions::default()).unwrap();
        let device = DriverDevice::open(Arc::new(table), 0).unwrap();
        let sums = Arc::new(Sums::load(device.context(), device.stream()).unwrap());
        for precision in [
            "fp32",
            "fp16",
            "bf16",
            "fp8_e4m3@accum(fp32)",
            "fp8_e5m2@accum(fp32)",
            "fp6@accum(fp32)",
            "fp4@accum(fp32)",
            "tf32",
            "int8",
        ] {
            for variant in ["nn", "nt", "tn", "tt"] {
                let batch = if variant == "nn" { 2 } else { 1 };
                let problem = Problem::new(&[("batch", batch), ("m", 11), ("n", 37), ("k", 72)], variant);
                let plan = find("gemm").unwrap().plan(&problem, precision.parse().unwrap(), Machine::Gpu(Arch::Sm90a)).unwrap();
                let target = Device::Driver(device.clone());
                let mut with = DeviceTensors::new(&plan, &target, Some(sums.clone())).unwrap();
                let mut without = DeviceTensors::new(&plan, &target, None).unwrap();
                for tensors in [&mut with, &mut without] {
                    tensors.refresh(3, Lane::Case).unwrap();
                }
                let rows = plan.outputs[0].rows;
                let count = rows * plan.outputs[0].row_len;
                let answer = |tensors: &DeviceTensors| {
                    let (mut want, mut bound, mut codes) = (vec![0.0; count], vec![0.0; count], vec![0; count]);
                    let expected = match plan.outputs[0].exact {
                        true => Expected::Codes(&mut codes),
                        false => Expected::Bounded { want: &mut want, bound: &mut bound },
                    };
                    plan.reference.rows(tensors, 0, 0..rows, expected);
                    (want, bound, codes)
                };
                let (here, there) = (answer(&without), answer(&with));
                assert_eq!(here.2, there.2, "{precision} {variant}");
                for (a, b) in here.0.iter().zip(&there.0).chain(here.1.iter().zip(&there.1)) {
                    assert!((a - b).abs() <= 1e-12 * (1.0 + a.abs()), "{precision} {variant}: {a} and {b}");
                }
                assert!(there.0.iter().any(|&x| x != 0.0) || there.2.iter().any(|&x| x != 0), "{precision} {variant}: all zero");

                let v: Vec<f64> = (0..37).map(|i| if i % 3 == 0 { -1.0 } else { 1.0 }).collect();
                let sides = |tensors: &DeviceTensors| {
                    plan.reference.identity(tensors, 0, &v, &|_, out| {
                        out.fill(0.0);
                        true
                    })
                };
                let (Some(here), Some(there)) = (sides(&without), sides(&with)) else { continue };
                assert_eq!(here.len() as u64, 11 * batch);
                for (a, b) in here.iter().zip(&there) {
                    assert!((a.want - b.want).abs() <= 1e-11 * (1.0 + a.want.abs()), "{precision} {variant}: {a:?} and {b:?}");
                    assert!((a.bound - b.bound).abs() <= 1e-11 * a.bound, "{precision} {variant}: {a:?} and {b:?}");
                }
                // What lies in the third tensor is summed up by the device as well.
                let c = tessera_ops::Matrix { tensor: 2, base: 0, rows: 11, columns: 37, transposed: false };
                assert!(with.matrix_vector(&c, &v).is_some() && without.matrix_vector(&c, &v).is_none());
            }
        }
    }
}
