//! Eigenvalues and eigenvectors of small symmetric matrices: tridiagonal ones, and full ones by way
//! of them.
//!
//! The implicit QL method (Dubrulle, Martin and Wilkinson 1968) with the shift of Wilkinson, after
//! Householder's reduction for full matrices. Errors of eigenvalues are of the order of
//! 2^-52 |A|; eigenvectors are orthogonal to the same order, whether or not eigenvalues are close.
//! Graded matrices are turned so that the sweeps run from their large end to their small one, as
//! LAPACK's dsteqr does. Work: O(n^2) for eigenvalues and one row of the eigenvectors, O(n^3) for
//! all of them.

use crate::math::operator::{add_scaled, dot, norm};

/// Which components of the eigenvectors are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// The first component of each.
    First,
    /// The last component of each.
    Last,
    /// All components.
    All,
}

impl Rows {
    fn indices(self, n: usize) -> std::ops::Range<usize> {
        match self {
            Self::First => 0..n.min(1),
            Self::Last => n.saturating_sub(1)..n,
            Self::All => 0..n,
        }
    }
}

/// The eigenvalues of a symmetric matrix, ascending, with its orthonormal eigenvectors.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Eigen {
    /// Eigenvalues, ascending, each as often as its multiplicity.
    pub values: Vec<f64>,
    /// To each eigenvalue the wanted components of its eigenvector: one, or n.
    pub vectors: Vec<Vec<f64>>,
}

/// The eigenproblem of the symmetric tridiagonal matrix with this diagonal and these entries
/// `beside` it. `None` if an entry is not finite.
///
/// # Panics
/// If `beside` is not one shorter than `diagonal` (both empty for n = 0).
pub fn tridiagonal(diagonal: &[f64], beside: &[f64], rows: Rows) -> Option<Eigen> {
    let n = diagonal.len();
    assert_eq!(
        beside.len(),
        n.saturating_sub(1),
        "entries beside the diagonal"
    );
    let rows = rows.indices(n);
    let columns = (0..n)
        .map(|j| rows.clone().map(|i| f64::from(u8::from(i == j))).collect())
        .collect();
    solve(diagonal.to_vec(), beside.to_vec(), columns)
}

/// The eigenproblem of the full symmetric matrix whose lower triangle is given row by row: row i
/// has the i + 1 entries up to the diagonal. `None` if an entry is not finite.
///
/// # Panics
/// If a row has another length.
pub fn symmetric(lower: &[Vec<f64>], rows: Rows) -> Option<Eigen> {
    let n = lower.len();
    let mut matrix = vec![vec![0.0; n]; n];
    for (i, row) in lower.iter().enumerate() {
        assert_eq!(row.len(), i + 1, "entries of row {i} of a lower triangle");
        for (j, &entry) in row.iter().enumerate() {
            matrix[i][j] = entry;
            matrix[j][i] = entry;
        }
    }
    // The wanted rows of the product of all reflections.
    let mut basis: Vec<Vec<f64>> = rows
        .indices(n)
        .map(|i| (0..n).map(|j| f64::from(u8::from(i == j))).collect())
        .collect();
    let mut diagonal = Vec::with_capacity(n);
    let mut beside = Vec::with_capacity(n);
    for k in 0..n {
        diagonal.push(matrix[k][k]);
        if k + 1 < n {
            beside.push(reflect(&mut matrix, &mut basis, k));
        }
    }
    let columns = (0..n)
        .map(|j| basis.iter().map(|row| row[j]).collect())
        .collect();
    solve(diagonal, beside, columns)
}

/// Takes A to H A H with the reflection H = 1 - 2 u u' that leaves one entry below the diagonal of
/// column k, and multiplies the rows of `basis` by H. Returns that entry.
fn reflect(matrix: &mut [Vec<f64>], basis: &mut [Vec<f64>], k: usize) -> f64 {
    let rest = k + 1..matrix.len();
    let column = &matrix[k][rest.clone()];
    // Divided by its largest entry, so that no square under- or overflows.
    let largest = column.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
    if largest == 0.0 || column[1..].iter().all(|x| *x == 0.0) {
        return column[0];
    }
    let mut u: Vec<f64> = column.iter().map(|x| x / largest).collect();
    let image = -norm(&u).copysign(u[0]);
    u[0] -= image;
    let length = norm(&u);
    for x in &mut u {
        *x /= length;
    }
    let mut w: Vec<f64> = matrix[rest.clone()]
        .iter()
        .map(|row| 2.0 * dot(&row[rest.clone()], &u))
        .collect();
    let inner = dot(&w, &u);
    add_scaled(&mut w, -inner, &u);
    for (i, row) in matrix[rest.clone()].iter_mut().enumerate() {
        add_scaled(&mut row[rest.clone()], -u[i], &w);
        add_scaled(&mut row[rest.clone()], -w[i], &u);
    }
    for row in basis {
        let inner = dot(&row[rest.clone()], &u);
        add_scaled(&mut row[rest.clone()], -2.0 * inner, &u);
    }
    image * largest
}

