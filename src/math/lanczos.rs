//! Eigenvalues at both ends of the spectrum of a symmetric matrix, from products with it.
//!
//! Lanczos's method with thick restarts (Wu and Simon 2000): the matrix is projected on a basis V of
//! at most `max_basis` orthonormal vectors that grows by one product a step; when it is full, it
//! shrinks to the Ritz vectors nearest to the wanted ends. What makes it hold:
//!
//! - Every new vector is orthogonalized against the whole basis, twice (Giraud et al. 2005: twice
//!   is enough), so no eigenvalue appears more often than the matrix has it.
//! - Where the Krylov space ends, as it does for a matrix of low rank after rank + 1 steps, the
//!   search goes on with a fresh random vector orthogonal to the basis. When the basis spans the
//!   whole space, the result is complete.
//! - One start never sees two copies of one eigenvalue, but for rounding: all that Lanczos's method
//!   knows is the projection of its start on each eigenspace. So when all wanted pairs have converged, the search
//!   goes on from a fresh random vector orthogonal to them, until that finds nothing that belongs
//!   among them (see [`EigenSearch::recheck`]).
//! - While searching, the residual of a Ritz pair is read off the projection, beta |s_m| (Parlett
//!   1998, section 13.2). In the end each pair's residual |A v - lambda v| is computed, and `converged`
//!   goes by that. A v takes one more product: products by differences are linear up to their error
//!   only, which the projection does not see. Where products add up, and those with the basis have
//!   fitted beside it, A v is the sum of them.
//!
//! Some eigenvalue lies within the residual r of each value; the value's error is of the order of
//! r^2 divided by its distance to the others.

use std::mem;
use std::ops::Range;

use crate::math::operator::{Draw, SymmetricOperator, add_scaled, dot, norm};
use crate::math::tridiagonal::{Eigen, Rows, symmetric};

/// Which eigenpairs to look for, and how long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EigenSearch {
    /// Number of eigenvalues from the top, the largest first.
    pub largest: usize,
    /// Number of eigenvalues from the bottom, the smallest (most negative) first.
    pub smallest: usize,
    /// Converged when |A v - lambda v| is at most this share of |lambda|; for eigenvalues of less than
    /// a thousandth of the largest magnitude, of that thousandth.
    pub tolerance: f64,
    /// Most products, those for the final residuals among them.
    pub max_products: usize,
    /// Most vectors of the basis; raised to `largest + smallest + 8` where it is less. The search
    /// holds two vectors more.
    pub max_basis: usize,
    /// Whether to look a second time for further copies of eigenvalues, where more than one is
    /// wanted at an end. Costs about 20 products where the wanted eigenvalues stand apart from the
    /// others, and up to as many as the search itself where they do not.
    pub recheck: bool,
    /// Whether to return the basis too.
    pub keep: bool,
}

impl Default for EigenSearch {
    /// 20 from each end to 1e-4, at most 1000 products, 120 vectors, with the second look.
    fn default() -> Self {
        Self {
            largest: 20,
            smallest: 20,
            tolerance: 1e-4,
            max_products: 1000,
            max_basis: 120,
            recheck: true,
            keep: false,
        }
    }
}

/// An eigenvalue with its eigenvector and what is known of the error.
#[derive(Debug, Clone, PartialEq)]
pub struct EigenPair {
    /// The Rayleigh quotient v'Av.
    pub value: f64,
    /// v, of length 1.
    pub vector: Vec<f64>,
    /// |A v - value v|, computed. `NaN` if a product was not finite.
    pub residual: f64,
    /// Whether the residual is within the tolerance.
    pub converged: bool,
}

/// Eigenpairs of both ends of the spectrum.
#[derive(Debug, Clone, PartialEq)]
pub struct EigenPairs {
    /// From the largest downwards; n of them where more are asked for.
    pub largest: Vec<EigenPair>,
    /// From the smallest upwards; n of them where more are asked for. Where the ends overlap, pairs
    /// are in both.
    pub smallest: Vec<EigenPair>,
    /// Products made.
    pub products: usize,
    /// Whether all pairs asked for are here and have converged.
    pub converged: bool,
    /// Whether eigenvalues stand here as often as the matrix has them: the basis spans the whole
    /// space, or a second random start found no further copy, or none could move the list (one
    /// eigenvalue at an end). If not, the pairs are true but some may be missing between them.
    pub complete: bool,
    /// The basis at the end, where [`EigenSearch::keep`] asks for it.
    pub space: Option<Space>,
}

/// An orthonormal basis V of a Krylov space of A, or of what restarts have left of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Space {
    /// V.
    pub vectors: Vec<Vec<f64>>,
    /// tr(V'AV).
    pub trace: f64,
    /// The unit vector that the space grows by next; empty if it is the whole space.
    pub next: Vec<f64>,
}

/// Eigenpairs at both ends of the spectrum. `draw` fills random vectors, best standard normal.
///
/// Each pair that comes back has its residual; where `max_products` is too small for that, fewer
/// pairs come back. A product that is not finite ends the search: the pairs found so far come back
/// without residuals, not converged.
///
/// # Errors
/// Those of the products.
pub fn eigenpairs<O: SymmetricOperator>(
    matrix: &mut O,
    search: &EigenSearch,
    draw: &mut Draw,
) -> Result<EigenPairs, O::Error> {
    let n = matrix.dimension();
    let wanted = Wanted::Ends {
        largest: search.largest,
        smallest: search.smallest,
    };
    let mut found = find(matrix, &wanted, search, draw)?;
    let pairs = &mut found.pairs;
    let all = pairs.len() >= wanted.count(n) && pairs.iter().all(|pair| pair.converged);
    let smallest = pairs[..search.smallest.min(pairs.len())].to_vec();
    pairs.drain(..pairs.len().saturating_sub(search.largest));
    pairs.reverse();
    Ok(EigenPairs {
        largest: found.pairs,
        smallest,
        products: found.products,
        converged: all,
        complete: found.complete,
        space: found.space,
    })
}

/// How to look for the eigenvalue of largest magnitude.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TopSearch {
    /// Converged when |A v - lambda v| is at most this share of |lambda|.
    pub tolerance: f64,
    /// Most products, at least 2: the last one checks the result.
    pub max_products: usize,
    /// Most vectors of the basis, at least 9.
    pub max_basis: usize,
}

