//! What layers that are split over ranks share.

use std::ops::Range;

use thiserror::Error;

use super::execute::{ExecuteError, Transport, execute};
use super::plan::{Incoming, Outgoing, Schedule, Step, schedule};
use super::simulate::Load;
use crate::theory::collectives::{Algorithm, Case, Operation};

/// Bytes of a number: all of them are `f64`.
pub(super) const NUMBER: usize = size_of::<f64>();

/// A way through a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pass {
    /// From the inputs to the outputs.
    Forward,
    /// From the gradient of the outputs to those of the inputs and the parameters.
    Backward,
}

impl Pass {
    /// Both, in the order in which they are done.
    pub const ALL: [Self; 2] = [Self::Forward, Self::Backward];
}

/// Why a layer cannot be split so.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// No ranks.
    #[error("a layer cannot be split over 0 ranks")]
    NoRanks,
    /// The algorithm does not do what the layer needs.
    #[error("{algorithm} cannot do the {operation} that the layer needs")]
    Algorithm {
        /// The algorithm.
        algorithm: Algorithm,
        /// The operation.
        operation: Operation,
    },
    /// More numbers than a `usize` counts.
    #[error("{what} would hold more numbers than can be counted")]
    Large {
        /// The tensor.
        what: &'static str,
    },
    /// An image without pixels.
    #[error("an image of {0:?} pixels; height and width must be at least 1")]
    Image([usize; 2]),
    /// A stride of 0.
    #[error("the stride of a convolution is {0:?}; both must be at least 1")]
    Stride([usize; 2]),
    /// A kernel of no size, or larger than the image.
    #[error(
        "a kernel of {kernel:?} does not fit an image of {image:?} with its padding; at least \
         1 and at most the image is expected"
    )]
    Kernel {
        /// Height and width of the kernel.
        kernel: [usize; 2],
        /// Height and width of the image with the padding on both sides.
        image: [usize; 2],
    },
    /// Rows of ranks that are not those of the image.
    #[error(
        "the rows of the ranks must start at 0, never go back and end at the height {height}; \
         found {found:?}"
    )]
    Rows {
        /// Rows of the image.
        height: usize,
        /// The bounds given.
        found: Vec<usize>,
    },
}

/// Why a pass could not be done. The other ranks then wait for messages that do not come, so all of
/// them must be ended.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SplitError<E> {
    /// The rank is not one of the layer.
    #[error("rank {rank} is not one of the {ranks} ranks of the layer")]
    Rank {
        /// The rank that was to act.
        rank: usize,
        /// Ranks of the layer.
        ranks: usize,
    },
    /// A tensor is not as long as the layout says.
    #[error("{what} of rank {rank}: {found} numbers instead of {expected}")]
    Length {
        /// The tensor.
        what: &'static str,
        /// The rank that was to act.
        rank: usize,
        /// Numbers it should have.
        expected: usize,
        /// Numbers it has.
        found: usize,
    },
    /// The transport failed.
    #[error(transparent)]
    Transport(#[from] E),
}

/// The product, if it can be counted with room for its bytes.
pub(super) fn product(what: &'static str, sizes: &[usize]) -> Result<usize, LayoutError> {
    sizes
        .iter()
        .try_fold(NUMBER, |product, size| product.checked_mul(*size))
        .map(|bytes| bytes / NUMBER)
        .ok_or(LayoutError::Large { what })
}

/// The cost of an operation on vectors of `elements`, each `width` numbers wide.
pub(super) fn case(
    operation: Operation,
    algorithm: Algorithm,
    ranks: usize,
    elements: usize,
    width: usize,
) -> Result<Case, LayoutError> {
    if !algorithm.can(operation) {
        return Err(LayoutError::Algorithm {
            algorithm,
            operation,
        });
    }
    Ok(Case {
        operation,
        algorithm,
        ranks,
        // Elements of no width are none.
        elements: if width == 0 { 0 } else { elements },
        element_bytes: width.max(1) * NUMBER,
    })
}