/// Sweeps that one eigenvalue may take on average. Two or three do.
const SWEEPS: usize = 50;

/// Diagonalizes the tridiagonal matrix and turns the columns along, then sorts. `None` if an entry
/// is not finite.
fn solve(mut d: Vec<f64>, mut e: Vec<f64>, mut columns: Vec<Vec<f64>>) -> Option<Eigen> {
    let n = d.len();
    if d.iter().chain(&e).any(|x| !x.is_finite()) {
        return None;
    }
    // By a power of two, without rounding, to entries below 2.
    let largest = d.iter().chain(&e).fold(0.0, |m: f64, x| m.max(x.abs()));
    let exponent = largest.log2().floor().clamp(-1000.0, 1000.0) as i32;
    let (down, up) = (2.0_f64.powi(-exponent), 2.0_f64.powi(exponent));
    for x in d.iter_mut().chain(&mut e) {
        *x *= down;
    }
    let mut left = SWEEPS * n;
    let mut blocks = vec![(0, n)];
    while let Some((low, high)) = blocks.pop() {
        if high - low < 2 {
            continue;
        }
        let mut turned = false;
        loop {
            let split = (low..high - 1).find(|&i| negligible(e[i], d[i], d[i + 1]));
            if let Some(i) = split {
                e[i] = 0.0;
                blocks.extend([(low, i + 1), (i + 1, high)]);
                break;
            }
            if !turned && d[low].abs() > d[high - 1].abs() {
                d[low..high].reverse();
                e[low..high - 1].reverse();
                columns[low..high].reverse();
            }
            turned = true;
            left = left.checked_sub(1)?;
            sweep(
                &mut d[low..high],
                &mut e[low..high - 1],
                &mut columns[low..high],
            );
        }
    }
    let mut pairs: Vec<_> = d.into_iter().zip(columns).collect();
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (values, vectors) = pairs
        .into_iter()
        .map(|(d, column)| (d * up, column))
        .unzip();
    Some(Eigen { values, vectors })
}

/// Whether dropping e between a and b moves eigenvalues by less than they are rounded by.
fn negligible(e: f64, a: f64, b: f64) -> bool {
    let bound = f64::EPSILON * a.abs().sqrt() * b.abs().sqrt();
    e.abs() <= bound.max(f64::MIN_POSITIVE)
}