impl Default for TopSearch {
    /// To 1e-3, at most 100 products, 32 vectors.
    fn default() -> Self {
        Self {
            tolerance: 1e-3,
            max_products: 100,
            max_basis: 32,
        }
    }
}

/// The eigenvalue of largest magnitude, with what is known of its error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TopEigenvalue {
    /// The Rayleigh quotient v'Av, with its sign; 0 for n = 0. `NaN` if a product was not finite.
    pub value: f64,
    /// |A v - value v|, computed. Some eigenvalue lies within this of `value`.
    pub residual: f64,
    /// Products made.
    pub products: usize,
    /// Whether the residual is within the tolerance, and the other end of the spectrum cannot hide
    /// a larger magnitude by its own residual.
    pub converged: bool,
}

/// The eigenvalue of largest magnitude, from either end.
///
/// # Errors
/// Those of the products.
pub fn top_eigenvalue<O: SymmetricOperator>(
    matrix: &mut O,
    search: &TopSearch,
    draw: &mut Draw,
) -> Result<TopEigenvalue, O::Error> {
    let limits = EigenSearch {
        tolerance: search.tolerance,
        max_products: search.max_products.max(2),
        max_basis: search.max_basis,
        ..EigenSearch::default()
    };
    let n = matrix.dimension();
    let found = find(matrix, &Wanted::Magnitude, &limits, draw)?;
    let top = found.pairs.first();
    let missing = if n == 0 { 0.0 } else { f64::NAN };
    let residual = top.map_or(missing, |top| top.residual);
    Ok(TopEigenvalue {
        value: top.map_or(missing, |top| {
            if residual.is_nan() {
                residual
            } else {
                top.value
            }
        }),
        residual,
        products: found.products,
        converged: top.map_or(n == 0, |top| top.converged && found.settled),
    })
}

/// Which Ritz pairs are wanted.
enum Wanted {
    /// So many from the ends.
    Ends { largest: usize, smallest: usize },
    /// The one of largest magnitude.
    Magnitude,
}

impl Wanted {
    /// How many of `size` pairs are wanted.
    fn count(&self, size: usize) -> usize {
        match self {
            Self::Ends { largest, smallest } => largest.saturating_add(*smallest).min(size),
            Self::Magnitude => size.min(1),
        }
    }

    /// Their places among ascending values.
    fn places(&self, values: &[f64]) -> Vec<usize> {
        let size = values.len();
        match self {
            Self::Ends { largest, smallest } => (0..size)
                .filter(|i| i < smallest || size - i <= *largest)
                .collect(),
            Self::Magnitude if size == 0 => Vec::new(),
            Self::Magnitude if values[0].abs() > values[size - 1].abs() => vec![0],
            Self::Magnitude => vec![size - 1],
        }
    }

    fn values(&self, values: &[f64]) -> Vec<f64> {
        self.places(values).iter().map(|&i| values[i]).collect()
    }

    /// The places of `count` pairs to keep, those nearest to the wanted ends.
    fn nearest(&self, values: &[f64], count: usize) -> Vec<usize> {
        let size = values.len();
        let (largest, smallest) = match self {
            Self::Ends { largest, smallest } => (*largest, *smallest),
            Self::Magnitude => (1, 1),
        };
        let extra = count.saturating_sub(largest + smallest);
        let below = smallest + extra * smallest / (largest + smallest).max(1);
        let above = count.saturating_sub(below);
        (0..size)
            .filter(|&i| i < below || size - i <= above)
            .collect()
    }

    /// Whether all wanted pairs of an n x n matrix are there, with residuals within `tolerance`.
    fn settled(&self, n: usize, ritz: &Ritz, tolerance: f64) -> bool {
        let values = &ritz.values;
        if values.is_empty() || values.len() < self.count(n) {
            return false;
        }
        let places = self.places(values);
        let scale = ritz.scale();
        let within = |i: usize| ritz.estimates[i] <= tolerance * reference(ritz.values[i], scale);
        if !places.iter().all(|&i| within(i)) {
            return false;
        }
        match self {
            Self::Ends { .. } => true,
            Self::Magnitude => {
                let other = values.len() - 1 - places[0];
                let reach = values[other].abs() + ritz.estimates[other];
                within(other) || reach <= values[places[0]].abs()
            }
        }
    }

    /// Whether a further copy of a wanted eigenvalue would move the others.
    fn counts_copies(&self) -> bool {
        match self {
            Self::Ends { largest, smallest } => *largest > 1 || *smallest > 1,
            Self::Magnitude => false,
        }
    }
}

/// Eigenvalues below this share of the largest magnitude belong to the bulk at zero: their residuals
/// are measured against this share of it.
const BULK: f64 = 1e-3;

/// What the residual of an eigenvalue is measured against: its own magnitude, or that of the edge of
/// the bulk.
fn reference(value: f64, scale: f64) -> f64 {
    value.abs().max(BULK * scale)
}

/// Ritz values, ascending, with the estimates of their residuals.
struct Ritz {
    values: Vec<f64>,
    estimates: Vec<f64>,
}

impl Ritz {
    fn scale(&self) -> f64 {
        self.values.iter().fold(0.0, |m: f64, x| m.max(x.abs()))
    }
}

/// A second start, orthogonal to the pairs found before it.
struct Look {
    /// The wanted values when it began.
    before: Vec<f64>,
    /// Steps since then and before a restart.
    steps: usize,
    restarted: bool,
}

/// Chance that a second look may miss what it looks for.
const MISS: f64 = 1e-6;

impl Look {
    /// Whether this look has seen enough of both ends of what is orthogonal to the wanted pairs:
    /// the next pair has converged too; or it lies so far behind the last wanted one that, if a
    /// copy were still hidden, Lanczos's method would have come closer to it after so many steps
    /// from a random start but for a chance of 1e-6 (Kuczynski and Wozniakowski 1992: the relative
    /// error (lambda - theta)/(lambda - lambda_min) exceeds x with probability of at most
    /// 1.648 sqrt(n) exp(-sqrt(x) (2 steps - 1))).
    fn is_clear(&self, n: usize, wanted: &Wanted, ritz: &Ritz, bound: f64) -> bool {
        let Wanted::Ends { largest, smallest } = *wanted else {
            return true;
        };
        let values = &ritz.values;
        let size = values.len();
        if size <= largest + smallest {
            return false;
        }
        let far = |last: usize, next: usize, end: usize| {
            let spread = (values[last] - values[end]).abs() + ritz.estimates[end];
            let share = (values[last] - values[next]).abs() / spread;
            let power = share.max(0.0).sqrt() * (2 * self.steps).saturating_sub(1) as f64;
            1.648 * (n as f64).sqrt() * (-power).exp() <= MISS
        };
        let clear = |next: usize, last: usize, end: usize| {
            ritz.estimates[next] <= bound || far(last, next, end)
        };
        (largest < 2 || clear(size - 1 - largest, size - largest, 0))
            && (smallest < 2 || clear(smallest, smallest - 1, size - 1))
    }