/// The schedule of a case, its ranges in numbers. Blocks are still made of whole elements, so
/// [`Schedule::operand`] and [`Schedule::result`], which cut numbers, are not those of a gather.
pub(super) fn wide_schedule(case: &Case) -> Option<Schedule> {
    let narrow = schedule(case.operation, case.algorithm, case.ranks, case.elements)?;
    let width = case.element_bytes / NUMBER;
    if width == 1 {
        return Some(narrow);
    }
    let widen = |range: &Range<usize>| range.start * width..range.end * width;
    let wide_step = |step: &Step| Step {
        sends: step
            .sends
            .iter()
            .map(|send| Outgoing {
                range: widen(&send.range),
                ..*send
            })
            .collect(),
        receives: step
            .receives
            .iter()
            .map(|receive| Incoming {
                range: widen(&receive.range),
                ..*receive
            })
            .collect(),
    };
    let steps = (0..narrow.ranks())
        .map(|rank| narrow.steps(rank).iter().map(wide_step).collect())
        .collect();
    Some(Schedule::new(case.operation, case.elements * width, steps))
}

/// What a rank sends by a schedule.
pub(super) fn sent(schedule: &Schedule, rank: usize) -> Load {
    let sends = schedule.steps(rank).iter().flat_map(|step| &step.sends);
    sends.fold(Load::default(), |load, send| Load {
        messages: load.messages + 1,
        bytes: load.bytes + (send.range.len() * NUMBER) as u128,
    })
}

/// Carries a schedule out on a vector that is made for it.
pub(super) fn carry_out<T: Transport>(
    schedule: &Schedule,
    rank: usize,
    vector: &mut [f64],
    transport: &mut T,
) -> Result<(), SplitError<T::Error>> {
    execute(schedule, rank, vector, transport).map_err(|error| match error {
        ExecuteError::Rank { rank, ranks } => SplitError::Rank { rank, ranks },
        ExecuteError::Length {
            rank,
            expected,
            found,
        } => SplitError::Length {
            what: "the vector of a collective",
            rank,
            expected,
            found,
        },
        ExecuteError::Transport(error) => SplitError::Transport(error),
    })
}

