//! Sums of squares in f64, in an order that depends on the length alone: lanes inside chunks of a
//! fixed size, then the chunks from first to last.

use std::ops::Range;

/// Elements of a chunk; a few of them fit into the first-level cache.
pub(super) const CHUNK: usize = 1024;

/// Sums that run side by side, so that the loop compiles to vector instructions.
const LANES: usize = 8;

/// The chunks of a range, in order.
pub(super) fn chunks(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range
        .step_by(CHUNK)
        .map(move |start| start..end.min(start + CHUNK))
}

/// The sum of squares of one chunk.
pub(super) fn sum_of_squares<F: crate::objective::Scalar>(values: &[F]) -> f64 {
    let mut lanes = [0.0; LANES];
    let mut rows = values.chunks_exact(LANES);
    for row in &mut rows {
        for (lane, value) in lanes.iter_mut().zip(row) {
            let value = value.to_f64();
            *lane += value * value;
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rows.remainder()) {
        let value = value.to_f64();
        *lane += value * value;
    }
    lanes.iter().sum()
}