    /// Whether a value moved by more than the tolerance.
    fn has_found(&self, values: &[f64], bound: f64) -> bool {
        let mut moves = values.iter().zip(&self.before);
        moves.any(|(now, before)| (now - before).abs() > bound)
    }
}

struct Found {
    /// Ascending.
    pairs: Vec<EigenPair>,
    products: usize,
    settled: bool,
    complete: bool,
    space: Option<Space>,
}

/// Share of the tolerance at which the residuals that the projection shows are small enough: those that
/// are computed in the end are a little larger at times.
const MARGIN: f64 = 0.9;

fn find<O: SymmetricOperator>(
    matrix: &mut O,
    wanted: &Wanted,
    search: &EigenSearch,
    draw: &mut Draw,
) -> Result<Found, O::Error> {
    let n = matrix.dimension();
    let count = wanted.count(n);
    let mut found = Found {
        pairs: Vec::new(),
        products: 0,
        settled: false,
        complete: count == 0 || !wanted.counts_copies(),
        space: None,
    };
    if count == 0 {
        return Ok(found);
    }
    let max_basis = search.max_basis.max(count + 8);
    let mut basis = Basis::new(n, draw);
    if matrix.adds_up(search.tolerance) {
        basis.images = Some(Vec::new());
        basis.most_images = (max_basis / 2).saturating_sub(count);
    }
    let mut look: Option<Look> = None;
    let looks_again = search.recheck && wanted.counts_copies();
    // A second start drops the remainder of the first.
    let share = if looks_again { 0.5 } else { MARGIN };
    let mut finite = true;
    while found.products + 1 + wanted.count(basis.len() + 1) <= search.max_products {
        if basis.len() >= max_basis {
            let keep = count + (max_basis - count) / 2;
            basis.shrink(|values| wanted.nearest(values, keep));
            if let Some(look) = &mut look {
                look.restarted = true;
            }
        }
        finite = basis.extend(matrix, draw)?;
        found.products += 1;
        let size = basis.len();
        if !finite || size == n {
            break;
        }
        if let Some(look) = look.as_mut().filter(|look| !look.restarted) {
            look.steps += 1;
        }
        // Each solution of the projection is O(size^3).
        if size < max_basis && !size.is_multiple_of((size / 32).max(1)) {
            continue;
        }
        let ritz = basis.ritz();
        let bound = share * search.tolerance * ritz.scale();
        if !wanted.settled(n, &ritz, share * search.tolerance) {
            continue;
        }
        if !looks_again {
            break;
        }
        let values = wanted.values(&ritz.values);
        if let Some(look) = &look {
            if !look.is_clear(n, wanted, &ritz, bound) {
                continue;
            }
            if !look.has_found(&values, 2.0 * bound) {
                found.complete = true;
                break;
            }
        }
        basis.shrink(|values| wanted.places(values));
        basis.start_again(draw);
        look = Some(Look {
            before: values,
            steps: 0,
            restarted: false,
        });
    }
    let exhausted = basis.len() == n;
    let ritz = basis.ritz();
    let scale = ritz.scale();
    found.settled = exhausted || wanted.settled(n, &ritz, search.tolerance);
    found.complete |= exhausted;
    let mut images = Vec::new();
    (found.pairs, found.space) = if search.keep || basis.images.is_some() {
        let pairs;
        (pairs, images) = basis.pairs(|values| wanted.places(values));
        let keep = search.keep && finite;
        (pairs, keep.then(|| basis.into_space()))
    } else {
        (basis.into_pairs(|values| wanted.places(values)), None)
    };
    let mut images = images.into_iter();
    let mut image = vec![0.0; n];
    for pair in &mut found.pairs {
        if !finite {
            break;
        }
        let share = search.tolerance * (reference(pair.value, scale) / scale);
        match images.next() {
            Some(sum) if matrix.adds_up(share) => image = sum,
            _ => {
                matrix.apply_for_residual(&pair.vector, &mut image, share)?;
                found.products += 1;
            }
        }
        let value = dot(&pair.vector, &image);
        add_scaled(&mut image, -value, &pair.vector);
        let residual = norm(&image);
        finite = residual.is_finite();
        if finite {
            pair.value = value;
            pair.residual = residual;
            pair.converged = residual <= search.tolerance * reference(value, scale);
        }
    }
    found.pairs.sort_by(|a, b| a.value.total_cmp(&b.value));
    found.complete &= finite;
    Ok(found)
}

/// A remainder this small against the products seen is rounding: the Krylov space has ended.
const BREAKDOWN: f64 = 1e-13;

/// Whether the remainder of an orthogonalization is nothing but rounding, against the norm `scale`
/// of the largest product seen.
pub(super) fn is_rounding(remainder: f64, scale: f64) -> bool {
    remainder <= BREAKDOWN * scale
}

/// Orthonormal vectors V, the projection V'AV, and the vector to take in next.
struct Basis {
    n: usize,
    vectors: Vec<Vec<f64>>,
    /// Lower triangle of V'AV, row by row.
    projection: Vec<Vec<f64>>,
    /// Unit vector orthogonal to V; empty when V spans the space.
    next: Vec<f64>,
    /// Norm of the remainder that `next` points along: A V = V (V'AV) + coupling next e_last'. 0 if
    /// `next` is a fresh vector.
    coupling: f64,
    /// Norm of the largest product.
    scale: f64,
    /// A V, as long as it is wanted and fits.
    images: Option<Vec<Vec<f64>>>,
    most_images: usize,
}

impl Basis {
    fn new(n: usize, draw: &mut Draw) -> Self {
        Self {
            n,
            vectors: Vec::new(),
            projection: Vec::new(),
            next: fresh(&[], n, draw),
            coupling: 0.0,
            scale: 0.0,
            images: None,
            most_images: 0,
        }
    }

    fn len(&self) -> usize {
        self.vectors.len()
    }