/// Whether a rank and its tensors are those of the layout.
pub(super) fn check<E>(
    rank: usize,
    ranks: usize,
    tensors: &[(&'static str, &[f64], usize)],
) -> Result<(), SplitError<E>> {
    if rank >= ranks {
        return Err(SplitError::Rank { rank, ranks });
    }
    for (what, tensor, expected) in tensors {
        if tensor.len() != *expected {
            return Err(SplitError::Length {
                what,
                rank,
                expected: *expected,
                found: tensor.len(),
            });
        }
    }
    Ok(())
}

/// `sum += data`.
pub(super) fn plus(sum: &mut [f64], data: &[f64]) {
    for (s, d) in sum.iter_mut().zip(data) {
        *s += d;
    }
}

/// A matrix of `rows` rows, column by column.
pub(super) fn transposed(matrix: &[f64], rows: usize) -> Vec<f64> {
    let columns = matrix.len().checked_div(rows).unwrap_or(0);
    (0..columns)
        .flat_map(|column| (0..rows).map(move |row| matrix[row * columns + column]))
        .collect()
}

/// What the tests of split layers share.
#[cfg(test)]
pub(super) mod testing {
    use super::super::execute::{Mail, on_threads};
    use super::{Load, NUMBER, Transport};

    /// Counts what is sent.
    pub(in super::super) struct Counting<'a, T> {
        transport: &'a mut T,
        pub(in super::super) sent: Load,
    }

    /// That of a thread.
    pub(in super::super) type Counter<'a> = Counting<'a, Mail>;

    impl<T: Transport> Transport for Counting<'_, T> {
        type Error = T::Error;

        fn send(&mut self, to: usize, data: &[f64]) -> Result<(), T::Error> {
            assert!(!data.is_empty(), "an empty message");
            self.sent.messages += 1;
            self.sent.bytes += (data.len() * NUMBER) as u128;
            self.transport.send(to, data)
        }

        fn receive(&mut self, from: usize, data: &mut [f64]) -> Result<(), T::Error> {
            self.transport.receive(from, data)
        }
    }

    impl<T> Counting<'_, T> {
        /// What was sent since the last time.
        pub(in super::super) fn take(&mut self) -> Load {
            std::mem::take(&mut self.sent)
        }
    }

    /// What each rank makes of its part; each a thread whose messages are counted.
    pub(in super::super) fn on_ranks<R: Send>(
        ranks: usize,
        body: impl Fn(usize, &mut Counter<'_>) -> R + Sync,
    ) -> Vec<R> {
        on_threads(vec![(); ranks], |rank, (), mail| {
            let sent = Load::default();
            let mut counting = Counting {
                transport: mail,
                sent,
            };
            Some(body(rank, &mut counting))
        })
        .unwrap()
    }

    /// Numbers from -1 to 1 without a pattern that a layout could share; `what` tells tensors apart.
    pub(in super::super) fn numbers(what: usize, count: usize) -> Vec<f64> {
        (0..count)
            .map(|i| (0.7 + 12.9898 * i as f64 + 78.233 * what as f64).sin())
            .collect()
    }

    /// Within 1e-12 of the largest of the expected.
    #[track_caller]
    pub(in super::super) fn close(what: &str, found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len(), "{what}");
        let largest = expected.iter().fold(0.0, |l: f64, e| l.max(e.abs()));
        for (i, (f, e)) in found.iter().zip(expected).enumerate() {
            let apart = (f - e).abs();
            assert!(apart <= 1e-12 * largest, "{what} {i}: {f} instead of {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::split_convolution::{ConvolutionShape, SplitConvolution};
    use super::super::split_dense::{DenseAlgorithms, DenseShape, DenseSplit, Held, SplitDense};
    use super::testing::{Counter, numbers, on_ranks};
    use super::*;

    #[test]
    fn wide_schedules_send_as_many_messages_and_bytes_as_the_formula_says() {
        for ranks in 1..=9 {
            for elements in [0, 1, 4, 9, 30] {
                for width in [0, 1, 3] {
                    for algorithm in [
                        Algorithm::Flat,
                        Algorithm::Binomial,
                        Algorithm::KaryTree { k: 2 },
                        Algorithm::Ring,
                        Algorithm::Direct,
                        Algorithm::RecursiveDoubling,
                    ] {
                        let gather =
                            case(Operation::AllGather, algorithm, ranks, elements, width).unwrap();
                        let schedule = wide_schedule(&gather).unwrap();
                        assert_eq!(schedule.elements(), elements * width);
                        let loads = (0..ranks).map(|rank| sent(&schedule, rank));
                        let all = loads.fold((0, 0), |all, load| {
                            (all.0 + load.messages, all.1 + load.bytes)
                        });
                        let traffic = gather.traffic().unwrap();
                        assert_eq!(all, (traffic.messages, traffic.bytes), "{gather:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_transposed_matrix_is_read_by_columns_and_back() {
        let matrix = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let columns = transposed(&matrix, 2);
        assert_eq!(columns, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        assert_eq!(transposed(&columns, 3), matrix);
        assert_eq!(transposed(&[], 0), [] as [f64; 0]);
        assert_eq!(transposed(&[], 4), [] as [f64; 0]);
    }

    #[test]
    fn what_cannot_be_counted_or_done_is_refused() {
        let large = product("the input", &[usize::MAX / 8, 2]).unwrap_err();
        assert_eq!(
            large.to_string(),
            "the input would hold more numbers than can be counted"
        );
        assert_eq!(product("the input", &[3, 4, 0]), Ok(0));
        let chain = Algorithm::Chain { segments: 2 };
        let without = case(Operation::AllGather, chain, 4, 7, 1).unwrap_err();
        assert_eq!(
            without.to_string(),
            "chain of 2 segments cannot do the all-gather that the layer needs"
        );
    }

    /// Messages and bytes of all ranks, counted: forward, backward.
    fn counted(
        ranks: usize,
        body: impl Fn(usize, &mut Counter<'_>) -> [Load; 2] + Sync,
    ) -> [Load; 2] {
        let loads = on_ranks(ranks, body);
        [0, 1].map(|pass| {
            loads.iter().fold(Load::default(), |all, load| Load {
                messages: all.messages + load[pass].messages,
                bytes: all.bytes + load[pass].bytes,
            })
        })
    }

    fn count_dense(layer: &SplitDense) -> [Load; 2] {
        let DenseShape {
            batch,
            inputs,
            outputs,
        } = layer.shape();
        counted(layer.ranks(), |rank, transport| {
            let x = numbers(0, batch * inputs);
            let weight = layer
                .weight_part(rank, &numbers(1, inputs * outputs))
                .unwrap();
            let bias = layer.bias_part(rank, &numbers(2, outputs)).unwrap();
            let y = layer.forward(rank, &x, &weight, &bias, transport).unwrap();
            let forward = transport.take();
            layer.backward(rank, &x, &weight, &y, transport).unwrap();
            [forward, transport.take()]
        })
    }

    fn count_convolution(layer: &SplitConvolution) -> [Load; 2] {
        let shape = layer.shape();
        let [k, l] = shape.kernel;
        counted(layer.ranks(), |rank, transport| {
            let x = numbers(0, shape.batch * shape.channels * shape.height * shape.width);
            let x = layer.input_part(rank, &x).unwrap();
            let weight = numbers(1, shape.filters * shape.channels * k * l);
            let bias = numbers(2, shape.filters);
            let there = layer.forward(rank, &x, &weight, &bias, transport).unwrap();
            let forward = transport.take();
            layer
                .backward(rank, &there.read, &weight, &there.output, transport)
                .unwrap();
            [forward, transport.take()]
        })
    }

    #[test]
    fn the_table_of_the_page_is_what_is_counted() {
        let page = include_str!("../../docs/model-parallelism.md");
        let mut lines = Vec::new();
        let mut check = |layer: &str, ranks: usize, counted: [Load; 2], formula: [Load; 2]| {
            assert_eq!(counted, formula, "{layer}");
            let [forward, backward] = counted;
            lines.push(format!(
                "| {layer} | {ranks} | {} | {} | {} | {} |",
                forward.messages, forward.bytes, backward.messages, backward.bytes
            ));
        };
        let shape = DenseShape {
            batch: 16,
            inputs: 100,
            outputs: 60,
        };
        for (split, name) in [
            (DenseSplit::Outputs, "outputs"),
            (DenseSplit::Inputs, "inputs"),
        ] {
            for ranks in [2, 4, 7] {
                let ring = DenseAlgorithms {
                    gather: Algorithm::Ring,
                    sum: Algorithm::Ring,
                };
                let layer = SplitDense::new(shape, ranks, split, Held::Whole, ring).unwrap();
                check(
                    &format!("dense, split by {name}"),
                    ranks,
                    count_dense(&layer),
                    Pass::ALL.map(|pass| layer.traffic(pass)),
                );
            }
        }
        for (k, stride, ranks) in [
            (1, 1, 4),
            (3, 1, 2),
            (3, 1, 4),
            (3, 2, 4),
            (5, 1, 4),
            (5, 2, 4),
            (5, 1, 28),
        ] {
            let shape = ConvolutionShape {
                batch: 4,
                channels: 3,
                height: 28,
                width: 28,
                filters: 8,
                kernel: [k, k],
                stride: [stride, stride],
                padding: [k / 2, k / 2],
            };
            let layer = SplitConvolution::new(shape, ranks, Algorithm::Ring).unwrap();
            check(
                &format!("convolution {k} x {k}, stride {stride}"),
                ranks,
                count_convolution(&layer),
                Pass::ALL.map(|pass| layer.traffic(pass)),
            );
        }
        lines.retain(|line| !page.contains(line.as_str()));
        assert!(lines.is_empty(), "the page lacks\n{}", lines.join("\n"));
    }
}
