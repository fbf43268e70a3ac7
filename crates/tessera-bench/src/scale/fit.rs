//! Least squares of relative errors: a collective of 4 KiB counts as much as one of 1 GiB.

/// What was fitted: `t = base + steps * step + bytes / rate`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Microseconds that no byte takes.
    pub base: f64,
    /// Microseconds of a step, where points with several numbers of steps tell it; else `base` holds it, too.
    pub step: Option<f64>,
    /// Bytes in a microsecond.
    pub rate: f64,
}

/// Fits points of `(steps, bytes, microseconds)`. `None` where fewer points than unknowns are there, or they contradict the model: less
/// time for more bytes.
pub fn fit(points: &[(f64, f64, f64)]) -> Option<Fit> {
    let steps_differ = points.iter().any(|point| point.0 != points[0].0);
    let row = |&(steps, bytes, time): &(f64, f64, f64)| match steps_differ {
        true => [1.0 / time, bytes / time, steps / time],
        false => [1.0 / time, bytes / time, 0.0],
    };
    let unknowns = if steps_differ { 3 } else { 2 };
    if points.len() < unknowns || points.iter().any(|point| point.2 <= 0.0) {
        return None;
    }
    let rows: Vec<[f64; 3]> = points.iter().map(row).collect();
    // Bytes are scaled so that the normal equations are well conditioned.
    let scale = rows.iter().map(|row| row[1]).fold(f64::MIN_POSITIVE, f64::max);
    let mut matrix = [[0.0; 4]; 3];
    for row in &rows {
        let row = [row[0], row[1] / scale, row[2]];
        for i in 0..unknowns {
            for j in 0..unknowns {
                matrix[i][j] += row[i] * row[j];
            }
            matrix[i][3] += row[i];
        }
    }
    let [base, slope, step] = solve(matrix, unknowns)?;
    let slope = slope / scale;
    (slope > 0.0).then(|| Fit { base, step: steps_differ.then_some(step), rate: 1.0 / slope })
}

/// Gauss's elimination with the largest pivot of each column.
fn solve(mut rows: [[f64; 4]; 3], unknowns: usize) -> Option<[f64; 3]> {
    for column in 0..unknowns {
        let pivot = (column..unknowns).max_by(|&a, &b| rows[a][column].abs().total_cmp(&rows[b][column].abs()))?;
        rows.swap(column, pivot);
        if rows[column][column].abs() < 1e-12 {
            return None;
        }
        let lead = rows[column];
        for (_, row) in rows.iter_mut().enumerate().take(unknowns).filter(|(at, _)| *at != column) {
            let factor = row[column] / lead[column];
            row.iter_mut().zip(lead).for_each(|(own, other)| *own -= factor * other);
        }
    }
    let mut solution = [0.0; 3];
    (0..unknowns).for_each(|at| solution[at] = rows[at][3] / rows[at][at]);
    Some(solution)
}
