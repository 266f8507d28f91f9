//! Symmetric matrices known by their products alone, and the vector arithmetic on them.

/// A symmetric n x n matrix A that is known through v -> A v.
///
/// It must answer the same for the same v: a matrix that draws new examples at each product is
/// another matrix each time, and has no eigenvalues.
pub trait SymmetricOperator {
    /// Why a product could fail.
    type Error;

    /// n.
    fn dimension(&self) -> usize;

    /// Overwrites `product` with A v. Both have length n.
    ///
    /// # Errors
    /// Whatever the matrix stands for may fail.
    fn apply(&mut self, v: &[f64], product: &mut [f64]) -> Result<(), Self::Error>;

    /// [`SymmetricOperator::apply`] for the residual of an eigenpair, which is compared with `tolerance`
    /// times the largest magnitude of an eigenvalue. A matrix whose products are rounded for speed has
    /// others here where that would show.
    ///
    /// # Errors
    /// As [`SymmetricOperator::apply`].
    fn apply_for_residual(
        &mut self,
        v: &[f64],
        product: &mut [f64],
        tolerance: f64,
    ) -> Result<(), Self::Error> {
        let _ = tolerance;
        self.apply(v, product)
    }

    /// Whether the product of a sum is the sum of products, near enough for a residual that is compared
    /// with `tolerance` times the largest magnitude of an eigenvalue. Default: no, as of differences.
    fn adds_up(&self, tolerance: f64) -> bool {
        let _ = tolerance;
        false
    }
}

/// A closure as a [`SymmetricOperator`].
pub struct Operator<F> {
    dimension: usize,
    product: F,
}

impl<F, E> Operator<F>
where
    F: FnMut(&[f64], &mut [f64]) -> Result<(), E>,
{
    /// The matrix of size `dimension` whose products `product` writes into its second argument.
    pub fn new(dimension: usize, product: F) -> Self {
        Self { dimension, product }
    }
}

impl<F, E> SymmetricOperator for Operator<F>
where
    F: FnMut(&[f64], &mut [f64]) -> Result<(), E>,
{
    type Error = E;

    fn dimension(&self) -> usize {
        self.dimension
    }

    fn apply(&mut self, v: &[f64], product: &mut [f64]) -> Result<(), E> {
        (self.product)(v, product)
    }
}

/// Fills a vector with independent random numbers: standard normal, or +1 and -1.
pub type Draw<'a> = dyn FnMut(&mut [f64]) + 'a;

/// Partial sums of a reduction: enough to fill the vector units of a processor. Fixed, so that
/// sums round the same everywhere.
const LANES: usize = 8;

/// a'b. Summed in eight interleaved parts, always the same.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len(), "vectors of different lengths");
    let (mut left, mut right) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let mut sums = [0.0; LANES];
    for (x, y) in left.by_ref().zip(right.by_ref()) {
        for (sum, (x, y)) in sums.iter_mut().zip(x.iter().zip(y)) {
            *sum += x * y;
        }
    }
    let rest = left.remainder().iter().zip(right.remainder());
    sums.iter().sum::<f64>() + rest.map(|(x, y)| x * y).sum::<f64>()
}

/// The Euclidean norm.
pub fn norm(v: &[f64]) -> f64 {
    dot(v, v).sqrt()
}

/// a <- a + factor b.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn add_scaled(a: &mut [f64], factor: f64, b: &[f64]) {
    assert_eq!(a.len(), b.len(), "vectors of different lengths");
    for (a, b) in a.iter_mut().zip(b) {
        *a += factor * b;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_take_in_every_element_at_any_length() {
        for n in 0..40_u32 {
            let a: Vec<f64> = (1..=n).map(f64::from).collect();
            let ones = vec![1.0; a.len()];
            let sum = f64::from(n * (n + 1) / 2);
            assert!((dot(&a, &ones) - sum).abs() < 1e-12);
            let mut both = a.clone();
            add_scaled(&mut both, -2.0, &a);
            assert!((dot(&both, &ones) + sum).abs() < 1e-12);
        }
        assert!((norm(&[3.0, 4.0]) - 5.0).abs() < 1e-15);
    }
}