    /// Takes in the next vector with one product. False, with nothing taken in, if that is not
    /// finite.
    fn extend<O: SymmetricOperator>(
        &mut self,
        matrix: &mut O,
        draw: &mut Draw,
    ) -> Result<bool, O::Error> {
        let mut image = vec![0.0; self.n];
        matrix.apply(&self.next, &mut image)?;
        let length = norm(&image);
        if !length.is_finite() {
            return Ok(false);
        }
        self.scale = self.scale.max(length);
        self.images = self
            .images
            .take()
            .filter(|images| images.len() < self.most_images)
            .map(|mut images| {
                images.push(image.clone());
                images
            });
        self.vectors.push(mem::take(&mut self.next));
        self.projection
            .push(orthogonalize(&self.vectors, &mut image));
        self.coupling = norm(&image);
        if is_rounding(self.coupling, self.scale) || self.len() == self.n {
            self.start_again(draw);
        } else {
            for x in &mut image {
                *x /= self.coupling;
            }
            self.next = image;
        }
        Ok(true)
    }

    /// Goes on from a fresh random vector.
    fn start_again(&mut self, draw: &mut Draw) {
        self.coupling = 0.0;
        self.next = fresh(&self.vectors, self.n, draw);
    }

    fn ritz(&self) -> Ritz {
        let Eigen { values, vectors } = self.solve(Rows::Last);
        let estimates = vectors.iter().map(|s| self.coupling * s[0].abs()).collect();
        Ritz { values, estimates }
    }

    /// The eigenproblem of the projection, which holds inner products of unit vectors with finite
    /// ones. None but an overflow of such products could leave it without a solution: no values.
    fn solve(&self, rows: Rows) -> Eigen {
        symmetric(&self.projection, rows).unwrap_or_default()
    }

    /// Keeps the Ritz vectors at the places that `choose` picks among the ascending Ritz values,
    /// and returns their values.
    fn shrink(&mut self, choose: impl FnOnce(&[f64]) -> Vec<usize>) -> Vec<f64> {
        let eigen = self.solve(Rows::All);
        let places = choose(&eigen.values);
        let mut part = vec![vec![0.0; CHUNK]; places.len()];
        for rows in chunks(self.n) {
            for (sum, &place) in part.iter_mut().zip(&places) {
                combine(
                    &self.vectors,
                    &eigen.vectors[place],
                    &rows,
                    &mut sum[..rows.len()],
                );
            }
            for (vector, sum) in self.vectors.iter_mut().zip(&part) {
                vector[rows.clone()].copy_from_slice(&sum[..rows.len()]);
            }
        }
        self.vectors.truncate(places.len());
        self.images = None;
        let kept: Vec<f64> = places.iter().map(|&place| eigen.values[place]).collect();
        self.projection = (0..kept.len()).map(|i| vec![0.0; i]).collect();
        for (row, &value) in self.projection.iter_mut().zip(&kept) {
            row.push(value);
        }
        kept
    }

    /// The Ritz pairs at the places that `choose` picks, ascending, without residuals.
    fn into_pairs(mut self, choose: impl FnOnce(&[f64]) -> Vec<usize>) -> Vec<EigenPair> {
        let values = self.shrink(choose);
        let vectors = self.vectors.into_iter().zip(values);
        vectors
            .map(|(vector, value)| unchecked(vector, value))
            .collect()
    }

    /// [`Basis::into_pairs`], and the basis stays. With A times their vectors, where A V is held.
    fn pairs(&self, choose: impl FnOnce(&[f64]) -> Vec<usize>) -> (Vec<EigenPair>, Vec<Vec<f64>>) {
        let eigen = self.solve(Rows::All);
        let sum = |of: &[Vec<f64>], weights: &[f64]| {
            let mut sum = vec![0.0; self.n];
            for rows in chunks(self.n) {
                combine(of, weights, &rows, &mut sum[rows.clone()]);
            }
            sum
        };
        let (mut pairs, mut images) = (Vec::new(), Vec::new());
        for place in choose(&eigen.values) {
            let mut weights = eigen.vectors[place].clone();
            let length = norm(&weights);
            for weight in &mut weights {
                *weight /= length;
            }
            pairs.push(unchecked(sum(&self.vectors, &weights), eigen.values[place]));
            images.extend(self.images.iter().map(|images| sum(images, &weights)));
        }
        (pairs, images)
    }

    fn into_space(self) -> Space {
        let diagonal = self.projection.iter().filter_map(|row| row.last());
        Space {
            trace: diagonal.sum(),
            vectors: self.vectors,
            next: self.next,
        }
    }
}

/// Rows of the sum of vectors, each by its weight.
fn combine(vectors: &[Vec<f64>], weights: &[f64], rows: &Range<usize>, sum: &mut [f64]) {
    sum.fill(0.0);
    for (vector, &weight) in vectors.iter().zip(weights) {
        add_scaled(sum, weight, &vector[rows.clone()]);
    }
}

/// A Ritz pair whose residual is yet to be computed.
fn unchecked(mut vector: Vec<f64>, value: f64) -> EigenPair {
    let length = norm(&vector);
    for x in &mut vector {
        *x /= length;
    }
    EigenPair {
        value,
        vector,
        residual: f64::NAN,
        converged: false,
    }
}

/// Rows worked on at a time, so that a part of the vector stays in the first-level cache while the
/// basis streams past. Fixed, so that sums round the same everywhere.
const CHUNK: usize = 1024;

fn chunks(n: usize) -> impl Iterator<Item = Range<usize>> {
    (0..n)
        .step_by(CHUNK)
        .map(move |start| start..n.min(start + CHUNK))
}

/// Makes w orthogonal to the orthonormal basis V by two passes of classical Gram-Schmidt, and
/// returns V'w of the w that came in.
pub(super) fn orthogonalize(basis: &[Vec<f64>], w: &mut [f64]) -> Vec<f64> {
    let mut first = vec![0.0; basis.len()];
    for rows in chunks(w.len()) {
        for (sum, v) in first.iter_mut().zip(basis) {
            *sum += dot(&v[rows.clone()], &w[rows.clone()]);
        }
    }
    let mut second = vec![0.0; basis.len()];
    for rows in chunks(w.len()) {
        let part = &mut w[rows.clone()];
        for (&c, v) in first.iter().zip(basis) {
            add_scaled(part, -c, &v[rows.clone()]);
        }
        for (sum, v) in second.iter_mut().zip(basis) {
            *sum += dot(&v[rows.clone()], part);
        }
    }
    for rows in chunks(w.len()) {
        for (&c, v) in second.iter().zip(basis) {
            add_scaled(&mut w[rows.clone()], -c, &v[rows.clone()]);
        }
    }
    add_scaled(&mut first, 1.0, &second);
    first
}