/// One implicit QL step on an unreduced block: the bulge that the shift makes at the lower right
/// is chased to the upper left by plane rotations.
fn sweep(d: &mut [f64], e: &mut [f64], columns: &mut [Vec<f64>]) {
    let last = d.len() - 1;
    // The eigenvalue of the leading 2 x 2 block that lies nearer to its first entry.
    let half_gap = (d[1] - d[0]) / (2.0 * e[0]);
    let root = half_gap.hypot(1.0).copysign(half_gap);
    let shift = d[0] - e[0] / (half_gap + root);
    let (mut cosine, mut sine) = (1.0, 1.0);
    let mut ahead = d[last] - shift;
    let mut moved = 0.0;
    for i in (0..last).rev() {
        let bulge = sine * e[i];
        let kept = cosine * e[i];
        let length = bulge.hypot(ahead);
        if i + 1 < last {
            e[i + 1] = length;
        }
        if length == 0.0 {
            // The block has fallen apart here; the search for negligible entries sees it.
            d[i + 1] -= moved;
            return;
        }
        sine = bulge / length;
        cosine = ahead / length;
        let base = d[i + 1] - moved;
        let slope = (d[i] - base) * sine + 2.0 * cosine * kept;
        moved = sine * slope;
        d[i + 1] = base + moved;
        ahead = cosine * slope - kept;
        let (left, right) = columns.split_at_mut(i + 1);
        for (x, y) in left[i].iter_mut().zip(&mut right[0]) {
            (*x, *y) = (cosine * *x - sine * *y, sine * *x + cosine * *y);
        }
    }
    d[0] -= moved;
    e[0] = ahead;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference() -> serde_json::Value {
        serde_json::from_str(include_str!("../../tests/reference/spectral.json")).unwrap()
    }

    fn floats(value: &serde_json::Value) -> Vec<f64> {
        let values = value.as_array().unwrap();
        values.iter().map(|v| v.as_f64().unwrap()).collect()
    }

    fn largest(values: &[f64]) -> f64 {
        values.iter().fold(0.0, |m: f64, x| m.max(x.abs()))
    }

    /// max over pairs of |A v - lambda v|, and of |v_i'v_j - delta_ij|.
    fn faults(matrix: &dyn Fn(usize, usize) -> f64, found: &Eigen) -> (f64, f64) {
        let n = found.values.len();
        let (mut residual, mut skew) = (0.0_f64, 0.0_f64);
        for (i, (value, vector)) in found.values.iter().zip(&found.vectors).enumerate() {
            let difference: Vec<f64> = (0..n)
                .map(|r| {
                    let image: f64 = (0..n).map(|c| matrix(r, c) * vector[c]).sum();
                    image - value * vector[r]
                })
                .collect();
            residual = residual.max(norm(&difference));
            for (j, other) in found.vectors.iter().enumerate() {
                skew = skew.max((dot(vector, other) - f64::from(u8::from(i == j))).abs());
            }
        }
        (residual, skew)
    }

    fn check(diagonal: &[f64], beside: &[f64]) -> Eigen {
        let found = tridiagonal(diagonal, beside, Rows::All).unwrap();
        let matrix = |i: usize, j: usize| match i.abs_diff(j) {
            0 => diagonal[i],
            1 => beside[i.min(j)],
            _ => 0.0,
        };
        let scale = largest(diagonal).max(largest(beside));
        let (residual, skew) = faults(&matrix, &found);
        assert!(
            residual <= 1e-14 * scale * found.values.len() as f64,
            "{residual:e}"
        );
        assert!(skew < 1e-13, "{skew:e}");
        assert!(found.values.is_sorted());
        for (rows, at) in [(Rows::First, 0), (Rows::Last, diagonal.len() - 1)] {
            let part = tridiagonal(diagonal, beside, rows).unwrap();
            assert_eq!(part.values, found.values);
            for (one, all) in part.vectors.iter().zip(&found.vectors) {
                assert_eq!(one.as_slice(), &all[at..=at]);
            }
        }
        found
    }

    #[test]
    fn tridiagonal_matrices_agree_with_scipy() {
        let reference = reference();
        for (name, case) in reference["tridiagonal"].as_object().unwrap() {
            let found = check(&floats(&case["diagonal"]), &floats(&case["beside"]));
            let values = floats(&case["values"]);
            let scale = largest(&values);
            for (ours, theirs) in found.values.iter().zip(&values) {
                assert!(
                    (ours - theirs).abs() < 1e-14 * scale,
                    "{name}: {ours} {theirs}"
                );
            }
            if name == "wilkinson" || name == "split" {
                // Single components are not defined where eigenvalues coincide.
                continue;
            }
            for (key, at) in [("first_squared", 0), ("last_squared", values.len() - 1)] {
                for (ours, theirs) in found.vectors.iter().zip(floats(&case[key])) {
                    assert!((ours[at].powi(2) - theirs).abs() < 1e-12, "{name} {key}");
                }
            }
        }
    }

    #[test]
    fn the_second_difference_has_its_closed_form() {
        for n in [1, 2, 3, 10, 57] {
            let found = check(&vec![2.0; n], &vec![-1.0; n - 1]);
            for (k, value) in found.values.iter().enumerate() {
                let angle = std::f64::consts::PI * (k + 1) as f64 / (2 * (n + 1)) as f64;
                assert!((value - 4.0 * angle.sin().powi(2)).abs() < 1e-14);
            }
        }
    }

    #[test]
    fn sizes_of_none_and_one_are_matrices_too() {
        let nothing = Eigen {
            values: Vec::new(),
            vectors: Vec::new(),
        };
        for rows in [Rows::First, Rows::Last, Rows::All] {
            assert_eq!(tridiagonal(&[], &[], rows).unwrap(), nothing);
            assert_eq!(symmetric(&[], rows).unwrap(), nothing);
            let one = Eigen {
                values: vec![-3.5],
                vectors: vec![vec![1.0]],
            };
            assert_eq!(tridiagonal(&[-3.5], &[], rows).unwrap(), one);
            assert_eq!(symmetric(&[vec![-3.5]], rows).unwrap(), one);
        }
    }

    #[test]
    fn zeros_beside_the_diagonal_leave_it_as_it_is() {
        let found = check(&[3.0, -1.0, 3.0, 0.0], &[0.0; 3]);
        assert_eq!(found.values, [-1.0, 0.0, 3.0, 3.0]);
        assert_eq!(check(&[0.0; 5], &[0.0; 4]).values, [0.0; 5]);
        for (value, sign) in check(&[0.0; 2], &[1e-160]).values.iter().zip([-1.0, 1.0]) {
            assert!((value / 1e-160 - sign).abs() < 1e-15);
        }
    }

    #[test]
    fn extreme_scales_neither_overflow_nor_vanish() {
        for scale in [1e-310, 1e-160, 1e160, 1e307] {
            let found = tridiagonal(&[2.0 * scale, 2.0 * scale], &[scale], Rows::All).unwrap();
            for (value, expected) in found.values.iter().zip([1.0, 3.0]) {
                assert!((value / scale - expected).abs() < 1e-12, "{scale:e}");
            }
            let full = symmetric(
                &[
                    vec![0.0],
                    vec![0.0, 0.0],
                    vec![3.0 * scale, 4.0 * scale, 0.0],
                ],
                Rows::All,
            );
            for (value, expected) in full.unwrap().values.iter().zip([-5.0, 0.0, 5.0]) {
                assert!((value / scale - expected).abs() < 1e-12, "{scale:e}");
            }
        }
    }

    #[test]
    fn small_eigenvalues_of_graded_matrices_keep_their_digits() {
        // det = a b - c^2 with c^2 << a b: the eigenvalues are a and b to the last digits.
        for flip in [false, true] {
            let mut diagonal = vec![1.0, 1e-8, 1e-16, 1e-24];
            let mut beside = vec![1e-9, 1e-17, 1e-25];
            if flip {
                diagonal.reverse();
                beside.reverse();
            }
            let found = tridiagonal(&diagonal, &beside, Rows::First).unwrap();
            // Second order perturbation theory, beside[i]^2 / gap.
            let expected = [1e-24 - 1e-34, 1e-16 - 1e-26, 1e-8 - 1e-18, 1.0];
            for (value, expected) in found.values.iter().zip(expected) {
                assert!(
                    (value / expected - 1.0).abs() < 1e-12,
                    "{value:e} {expected:e}"
                );
            }
        }
    }

    #[test]
    fn full_matrices_have_true_eigenpairs() {
        let wave = |i: usize, j: usize| ((i * j + i + j) as f64).sin();
        let low_rank = |i: usize, j: usize| 3.0 * ((i + 1) * (j + 1)) as f64;
        let identity = |i: usize, j: usize| f64::from(u8::from(i == j));
        let cases: [&dyn Fn(usize, usize) -> f64; 3] = [&wave, &low_rank, &identity];
        for n in [2, 3, 25] {
            for matrix in cases {
                let lower: Vec<Vec<f64>> = (0..n)
                    .map(|i| (0..=i).map(|j| matrix(i, j)).collect())
                    .collect();
                let found = symmetric(&lower, Rows::All).unwrap();
                let scale = largest(&found.values);
                let (residual, skew) = faults(&matrix, &found);
                assert!(residual < 1e-14 * scale * n as f64 && skew < 1e-13);
                assert!(found.values.is_sorted());
                let last = symmetric(&lower, Rows::Last).unwrap();
                assert_eq!(last.values, found.values);
                for (one, all) in last.vectors.iter().zip(&found.vectors) {
                    assert_eq!(one.as_slice(), &all[n - 1..]);
                }
            }
        }
    }

    #[test]
    fn what_is_not_finite_has_no_eigenvalues() {
        assert_eq!(tridiagonal(&[f64::NAN], &[], Rows::All), None);
        assert_eq!(
            tridiagonal(&[1.0, 2.0], &[f64::INFINITY], Rows::First),
            None
        );
        assert_eq!(
            symmetric(&[vec![1.0], vec![f64::NAN, 1.0]], Rows::Last),
            None
        );
    }
}
