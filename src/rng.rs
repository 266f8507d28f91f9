//! Counter-based random streams keyed by (seed, purpose, index).
//!
//! Every random number in batchlab comes from here. A stream is a pure function of its key, so a
//! draw never depends on what was drawn before, on the thread, or on the machine. Nothing else in
//! the library may own a generator (burn's is process-global and shared between threads).
//!
//! The generator is ChaCha with 8 rounds; its key is SHA-256 of the seed and the purpose, and the
//! index selects the stream.

use chacha20::ChaCha8Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};

/// One random stream.
#[derive(Debug)]
pub struct Stream {
    inner: ChaCha8Rng,
    spare: Option<f64>,
}

impl Stream {
    /// The stream of this key. `purpose` names what the numbers are for (`"order"`,
    /// `"initial-weights"`); two purposes never share numbers.
    pub fn new(seed: u64, purpose: &str, index: u64) -> Self {
        let mut hash = Sha256::new();
        hash.update(seed.to_le_bytes());
        hash.update(purpose.as_bytes());
        let mut inner = ChaCha8Rng::from_seed(hash.finalize().into());
        inner.set_stream(index);
        Self { inner, spare: None }
    }

    /// Uniform over all 64-bit integers.
    pub fn next_u64(&mut self) -> u64 {
        self.inner.next_u64()
    }

    /// Uniform in [0, 1), with 53 random bits.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in 0..bound, without bias (rejection of the incomplete last interval).
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "an empty range has no element to draw");
        let excess = (u64::MAX % bound + 1) % bound;
        loop {
            let draw = self.next_u64();
            if draw <= u64::MAX - excess {
                return draw % bound;
            }
        }
    }

    /// Standard normal, by the transform of Box and Muller (1958).
    pub fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        let angle = std::f64::consts::TAU * self.uniform();
        self.spare = Some(radius * angle.sin());
        radius * angle.cos()
    }

    /// Shuffles in place (Fisher and Yates): every order equally likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }
}

/// The order 0..n of the stream (seed, purpose, index), shuffled.
pub fn permutation(n: usize, seed: u64, purpose: &str, index: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..n as u32).collect();
    Stream::new(seed, purpose, index).shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_a_pure_function_of_its_key() {
        let draw = |seed, purpose, index| Stream::new(seed, purpose, index).next_u64();
        assert_eq!(draw(1, "a", 2), draw(1, "a", 2));
        assert_ne!(draw(1, "a", 2), draw(2, "a", 2));
        assert_ne!(draw(1, "a", 2), draw(1, "b", 2));
        assert_ne!(draw(1, "a", 2), draw(1, "a", 3));
    }

    #[test]
    fn a_permutation_holds_each_index_once() {
        let mut order = permutation(1000, 7, "order", 3);
        assert_ne!(order, (0..1000).collect::<Vec<u32>>());
        order.sort_unstable();
        assert_eq!(order, (0..1000).collect::<Vec<u32>>());
    }

    #[test]
    fn normal_draws_have_the_moments_of_a_standard_normal() {
        let n = 200_000;
        let mut stream = Stream::new(0, "normal-test", 0);
        let draws: Vec<f64> = (0..n).map(|_| stream.normal()).collect();
        let moment = |k: i32| draws.iter().map(|x| x.powi(k)).sum::<f64>() / f64::from(n);
        // Standard errors at n = 200,000: 0.0022, 0.0032, 0.0087, 0.022; bounds are 4 of them.
        assert!(moment(1).abs() < 0.009, "mean {}", moment(1));
        assert!((moment(2) - 1.0).abs() < 0.013, "variance {}", moment(2));
        assert!(moment(3).abs() < 0.035, "third moment {}", moment(3));
        assert!(
            (moment(4) - 3.0).abs() < 0.09,
            "fourth moment {}",
            moment(4)
        );
    }

    #[test]
    fn below_reaches_every_value_about_equally_often() {
        let mut counts = [0u32; 7];
        let mut stream = Stream::new(0, "below-test", 0);
        for _ in 0..70_000 {
            counts[stream.below(7) as usize] += 1;
        }
        // Chi-squared with 6 degrees of freedom: 22.5 has p = 0.001.
        let chi: f64 = counts
            .iter()
            .map(|&c| (f64::from(c) - 10_000.0).powi(2) / 10_000.0)
            .sum();
        assert!(chi < 22.5, "chi-squared {chi}");
    }
}