/// Makes each of some vectors orthogonal to the orthonormal basis by one pass of classical Gram-Schmidt:
/// up to rounding for vectors that do not nearly lie in its space. The basis streams past once for all.
pub(super) fn project_out(basis: &[Vec<f64>], vectors: &mut [Vec<f64>]) {
    let n = vectors.first().map_or(0, Vec::len);
    let mut sums = vec![vec![0.0; vectors.len()]; basis.len()];
    for rows in chunks(n) {
        for (sums, v) in sums.iter_mut().zip(basis) {
            for (sum, w) in sums.iter_mut().zip(&*vectors) {
                *sum += dot(&v[rows.clone()], &w[rows.clone()]);
            }
        }
    }
    for rows in chunks(n) {
        for (sums, v) in sums.iter().zip(basis) {
            for (&sum, w) in sums.iter().zip(&mut *vectors) {
                add_scaled(&mut w[rows.clone()], -sum, &v[rows.clone()]);
            }
        }
    }
}

/// A random unit vector orthogonal to the orthonormal basis; empty if that spans the space.
pub(super) fn fresh(basis: &[Vec<f64>], n: usize, draw: &mut Draw) -> Vec<f64> {
    if basis.len() >= n {
        return Vec::new();
    }
    let mut vector = vec![0.0; n];
    draw(&mut vector);
    if !normalize_against(basis, &mut vector) {
        // Nothing of the random vector was left, as may be with +-1 in few dimensions. The unit
        // vector farthest from the basis has at least sqrt((n - m)/n) left.
        let left = |i: usize| 1.0 - basis.iter().map(|v| v[i] * v[i]).sum::<f64>();
        let farthest = (0..n).max_by(|&i, &j| left(i).total_cmp(&left(j)));
        vector.fill(0.0);
        vector[farthest.unwrap_or(0)] = 1.0;
        normalize_against(basis, &mut vector);
    }
    vector
}

/// Makes the vector a unit vector orthogonal to the basis. False if (almost) nothing is left.
fn normalize_against(basis: &[Vec<f64>], vector: &mut [f64]) -> bool {
    let before = norm(vector);
    orthogonalize(basis, vector);
    let mut after = norm(vector);
    let enough = after > 1e-6 * before && after.is_finite();
    // A small rest is less orthogonal than a large one.
    orthogonalize(basis, vector);
    after = norm(vector);
    for x in vector.iter_mut() {
        *x /= after;
    }
    enough
}

/// Matrices and random numbers of the tests of this room.
#[cfg(test)]
pub(super) mod examples {
    use std::convert::Infallible;

    use crate::math::operator::{SymmetricOperator, add_scaled, dot, norm};

    /// The output function of splitmix64 (Steele, Lea and Flood 2014).
    fn mixed(x: u64) -> u64 {
        let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// Random numbers for tests; math may not import the crate's own.
    pub(in crate::math) struct Random(u64);

    impl Random {
        pub(in crate::math) fn new(seed: u64) -> Self {
            Self(mixed(mixed(seed)))
        }

        fn bits(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            mixed(self.0)
        }

        pub(in crate::math) fn uniform(&mut self) -> f64 {
            (self.bits() >> 11) as f64 * 0.5_f64.powi(53)
        }

        pub(in crate::math) fn normal(&mut self, vector: &mut [f64]) {
            for x in vector {
                let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
                *x = radius * (2.0 * std::f64::consts::PI * self.uniform()).cos();
            }
        }

        pub(in crate::math) fn signs(&mut self, vector: &mut [f64]) {
            for x in vector {
                *x = if self.bits() >> 63 == 0 { 1.0 } else { -1.0 };
            }
        }
    }

    /// H D H with a diagonal D of known eigenvalues and a reflection H = 1 - 2uu' that fills the
    /// matrix. Counts its products.
    pub(in crate::math) struct Known {
        pub(in crate::math) values: Vec<f64>,
        mirror: Vec<f64>,
        pub(in crate::math) products: usize,
    }

    impl Known {
        pub(in crate::math) fn new(values: &[f64], seed: u64) -> Self {
            let mut mirror = vec![0.0; values.len()];
            Random::new(seed).normal(&mut mirror);
            let length = norm(&mirror);
            for x in &mut mirror {
                *x /= length;
            }
            Self {
                values: values.to_vec(),
                mirror,
                products: 0,
            }
        }

        pub(in crate::math) fn trace(&self) -> f64 {
            self.values.iter().sum()
        }

        fn reflect(&self, v: &mut [f64]) {
            let inner = dot(&self.mirror, v);
            add_scaled(v, -2.0 * inner, &self.mirror);
        }
    }

    impl SymmetricOperator for Known {
        type Error = Infallible;

        fn dimension(&self) -> usize {
            self.values.len()
        }

        fn apply(&mut self, v: &[f64], product: &mut [f64]) -> Result<(), Infallible> {
            self.products += 1;
            product.copy_from_slice(v);
            self.reflect(product);
            for (x, value) in product.iter_mut().zip(&self.values) {
                *x *= value;
            }
            self.reflect(product);
            Ok(())
        }
    }

    /// A full matrix, row by row.
    pub(in crate::math) struct Full(pub(in crate::math) Vec<Vec<f64>>);

    impl Full {
        /// The random matrix of tests/reference/spectral.py.
        pub(in crate::math) fn random(n: usize) -> Self {
            let entry = |i: usize, j: usize| {
                let key = (i.max(j) as u64) << 32 | i.min(j) as u64;
                (mixed(key) >> 11) as f64 * 0.5_f64.powi(53) - 0.5
            };
            Self(
                (0..n)
                    .map(|i| (0..n).map(|j| entry(i, j)).collect())
                    .collect(),
            )
        }
    }

    impl SymmetricOperator for Full {
        type Error = Infallible;

        fn dimension(&self) -> usize {
            self.0.len()
        }

        fn apply(&mut self, v: &[f64], product: &mut [f64]) -> Result<(), Infallible> {
            for (x, row) in product.iter_mut().zip(&self.0) {
                *x = dot(row, v);
            }
            Ok(())
        }
    }

    pub(in crate::math) fn reference() -> serde_json::Value {
        serde_json::from_str(include_str!("../../tests/reference/spectral.json")).unwrap()
    }

    pub(in crate::math) fn floats(value: &serde_json::Value) -> Vec<f64> {
        let values = value.as_array().unwrap();
        values.iter().map(|v| v.as_f64().unwrap()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::examples::{Full, Known, Random, floats, reference};
    use super::*;
    use crate::math::operator::Operator;

    const TIGHT: EigenSearch = EigenSearch {
        largest: 5,
        smallest: 5,
        tolerance: 1e-10,
        max_products: 2000,
        max_basis: 60,
        recheck: true,
        keep: false,
    };

    fn values(pairs: &[EigenPair]) -> Vec<f64> {
        pairs.iter().map(|pair| pair.value).collect()
    }

    fn same(found: &[f64], expected: &[f64], tolerance: f64) {
        assert_eq!(found.len(), expected.len(), "{found:?} {expected:?}");
        for (x, y) in found.iter().zip(expected) {
            assert!((x - y).abs() <= tolerance, "{found:?} {expected:?}");
        }
    }

    /// Searches and checks all that must hold of any result: residuals, lengths, angles, order,
    /// counts.
    fn look<O: SymmetricOperator>(matrix: &mut O, search: &EigenSearch, seed: u64) -> EigenPairs
    where
        O::Error: std::fmt::Debug,
    {
        let mut random = Random::new(seed);
        let found = eigenpairs(matrix, search, &mut |v| random.normal(v)).unwrap();
        assert!(found.products <= search.max_products);
        let n = matrix.dimension();
        let scale = found.largest.iter().chain(&found.smallest);
        let scale = scale.fold(0.0_f64, |m, pair| m.max(pair.value.abs()));
        let mut image = vec![0.0; n];
        for pairs in [&found.largest, &found.smallest] {
            for (i, pair) in pairs.iter().enumerate() {
                assert!((norm(&pair.vector) - 1.0).abs() < 1e-13);
                matrix.apply(&pair.vector, &mut image).unwrap();
                add_scaled(&mut image, -pair.value, &pair.vector);
                assert!((norm(&image) - pair.residual).abs() <= 1e-14 * scale);
                for other in &pairs[..i] {
                    assert!(dot(&pair.vector, &other.vector).abs() < 1e-12);
                }
            }
        }
        assert!(
            found
                .largest
                .iter()
                .rev()
                .is_sorted_by_key(|pair| pair.value)
        );
        assert!(found.smallest.iter().is_sorted_by_key(|pair| pair.value));
        found
    }

    /// Searches and compares with all eigenvalues.
    fn check(eigenvalues: &[f64], search: &EigenSearch, seed: u64) -> EigenPairs {
        let mut matrix = Known::new(eigenvalues, seed);
        let mut random = Random::new(seed + 1);
        let counted = eigenpairs(&mut matrix, search, &mut |v| random.normal(v)).unwrap();
        assert_eq!(counted.products, matrix.products);
        let found = look(&mut matrix, search, seed + 1);
        assert_eq!(counted, found);
        assert!(found.converged && found.complete, "{found:?}");
        let mut sorted = eigenvalues.to_vec();
        sorted.sort_by(f64::total_cmp);
        let scale = sorted.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
        let n = sorted.len();
        let tolerance = search.tolerance * scale;
        same(
            &values(&found.smallest),
            &sorted[..search.smallest.min(n)],
            tolerance,
        );
        sorted.reverse();
        same(
            &values(&found.largest),
            &sorted[..search.largest.min(n)],
            tolerance,
        );
        found
    }

    fn spread(n: usize, low: f64, high: f64) -> Vec<f64> {
        let mut random = Random::new(n as u64);
        (0..n)
            .map(|_| low + (high - low) * random.uniform())
            .collect()
    }

    #[test]
    fn both_ends_of_a_spectrum_are_found_through_restarts() {
        for seed in 0..2 {
            let wide = check(&spread(400, -1.0, 3.0), &TIGHT, seed);
            let narrow = EigenSearch {
                max_basis: 0,
                ..TIGHT
            };
            // 18 vectors are held then.
            let narrow = check(&spread(400, -1.0, 3.0), &narrow, seed);
            assert!(narrow.products > wide.products);
        }
        for (largest, smallest) in [(7, 0), (0, 7), (1, 0), (0, 1), (1, 1), (0, 0), (1, 9)] {
            let search = EigenSearch {
                largest,
                smallest,
                ..TIGHT
            };
            check(&spread(300, -4.0, 1.0), &search, 11);
        }
    }

    #[test]
    fn a_random_matrix_agrees_with_numpy() {
        let reference = &reference()["random"];
        let expected = floats(&reference["eigenvalues"]);
        let n = expected.len();
        let mut matrix = Full::random(n);
        let search = EigenSearch {
            largest: 10,
            smallest: 10,
            ..TIGHT
        };
        let found = look(&mut matrix, &search, 1);
        assert!(found.converged && found.complete);
        same(&values(&found.smallest), &expected[..10], 1e-11);
        let top: Vec<f64> = expected.iter().rev().take(10).copied().collect();
        same(&values(&found.largest), &top, 1e-11);
        // With room for it, the whole spectrum.
        let all = EigenSearch {
            largest: n,
            smallest: 3,
            max_basis: n,
            ..TIGHT
        };
        let mut found = look(&mut matrix, &all, 2);
        assert!(found.converged && found.complete);
        assert_eq!(found.products, 2 * n);
        found.largest.reverse();
        same(&values(&found.largest), &expected, 1e-12);
    }

    #[test]
    fn diagonal_rank_one_identity_and_zero_are_found_exactly() {
        let ramp: Vec<f64> = (0..50).map(f64::from).collect();
        check(&ramp, &TIGHT, 1);
        let mut one = vec![0.0; 300];
        one[7] = 4.0;
        let rank_one = check(&one, &TIGHT, 2);
        same(
            &values(&rank_one.largest),
            &[4.0, 0.0, 0.0, 0.0, 0.0],
            1e-13,
        );
        one[7] = -4.0;
        check(&one, &TIGHT, 3);
        check(&[1.0; 80], &TIGHT, 4);
        let zero = check(&[0.0; 80], &TIGHT, 5);
        assert_eq!(values(&zero.largest), [0.0; 5]);
        assert!(zero.largest.iter().all(|pair| pair.residual == 0.0));
    }

    #[test]
    fn more_pairs_than_the_matrix_has_are_all_it_has() {
        for n in [1, 2, 3, 6, 17] {
            for eigenvalues in [spread(n, -1.0, 1.0), vec![2.0; n], vec![0.0; n]] {
                let found = check(&eigenvalues, &EigenSearch::default(), n as u64);
                assert_eq!((found.largest.len(), found.smallest.len()), (n, n));
                assert_eq!(found.products, 2 * n);
            }
        }
        let found = check(&[-2.5], &TIGHT, 0);
        assert_eq!(values(&found.largest), [-2.5]);
        let nothing = check(&[], &TIGHT, 0);
        assert_eq!(nothing.products, 0);
    }

    #[test]
    fn low_rank_beyond_the_krylov_space_makes_no_ghosts() {
        for (rank, seed) in [(1, 1), (3, 2), (5, 3), (12, 4)] {
            let mut eigenvalues = vec![0.0; 500];
            for (i, value) in eigenvalues.iter_mut().take(rank).enumerate() {
                *value = if i % 3 == 2 { -1.0 } else { 1.0 } * (i + 1) as f64;
            }
            let search = EigenSearch {
                largest: 10,
                smallest: 10,
                ..TIGHT
            };
            check(&eigenvalues, &search, seed);
        }
    }

    #[test]
    fn repeated_eigenvalues_are_found_as_often_as_they_are_there() {
        let mut eigenvalues = spread(300, -1.0, 1.0);
        eigenvalues[..5].copy_from_slice(&[7.0, 7.0, 7.0, 5.0, 5.0]);
        eigenvalues[5..9].copy_from_slice(&[-3.0, -3.0, -2.0, -3.0]);
        for seed in 0..10 {
            let found = check(&eigenvalues, &TIGHT, seed);
            same(&values(&found.largest), &[7.0, 7.0, 7.0, 5.0, 5.0], 1e-9);
            // One start alone sees one copy, and says that it cannot tell.
            let once = EigenSearch {
                largest: 2,
                smallest: 2,
                recheck: false,
                tolerance: 1e-4,
                ..TIGHT
            };
            let found = look(&mut Known::new(&eigenvalues, seed), &once, seed);
            assert!(found.converged && !found.complete);
            same(&values(&found.largest), &[7.0, 5.0], 1e-4);
            same(&values(&found.smallest), &[-3.0, -2.0], 1e-4);
        }
        // Two eigenvalues in all.
        let two: Vec<f64> = (0..200).map(|i| f64::from(i % 2)).collect();
        check(&two, &TIGHT, 3);
        // Restarts come in between.
        let small = EigenSearch {
            max_basis: 18,
            ..TIGHT
        };
        check(&eigenvalues, &small, 4);
    }

    #[test]
    fn a_cluster_is_resolved_to_the_tolerance() {
        let mut eigenvalues = spread(250, 0.0, 0.5);
        for (i, value) in eigenvalues.iter_mut().take(6).enumerate() {
            *value = 1.0 - 1e-6 * i as f64;
        }
        for seed in 0..4 {
            check(&eigenvalues, &TIGHT, seed);
        }
    }

    #[test]
    fn the_second_look_is_cheap_where_the_wanted_stand_apart() {
        let mut eigenvalues = spread(2000, 0.0, 0.5);
        for (i, value) in eigenvalues.iter_mut().take(10).enumerate() {
            *value = (10 + i) as f64;
        }
        let search = EigenSearch {
            largest: 10,
            smallest: 0,
            tolerance: 1e-4,
            ..TIGHT
        };
        let with = check(&eigenvalues, &search, 6);
        let once = EigenSearch {
            recheck: false,
            ..search
        };
        let without = look(&mut Known::new(&eigenvalues, 6), &once, 7);
        assert!(without.products < with.products);
        assert!(with.products <= without.products + 20, "{}", with.products);
    }

    #[test]
    fn no_search_spends_more_than_its_products() {
        let eigenvalues = spread(100, -2.0, 1.0);
        for max_products in 0..60 {
            let search = EigenSearch {
                max_products,
                tolerance: 1e-6,
                ..TIGHT
            };
            let mut matrix = Known::new(&eigenvalues, 1);
            let mut random = Random::new(2);
            let found = eigenpairs(&mut matrix, &search, &mut |v| random.normal(v)).unwrap();
            assert!(matrix.products <= max_products);
            assert_eq!(found.products, matrix.products);
            assert!(!found.converged);
            assert!(found.largest.iter().all(|pair| pair.residual.is_finite()));
            assert_eq!(found.largest.len(), 5.min(max_products / 2));
        }
    }

    #[test]
    fn any_start_will_do() {
        // Signs alone, which repeat in few dimensions; always the same vector; zeros; not a number.
        for n in [1, 2, 3, 9] {
            let eigenvalues: Vec<f64> = (0..n).map(f64::from).collect();
            let draws: [&mut Draw; 4] = [
                &mut |v| Random::new(5).signs(v),
                &mut |v| v.fill(1.0),
                &mut |v| v.fill(0.0),
                &mut |v| v.fill(f64::NAN),
            ];
            for draw in draws {
                let mut matrix = Known::new(&eigenvalues, 8);
                let found = eigenpairs(&mut matrix, &TIGHT, draw).unwrap();
                assert!(found.converged && found.complete);
                let count = eigenvalues.len().min(5);
                same(&values(&found.smallest), &eigenvalues[..count], 1e-12);
            }
        }
    }

    /// Products add up.
    struct Linear(Known);

    impl SymmetricOperator for Linear {
        type Error = std::convert::Infallible;

        fn dimension(&self) -> usize {
            self.0.dimension()
        }

        fn apply(&mut self, v: &[f64], product: &mut [f64]) -> Result<(), Self::Error> {
            self.0.apply(v, product)
        }

        fn adds_up(&self, tolerance: f64) -> bool {
            tolerance >= 1e-10
        }
    }

    #[test]
    fn residuals_are_sums_of_products_where_these_add_up_and_fit() {
        let eigenvalues: Vec<f64> = (1..=300).map(|i| 1.0 / f64::from(i)).collect();
        for (tolerance, max_basis, fits) in [
            (1e-3, 60, true),
            (1e-6, 60, true),
            // The basis grows beyond half of the vectors.
            (1e-3, 14, false),
            // Sums are not exact enough.
            (1e-11, 60, false),
        ] {
            let search = EigenSearch {
                largest: 3,
                smallest: 0,
                tolerance,
                max_basis,
                recheck: false,
                ..EigenSearch::default()
            };
            let start = |v: &mut [f64]| Random::new(3).normal(v);
            let mut plain = Known::new(&eigenvalues, 6);
            let expected = eigenpairs(&mut plain, &search, &mut { start }).unwrap();
            let mut linear = Linear(Known::new(&eigenvalues, 6));
            let found = eigenpairs(&mut linear, &search, &mut { start }).unwrap();
            assert!(found.converged);
            assert_eq!(found.products, linear.0.products);
            let saved = if fits { 3 } else { 0 };
            assert_eq!(found.products + saved, expected.products, "{tolerance}");
            let mut image = vec![0.0; 300];
            for (pair, expected) in found.largest.iter().zip(&expected.largest) {
                plain.apply(&pair.vector, &mut image).unwrap();
                add_scaled(&mut image, -pair.value, &pair.vector);
                assert!((norm(&image) - pair.residual).abs() < 1e-14);
                assert!((pair.value - expected.value).abs() < 1e-14);
            }
        }
    }

    #[test]
    fn noise_of_the_products_shows_in_the_residuals() {
        let noisy = |noise: f64| {
            let mut exact = Known::new(&spread(120, -1.0, 2.0), 1);
            let mut random = Random::new(4);
            Operator::new(120, move |v: &[f64], product: &mut [f64]| {
                exact.apply(v, product)?;
                for x in product {
                    *x += noise * (random.uniform() - 0.5);
                }
                Ok::<(), std::convert::Infallible>(())
            })
        };
        let search = EigenSearch {
            tolerance: 1e-6,
            ..TIGHT
        };
        let mut random = Random::new(3);
        let found = eigenpairs(&mut noisy(1e-9), &search, &mut |v| random.normal(v)).unwrap();
        assert!(found.converged && found.complete);
        let search = EigenSearch {
            max_products: 300,
            ..TIGHT
        };
        let found = eigenpairs(&mut noisy(1e-9), &search, &mut |v| random.normal(v)).unwrap();
        assert!(!found.converged);
        assert!(found.largest.iter().all(|pair| pair.residual > 1e-9));
    }

    /// A matrix whose products fail from one on.
    fn failing(good: usize, with: f64) -> impl SymmetricOperator<Error = &'static str> {
        let mut exact = Known::new(&spread(40, -1.0, 2.0), 1);
        Operator::new(40, move |v: &[f64], product: &mut [f64]| {
            if exact.products >= good && with == 0.0 {
                return Err("no more");
            }
            let Ok(()) = exact.apply(v, product);
            if exact.products > good {
                product[3] = with;
            }
            Ok(())
        })
    }

    #[test]
    fn a_product_that_is_not_finite_ends_the_search() {
        for with in [f64::NAN, f64::INFINITY, 1e200] {
            for good in 0..50 {
                let mut random = Random::new(6);
                let mut matrix = failing(good, with);
                let found = eigenpairs(&mut matrix, &TIGHT, &mut |v| random.normal(v)).unwrap();
                assert!(!found.converged && !found.complete);
                assert_eq!(found.products, good + 1);
                assert!(found.largest.iter().all(|pair| pair.value.is_finite()));
                let top = TopSearch {
                    tolerance: 1e-12,
                    ..TopSearch::default()
                };
                let mut matrix = failing(good.min(15), with);
                let found = top_eigenvalue(&mut matrix, &top, &mut |v| random.normal(v)).unwrap();
                assert!(!found.converged && found.value.is_nan() && found.residual.is_nan());
            }
        }
    }

    #[test]
    fn errors_of_the_products_come_through() {
        for good in [0, 1, 20, 45] {
            let mut random = Random::new(6);
            let mut matrix = failing(good, 0.0);
            let found = eigenpairs(&mut matrix, &TIGHT, &mut |v| random.normal(v));
            assert_eq!(found, Err("no more"));
        }
    }

    #[test]
    fn the_top_eigenvalue_is_the_one_of_largest_magnitude() {
        let mut eigenvalues = spread(500, -0.5, 1.0);
        for (at, value) in [(3, -1.6), (4, 1.5), (9, 2.5), (11, -2.6)] {
            eigenvalues[at] = value;
            let expected = if at == 4 { -1.6 } else { value };
            for seed in 0..20 {
                let mut matrix = Known::new(&eigenvalues, seed);
                let mut random = Random::new(seed + 100);
                let search = TopSearch::default();
                let top = top_eigenvalue(&mut matrix, &search, &mut |v| random.normal(v)).unwrap();
                assert!(top.converged && top.residual <= 1e-3 * expected.abs());
                assert!((top.value - expected).abs() < 1e-4, "{top:?}");
                assert_eq!(top.products, matrix.products);
                assert!(top.products < 50, "{top:?}");
            }
        }
    }

    #[test]
    fn the_top_eigenvalue_of_small_and_flat_matrices_is_exact() {
        let cases: [(&[f64], f64); 6] = [
            (&[], 0.0),
            (&[-3.0], 3.0),
            (&[1.0, -1.0], 1.0),
            (&[0.0; 30], 0.0),
            (&[2.0; 30], 2.0),
            (&[0.0, 0.0, 0.0, -5.0, 0.0, 0.0], 5.0),
        ];
        for (eigenvalues, expected) in cases {
            let mut matrix = Known::new(eigenvalues, 1);
            let mut random = Random::new(1);
            let search = TopSearch::default();
            let top = top_eigenvalue(&mut matrix, &search, &mut |v| random.normal(v)).unwrap();
            assert!(top.converged, "{top:?}");
            assert!((top.value.abs() - expected).abs() < 1e-13 && top.residual < 1e-13);
            assert!(top.products <= 4);
        }
    }

    #[test]
    fn a_top_eigenvalue_that_the_products_do_not_reach_says_so() {
        for max_products in [0, 2, 5, 10] {
            let search = TopSearch {
                tolerance: 1e-6,
                max_products,
                ..TopSearch::default()
            };
            let mut matrix = Known::new(&spread(500, -1.0, 1.0), 1);
            let mut random = Random::new(2);
            let top = top_eigenvalue(&mut matrix, &search, &mut |v| random.normal(v)).unwrap();
            assert!(!top.converged && top.residual > 1e-6);
            assert_eq!(top.products, max_products.max(2));
        }
    }
}
