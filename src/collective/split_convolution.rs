//! A convolution whose images are cut into bands of rows, one for each rank.
//!
//! x is batch x channels x height x width, W filters x channels x k x l, y batch x filters x rows x
//! columns with rows = floor((height + 2 pad - k)/s) + 1 for stride s, columns alike; all row by row.
//! As in all frameworks the kernel is not mirrored. Parameters are whole on all ranks.
//!
//! # Who holds what
//!
//! A rank holds rows of x: [`Blocks`] of the height, or bounds of your own. It computes the rows of
//! y whose middle it holds: row o reads the rows o s - pad to o s - pad + k - 1 of x, and its middle is
//! o s - pad + floor((k-1)/2), moved into the image where it lies in the padding. So the bands of y are
//! again bands from the top down ([`SplitConvolution::output_bounds`]), those of the next layer's
//! input, and a band needs at most floor((k-1)/2) rows above it and ceil((k-1)/2) below it: the
//! halo. Whoever holds a row of it sends it, which is not just the neighbour where bands are thinner than
//! the halo. Ranks beyond the rows hold none, and send and receive no halo.
//!
//! # Passes
//!
//! - Forward: the halo of x, one message for each pair of ranks that share some of it, then y.
//! - Backward: each rank makes its part of the gradients from its rows of y. Those by the rows of the halo
//!   go back the way they came and are added in the order of the ranks; those by W and b are summed by one
//!   all-reduce.
//!
//! # Order of additions
//!
//! [`ConvolutionShape::forward`] and [`ConvolutionShape::backward`] are the unsplit layer: y is one sum
//! over channels and the kernel row by row, then the bias; gradients are sums over examples, filters, and
//! places of y row by row. y has the same bits as theirs for any ranks, and so has the gradient of
//! each row of x that only one rank reads (with kernels of one row: all). The others, and those
//! of W and b, are sums of as many sums as ranks take part.
//!
//! # Cost
//!
//! With halo(r, q) the rows of rank q that rank r needs and R = 8 batch channels width bytes a row of x:
//!
//! - messages: the pairs (r, q) with rows in halo(r, q); bytes: R times all of those rows; the same
//!   back;
//! - in the common case, stride 1 or bands that start and end at multiples of the stride, the middle in the
//!   image (pad <= (k-1)/2), and no band thinner than the halo: floor((k-1)/2) rows down and
//!   max(0, ceil((k-1)/2) + 1 - s) rows up at each of the p - 1 borders. For an odd k and s = 1 that is
//!   2(p-1) messages of (k-1)/2 rows;
//! - backward besides: an all-reduce of filters (channels k l + 1) elements of 8 bytes ([`Case`]).
//!
//! Time in Hockney's model: the messages of the busiest port, one after the other, alpha + m beta each and m
//! gamma more for what is added. In the common case on three ranks and more that is exact, alpha + m
//! beta for the way down and for the way up; otherwise ports may wait for one another, and it is a lower bound.
//! The all-reduce follows when all halos are back.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::OnceLock;

use super::execute::Transport;
use super::plan::Schedule;
use super::simulate::Load;
use super::split::{
    LayoutError, NUMBER, Pass, SplitError, carry_out, case, check, plus, product, sent,
    wide_schedule,
};
use crate::theory::collectives::{Algorithm, Blocks, Case, Hockney, Operation, Quantity};

/// Sizes of a convolution in two dimensions. Pairs are for height and width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvolutionShape {
    /// Examples.
    pub batch: usize,
    /// Channels of x.
    pub channels: usize,
    /// Rows of x.
    pub height: usize,
    /// Columns of x.
    pub width: usize,
    /// Channels of y.
    pub filters: usize,
    /// Size of the kernel, at least 1.
    pub kernel: [usize; 2],
    /// How far the kernel moves, at least 1.
    pub stride: [usize; 2],
    /// Rows and columns of zeros on each side.
    pub padding: [usize; 2],
}

/// Gradients of the loss, as the tensors they belong to.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvolutionGradients {
    /// By x.
    pub input: Vec<f64>,
    /// By W.
    pub weight: Vec<f64>,
    /// By b.
    pub bias: Vec<f64>,
}

/// What a rank has of a forward pass.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvolutionOutput {
    /// Its rows of y.
    pub output: Vec<f64>,
    /// The rows of x that it read, its own and the halo: [`SplitConvolution::backward`] asks for them.
    pub read: Vec<f64>,
}

impl ConvolutionShape {
    /// Whether the layer exists and can be counted.
    fn check(&self) -> Result<(), LayoutError> {
        if self.stride.contains(&0) {
            return Err(LayoutError::Stride(self.stride));
        }
        if self.height == 0 || self.width == 0 {
            return Err(LayoutError::Image([self.height, self.width]));
        }
        let padded = |size: usize, padding: usize| {
            let image = padding.checked_mul(2).and_then(|p| p.checked_add(size));
            image.ok_or(LayoutError::Large {
                what: "the padded image",
            })
        };
        let image = [
            padded(self.height, self.padding[0])?,
            padded(self.width, self.padding[1])?,
        ];
        let fits = |i: usize| (1..=image[i]).contains(&self.kernel[i]);
        if !(fits(0) && fits(1)) {
            return Err(LayoutError::Kernel {
                kernel: self.kernel,
                image,
            });
        }
        let [k, l] = self.kernel;
        let input = [self.batch, self.channels, self.height, self.width];
        product("the input", &input)?;
        product("the padded image", &image)?;
        product("the weight", &[self.filters, self.channels, k, l])?;
        let [rows, columns] = self.output();
        product("the output", &[self.batch, self.filters, rows, columns])?;
        Ok(())
    }

    /// Rows and columns of y; 0 where there is no such layer.
    pub fn output(&self) -> [usize; 2] {
        let sizes = [self.height, self.width];
        [0, 1].map(|i| {
            let image = self.padding[i].saturating_mul(2).saturating_add(sizes[i]);
            image
                .checked_sub(self.kernel[i])
                .and_then(|room| room.checked_div(self.stride[i]))
                .map_or(0, |last| last.saturating_add(1))
        })
    }

    /// Numbers of W.
    fn weights(&self) -> usize {
        self.filters * self.channels * self.kernel[0] * self.kernel[1]
    }

    /// Numbers of so many rows of x.
    fn input_size(&self, rows: usize) -> usize {
        self.batch * self.channels * rows * self.width
    }

    /// Numbers of so many rows of y.
    fn output_size(&self, rows: usize) -> usize {
        self.batch * self.filters * rows * self.output()[1]
    }

    /// y of the layer that is not split.
    ///
    /// # Errors
    /// A layer that does not exist, or a tensor of another length.
    pub fn forward(
        &self,
        input: &[f64],
        weight: &[f64],
        bias: &[f64],
    ) -> Result<Vec<f64>, ConvolutionError> {
        self.check()?;
        let tensors = [
            ("the input", input, self.input_size(self.height)),
            ("the weight", weight, self.weights()),
            ("the bias", bias, self.filters),
        ];
        check(0, 1, &tensors)?;
        let rows = 0..self.output()[0];
        Ok(self.rows_forward(&(0..self.height), input, weight, bias, &rows))
    }

    /// The gradients of the layer that is not split, from that of y.
    ///
    /// # Errors
    /// A layer that does not exist, or a tensor of another length.
    pub fn backward(
        &self,
        input: &[f64],
        weight: &[f64],
        output_gradient: &[f64],
    ) -> Result<ConvolutionGradients, ConvolutionError> {
        self.check()?;
        let [rows, _] = self.output();
        let gradient_size = self.output_size(rows);
        let tensors = [
            ("the input", input, self.input_size(self.height)),
            ("the weight", weight, self.weights()),
            ("the gradient of the output", output_gradient, gradient_size),
        ];
        check(0, 1, &tensors)?;
        let all = 0..self.height;
        Ok(self.rows_backward(&all, input, weight, output_gradient, &(0..rows)))
    }

    /// Rows of x that row `o` of y reads.
    fn reads(&self, o: usize) -> Range<usize> {
        let [k, _] = self.kernel;
        let (at, pad) = (o * self.stride[0], self.padding[0]);
        let end = (at + k).saturating_sub(pad).min(self.height);
        at.saturating_sub(pad).min(end)..end
    }

    /// Where the kernel meets x, for row `o` and column `q` of y: each row of the kernel that is in the
    /// image, the row of x there, the columns of the kernel that are, and the first column of x.
    fn meets(
        &self,
        o: usize,
        q: usize,
    ) -> impl Iterator<Item = (usize, usize, Range<usize>, usize)> + use<> {
        let [k, l] = self.kernel;
        let mut tall = taps(o * self.stride[0], self.padding[0], k, self.height);
        let wide = taps(q * self.stride[1], self.padding[1], l, self.width);
        if wide.is_empty() {
            tall = 0..0;
        }
        let row = o * self.stride[0];
        let column = (q * self.stride[1] + wide.start).saturating_sub(self.padding[1]);
        let pad = self.padding[0];
        tall.map(move |i| (i, row + i - pad, wide.clone(), column))
    }

    /// Rows `outputs` of y, of the rows `held` of x, among which are all that are read.
    fn rows_forward(
        &self,
        held: &Range<usize>,
        input: &[f64],
        weight: &[f64],
        bias: &[f64],
        outputs: &Range<usize>,
    ) -> Vec<f64> {
        let [k, l] = self.kernel;
        let columns = self.output()[1];
        let mut output = Vec::with_capacity(self.output_size(outputs.len()));
        for example in 0..self.batch {
            for (filter, bias) in bias.iter().enumerate() {
                for o in outputs.clone() {
                    for q in 0..columns {
                        let mut sum = 0.0;
                        for channel in 0..self.channels {
                            let plane = (example * self.channels + channel) * held.len();
                            let kernel = (filter * self.channels + channel) * k;
                            for (i, row, wide, column) in self.meets(o, q) {
                                let x = (plane + row - held.start) * self.width + column;
                                let x = &input[x..x + wide.len()];
                                let start = (kernel + i) * l;
                                let w = &weight[start + wide.start..start + wide.end];
                                for (x, w) in x.iter().zip(w) {
                                    sum += x * w;
                                }
                            }
                        }
                        output.push(sum + bias);
                    }
                }
            }
        }
        output
    }

    /// Gradients from rows `outputs` of that of y; by x for the rows `held`.
    fn rows_backward(
        &self,
        held: &Range<usize>,
        input: &[f64],
        weight: &[f64],
        output_gradient: &[f64],
        outputs: &Range<usize>,
    ) -> ConvolutionGradients {
        let [k, l] = self.kernel;
        let columns = self.output()[1];
        let mut gradients = ConvolutionGradients {
            input: vec![0.0; input.len()],
            weight: vec![0.0; weight.len()],
            bias: vec![0.0; self.filters],
        };
        let mut of_output = output_gradient.iter();
        for example in 0..self.batch {
            for filter in 0..self.filters {
                let places = outputs
                    .clone()
                    .flat_map(|o| (0..columns).map(move |q| (o, q)));
                for ((o, q), g) in places.zip(&mut of_output) {
                    gradients.bias[filter] += g;
                    for channel in 0..self.channels {
                        let plane = (example * self.channels + channel) * held.len();
                        let kernel = (filter * self.channels + channel) * k;
                        for (i, row, wide, column) in self.meets(o, q) {
                            let x = (plane + row - held.start) * self.width + column;
                            let start = (kernel + i) * l + wide.start;
                            for n in 0..wide.len() {
                                gradients.weight[start + n] += g * input[x + n];
                                gradients.input[x + n] += g * weight[start + n];
                            }
                        }
                    }
                }
            }
        }
        gradients
    }
}

/// The offsets of a kernel, moved by `at`, that lie in an image of `size`.
fn taps(at: usize, padding: usize, kernel: usize, size: usize) -> Range<usize> {
    let end = (padding + size).saturating_sub(at).min(kernel);
    padding.saturating_sub(at).min(end)..end
}

/// The rows `wanted` of planes of the rows `held`, `width` numbers each.
fn take_rows(planes: &[f64], width: usize, held: &Range<usize>, wanted: &Range<usize>) -> Vec<f64> {
    let part = (wanted.start - held.start) * width..(wanted.end - held.start) * width;
    let planes = planes.chunks_exact((held.len() * width).max(1));
    planes
        .flat_map(|plane| &plane[part.clone()])
        .copied()
        .collect()
}

/// Does `action` to the rows `wanted` of planes of the rows `held`, with their counterparts in `rows`.
fn put_rows(
    planes: &mut [f64],
    width: usize,
    held: &Range<usize>,
    wanted: &Range<usize>,
    rows: &[f64],
    action: impl Fn(&mut [f64], &[f64]),
) {
    let part = (wanted.start - held.start) * width..(wanted.end - held.start) * width;
    let planes = planes.chunks_exact_mut((held.len() * width).max(1));
    for (plane, rows) in planes.zip(rows.chunks_exact(part.len().max(1))) {
        action(&mut plane[part.clone()], rows);
    }
}

/// Why there is no unsplit layer of such a shape, or on such tensors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConvolutionError {
    /// There is no such layer.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A tensor does not fit.
    #[error(transparent)]
    Tensor(#[from] SplitError<Infallible>),
}

/// A convolution spread over ranks. To make one is cheap for any number of ranks; the schedule of the
/// all-reduce is made when it is first needed.
///
/// ```
/// use batchlab::collective::{Algorithm, ConvolutionShape, Pass, SplitConvolution};
///
/// let shape = ConvolutionShape {
///     batch: 10,
///     channels: 3,
///     height: 32,
///     width: 20,
///     filters: 8,
///     kernel: [5, 5],
///     stride: [1, 1],
///     padding: [2, 2],
/// };
/// let layer = SplitConvolution::new(shape, 4, Algorithm::Ring)?;
/// // 2(p-1) messages of 2 rows of 8 batch channels width bytes.
/// let halo = layer.traffic(Pass::Forward);
/// assert_eq!((halo.messages, halo.bytes), (6, 6 * 2 * 8 * 10 * 3 * 20));
/// # Ok::<(), batchlab::collective::LayoutError>(())
/// ```
#[derive(Debug, Clone)]
pub struct SplitConvolution {
    shape: ConvolutionShape,
    /// Rank r holds rows bounds[r] to bounds[r + 1] of x.
    bounds: Vec<usize>,
    sum: Case,
    schedule: OnceLock<Option<Schedule>>,
}

impl SplitConvolution {
    /// The layer on `ranks` ranks that hold [`Blocks`] of the rows of x; `sum` is the algorithm of the
    /// all-reduce.
    ///
    /// # Errors
    /// No ranks, a kernel that does not fit, no stride, tensors too large to count, or an algorithm
    /// that cannot do an all-reduce.
    pub fn new(shape: ConvolutionShape, ranks: usize, sum: Algorithm) -> Result<Self, LayoutError> {
        if ranks == 0 {
            return Err(LayoutError::NoRanks);
        }
        let blocks = Blocks::new(shape.height, ranks);
        let bounds = (0..=ranks).map(|rank| blocks.start(rank)).collect();
        Self::with_bounds(shape, bounds, sum)
    }

    /// The layer on ranks of which r holds the rows `bounds[r]` to `bounds[r + 1]` of x.
    ///
    /// # Errors
    /// As [`new`](Self::new), and bounds that are not those of bands from the top to the bottom.
    pub fn with_bounds(
        shape: ConvolutionShape,
        bounds: Vec<usize>,
        sum: Algorithm,
    ) -> Result<Self, LayoutError> {
        shape.check()?;
        if bounds.len() < 2 {
            return Err(LayoutError::NoRanks);
        }
        let whole = bounds.first() == Some(&0) && bounds.last() == Some(&shape.height);
        if !(whole && bounds.is_sorted()) {
            return Err(LayoutError::Rows {
                height: shape.height,
                found: bounds,
            });
        }
        let parameters = shape.weights() + shape.filters;
        let ranks = bounds.len() - 1;
        Ok(Self {
            sum: case(Operation::AllReduce, sum, ranks, parameters, 1)?,
            shape,
            bounds,
            schedule: OnceLock::new(),
        })
    }

    /// Sizes of the whole layer.
    pub fn shape(&self) -> ConvolutionShape {
        self.shape
    }

    /// Ranks of the layer.
    pub fn ranks(&self) -> usize {
        self.bounds.len() - 1
    }

    /// Rows of x that a rank holds; none for ranks that there are not.
    pub fn rows(&self, rank: usize) -> Range<usize> {
        match self.bounds.get(rank..) {
            Some([start, end, ..]) => *start..*end,
            _ => self.shape.height..self.shape.height,
        }
    }

    /// Rows of y that a rank computes and holds.
    pub fn output_rows(&self, rank: usize) -> Range<usize> {
        let rows = self.rows(rank);
        self.first_output(rows.start)..self.first_output(rows.end)
    }

    /// The bounds of the bands of y: rank r holds the rows `[r]` to `[r + 1]` of it.
    pub fn output_bounds(&self) -> Vec<usize> {
        let bounds = self.bounds.iter();
        bounds.map(|row| self.first_output(*row)).collect()
    }

    /// The first row of y whose middle is at row `start` of x or below.
    fn first_output(&self, start: usize) -> usize {
        let all = self.shape.output()[0];
        if start == 0 {
            return 0;
        }
        if start >= self.shape.height {
            return all;
        }
        let middle = (self.shape.kernel[0] - 1) / 2;
        (start + self.shape.padding[0])
            .saturating_sub(middle)
            .div_ceil(self.shape.stride[0])
            .min(all)
    }

    /// Rows of x that a rank reads.
    pub fn reads(&self, rank: usize) -> Range<usize> {
        let (outputs, rows) = (self.output_rows(rank), self.rows(rank));
        if outputs.is_empty() {
            return rows.start..rows.start;
        }
        // Rows of y in the padding alone read nothing.
        let first = self.shape.reads(outputs.start);
        let last = self.shape.reads(outputs.end - 1);
        if first.start < last.end {
            first.start..last.end
        } else {
            rows.start..rows.start
        }
    }

    /// Rows of x that a rank reads of those above its own and of those below.
    pub fn halo(&self, rank: usize) -> [Range<usize>; 2] {
        let (rows, reads) = (self.rows(rank), self.reads(rank));
        [
            reads.start.min(rows.start)..reads.end.min(rows.start),
            reads.start.max(rows.end)..reads.end.max(rows.end),
        ]
    }

    /// The rows of rank `owner` that rank `reader` reads.
    fn shared(&self, reader: usize, owner: usize) -> Range<usize> {
        let (reads, rows) = (self.reads(reader), self.rows(owner));
        let start = reads.start.max(rows.start);
        start..reads.end.min(rows.end).max(start)
    }

    /// Whom a rank has its halo from, with the rows.
    fn sources(&self, rank: usize) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
        let reads = self.reads(rank);
        let first = self.bounds.partition_point(|row| *row <= reads.start);
        let owners = first.saturating_sub(1)..self.ranks();
        owners
            .take_while(move |owner| self.bounds[*owner] < reads.end)
            .map(move |owner| (owner, self.shared(rank, owner)))
            .filter(move |(owner, rows)| *owner != rank && !rows.is_empty())
    }

    /// Who has its halo from a rank, with the rows.
    fn readers(&self, rank: usize) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
        (0..self.ranks())
            .map(move |reader| (reader, self.shared(reader, rank)))
            .filter(move |(reader, rows)| *reader != rank && !rows.is_empty())
    }

    /// A rank's rows of x or its gradient.
    ///
    /// # Errors
    /// A tensor of another length, or no such rank.
    pub fn input_part(
        &self,
        rank: usize,
        whole: &[f64],
    ) -> Result<Vec<f64>, SplitError<Infallible>> {
        let shape = &self.shape;
        let size = shape.input_size(shape.height);
        check(rank, self.ranks(), &[("the whole input", whole, size)])?;
        let all = 0..shape.height;
        Ok(take_rows(whole, shape.width, &all, &self.rows(rank)))
    }

    /// A rank's rows of y or its gradient.
    ///
    /// # Errors
    /// A tensor of another length, or no such rank.
    pub fn output_part(
        &self,
        rank: usize,
        whole: &[f64],
    ) -> Result<Vec<f64>, SplitError<Infallible>> {
        let [rows, columns] = self.shape.output();
        let size = self.shape.output_size(rows);
        check(rank, self.ranks(), &[("the whole output", whole, size)])?;
        Ok(take_rows(
            whole,
            columns,
            &(0..rows),
            &self.output_rows(rank),
        ))
    }

    /// All messages of a halo, whichever way: sends and receives are pairs of a rank and numbers.
    /// What goes d ranks down is sent and received before what goes d + 1 down, and what goes up comes
    /// last, so that in Hockney's model both ends of a message have their turn at once.
    fn swap<T: Transport>(
        &self,
        rank: usize,
        sends: &[(usize, Vec<f64>)],
        receives: &mut [(usize, Vec<f64>)],
        transport: &mut T,
    ) -> Result<(), T::Error> {
        let ranks = self.ranks();
        let mut sends: Vec<(usize, &[f64])> = sends
            .iter()
            .map(|(to, data)| (*to, data.as_slice()))
            .collect();
        sends.sort_by_key(|(to, _)| (to + ranks - rank) % ranks);
        let mut receives: Vec<(usize, &mut [f64])> = receives
            .iter_mut()
            .map(|(from, data)| (*from, data.as_mut_slice()))
            .collect();
        receives.sort_by_key(|(from, _)| (rank + ranks - from) % ranks);
        if sends.is_empty() && receives.is_empty() {
            return Ok(());
        }
        transport.together(&sends, &mut receives)
    }

    /// The rows of x that a rank reads, its own and the halo.
    fn with_halo<T: Transport>(
        &self,
        rank: usize,
        input: &[f64],
        transport: &mut T,
    ) -> Result<Vec<f64>, T::Error> {
        let (own, reads) = (self.rows(rank), self.reads(rank));
        let shape = &self.shape;
        let size = |rows: &Range<usize>| vec![0.0; shape.input_size(rows.len())];
        if size(&(0..1)).is_empty() {
            return Ok(Vec::new());
        }
        let sends: Vec<_> = self
            .readers(rank)
            .map(|(to, rows)| (to, take_rows(input, shape.width, &own, &rows)))
            .collect();
        let mut receives: Vec<_> = self
            .sources(rank)
            .map(|(from, rows)| (from, size(&rows)))
            .collect();
        self.swap(rank, &sends, &mut receives, transport)?;
        let mut held = size(&reads);
        let rows = self.shared(rank, rank);
        receives.push((rank, take_rows(input, shape.width, &own, &rows)));
        for (from, data) in &receives {
            let rows = self.shared(rank, *from);
            put_rows(&mut held, shape.width, &reads, &rows, data, |to, from| {
                to.copy_from_slice(from);
            });
        }
        Ok(held)
    }

    /// The gradient by the rows of a rank, from that by the rows that each reads.
    fn halo_back<T: Transport>(
        &self,
        rank: usize,
        held: &[f64],
        transport: &mut T,
    ) -> Result<Vec<f64>, T::Error> {
        let (own, reads) = (self.rows(rank), self.reads(rank));
        let shape = &self.shape;
        let size = |rows: &Range<usize>| vec![0.0; shape.input_size(rows.len())];
        if size(&(0..1)).is_empty() {
            return Ok(Vec::new());
        }
        let sends: Vec<_> = self
            .sources(rank)
            .map(|(to, rows)| (to, take_rows(held, shape.width, &reads, &rows)))
            .collect();
        let mut receives: Vec<_> = self
            .readers(rank)
            .map(|(from, rows)| (from, size(&rows)))
            .collect();
        self.swap(rank, &sends, &mut receives, transport)?;
        let rows = self.shared(rank, rank);
        receives.push((rank, take_rows(held, shape.width, &reads, &rows)));
        receives.sort_by_key(|(from, _)| *from);
        let mut gradient = size(&own);
        for (from, data) in &receives {
            let rows = self.shared(*from, rank);
            put_rows(&mut gradient, shape.width, &own, &rows, data, plus);
        }
        Ok(gradient)
    }

    /// A rank's rows of y, of its rows of x, all of W and all of b. All ranks must call it.
    ///
    /// # Errors
    /// No such rank, a tensor of another length, or the transport's own.
    pub fn forward<T: Transport>(
        &self,
        rank: usize,
        input: &[f64],
        weight: &[f64],
        bias: &[f64],
        transport: &mut T,
    ) -> Result<ConvolutionOutput, SplitError<T::Error>> {
        let shape = &self.shape;
        let tensors = [
            ("the input", input, shape.input_size(self.rows(rank).len())),
            ("the weight", weight, shape.weights()),
            ("the bias", bias, shape.filters),
        ];
        check(rank, self.ranks(), &tensors)?;
        let read = self.with_halo(rank, input, transport)?;
        let outputs = self.output_rows(rank);
        Ok(ConvolutionOutput {
            output: shape.rows_forward(&self.reads(rank), &read, weight, bias, &outputs),
            read,
        })
    }

    /// The gradients by a rank's rows of x, and by all of W and b, from that by its rows of y. `read` is
    /// what [`forward`](Self::forward) kept. All ranks must call it.
    ///
    /// # Errors
    /// No such rank, a tensor of another length, or the transport's own.
    pub fn backward<T: Transport>(
        &self,
        rank: usize,
        read: &[f64],
        weight: &[f64],
        output_gradient: &[f64],
        transport: &mut T,
    ) -> Result<ConvolutionGradients, SplitError<T::Error>> {
        let shape = &self.shape;
        let (reads, outputs) = (self.reads(rank), self.output_rows(rank));
        let gradient_size = shape.output_size(outputs.len());
        let tensors = [
            ("the rows read", read, shape.input_size(reads.len())),
            ("the weight", weight, shape.weights()),
            ("the gradient of the output", output_gradient, gradient_size),
        ];
        check(rank, self.ranks(), &tensors)?;
        let part = shape.rows_backward(&reads, read, weight, output_gradient, &outputs);
        let input = self.halo_back(rank, &part.input, transport)?;
        // W and b in one vector, for one all-reduce.
        let mut weight = part.weight;
        weight.extend(part.bias);
        if let Some(schedule) = self.schedule() {
            carry_out(schedule, rank, &mut weight, transport)?;
        }
        let bias = weight.split_off(shape.weights());
        Ok(ConvolutionGradients {
            input,
            weight,
            bias,
        })
    }

    fn schedule(&self) -> Option<&Schedule> {
        let schedule = self.schedule.get_or_init(|| wide_schedule(&self.sum));
        schedule.as_ref()
    }

    /// The all-reduce of the backward pass.
    pub fn collective(&self) -> Case {
        self.sum
    }

    /// The message of so many rows.
    fn message(&self, rows: &Range<usize>) -> Load {
        let bytes = self.shape.input_size(rows.len()) * NUMBER;
        Load {
            messages: u128::from(bytes > 0),
            bytes: bytes as u128,
        }
    }

    /// Messages and bytes that all ranks send in a pass, by formula.
    pub fn traffic(&self, pass: Pass) -> Load {
        let halos = (0..self.ranks()).flat_map(|rank| self.sources(rank));
        let halo = sum(halos.map(|(_, rows)| self.message(&rows)));
        let all_reduce = match pass {
            Pass::Forward => None,
            Pass::Backward => self.sum.traffic(),
        };
        let all_reduce = all_reduce.map(|traffic| Load {
            messages: traffic.messages,
            bytes: traffic.bytes,
        });
        sum([halo].into_iter().chain(all_reduce))
    }

    /// Messages and bytes that one rank sends in a pass: the halo by formula, the all-reduce by its
    /// schedule.
    pub fn sent(&self, pass: Pass, rank: usize) -> Load {
        match pass {
            Pass::Forward => sum(self.readers(rank).map(|(_, rows)| self.message(&rows))),
            Pass::Backward => {
                let halo = self.sources(rank).map(|(_, rows)| self.message(&rows));
                let all_reduce = self.schedule().map(|schedule| sent(schedule, rank));
                sum(halo.chain(all_reduce))
            }
        }
    }

    /// How long the messages of a pass take in Hockney's model: the busiest port of the halo, and
    /// the all-reduce; see the top of the module.
    pub fn time<T: Quantity>(&self, pass: Pass, model: &Hockney<T>) -> T {
        let ranks = self.ranks();
        let (mut sends, mut receives) = (vec![T::default(); ranks], vec![T::default(); ranks]);
        for reader in 0..ranks {
            for (owner, rows) in self.sources(reader) {
                let Load { messages, bytes } = self.message(&rows);
                let wire = model.alpha.times(messages) + model.beta.times(bytes);
                let (from, to, adding) = match pass {
                    Pass::Forward => (owner, reader, T::default()),
                    Pass::Backward => (reader, owner, model.gamma.times(bytes)),
                };
                sends[from] = sends[from] + wire;
                receives[to] = receives[to] + wire + adding;
            }
        }
        let ports = sends.into_iter().chain(receives);
        let halo = ports.fold(T::default(), Quantity::or_later);
        match pass {
            Pass::Forward => halo,
            Pass::Backward => halo + self.sum.time(model).unwrap_or_default(),
        }
    }
}

fn sum(loads: impl Iterator<Item = Load>) -> Load {
    loads.fold(Load::default(), |all, load| Load {
        messages: all.messages + load.messages,
        bytes: all.bytes + load.bytes,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::super::plan::{Action, Incoming, Outgoing, Step};
    use super::super::simulate::{Disturbance, simulate_hockney};
    use super::super::split::testing::{close, numbers, on_ranks};
    use super::*;

    /// A layer with all that goes in and comes out.
    struct Known {
        shape: ConvolutionShape,
        input: Vec<f64>,
        weight: Vec<f64>,
        bias: Vec<f64>,
        output_gradient: Vec<f64>,
        output: Vec<f64>,
        gradients: ConvolutionGradients,
    }

    impl Known {
        fn unsplit(shape: ConvolutionShape) -> Self {
            let input = numbers(0, shape.input_size(shape.height));
            let [weight, bias] = [numbers(1, shape.weights()), numbers(2, shape.filters)];
            let output_gradient = numbers(3, shape.output_size(shape.output()[0]));
            Self {
                output: shape.forward(&input, &weight, &bias).unwrap(),
                gradients: shape.backward(&input, &weight, &output_gradient).unwrap(),
                shape,
                input,
                weight,
                bias,
                output_gradient,
            }
        }
    }

    fn reference() -> Vec<Known> {
        let all: Value =
            serde_json::from_str(include_str!("../../tests/reference/split_layers.json")).unwrap();
        let cases = all["convolution"].as_array().unwrap().iter();
        cases
            .map(|case| {
                let size = |name: &str| case[name].as_u64().unwrap() as usize;
                let pair = |name: &str| serde_json::from_value(case[name].clone()).unwrap();
                let tensor = |name: &str| serde_json::from_value(case[name].clone()).unwrap();
                Known {
                    shape: ConvolutionShape {
                        batch: size("batch"),
                        channels: size("channels"),
                        height: size("height"),
                        width: size("width"),
                        filters: size("filters"),
                        kernel: pair("kernel"),
                        stride: pair("stride"),
                        padding: pair("padding"),
                    },
                    input: tensor("x"),
                    weight: tensor("w"),
                    bias: tensor("b"),
                    output_gradient: tensor("g"),
                    output: tensor("y"),
                    gradients: ConvolutionGradients {
                        input: tensor("dx"),
                        weight: tensor("dw"),
                        bias: tensor("db"),
                    },
                }
            })
            .collect()
    }

    fn square(height: usize, k: usize, stride: usize, padding: usize) -> ConvolutionShape {
        ConvolutionShape {
            batch: 2,
            channels: 2,
            height,
            width: 5,
            filters: 3,
            kernel: [k, k.min(4)],
            stride: [stride, 1],
            padding: [padding, 1],
        }
    }

    /// The same of each rank, as threads, and what was sent forward and backward.
    type OfRank = (Vec<f64>, ConvolutionGradients, [Load; 2]);

    fn run(layer: &SplitConvolution, known: &Known) -> Vec<OfRank> {
        on_ranks(layer.ranks(), |rank, transport| {
            let input = layer.input_part(rank, &known.input).unwrap();
            let gradient = layer.output_part(rank, &known.output_gradient).unwrap();
            let ConvolutionOutput { output, read } = layer
                .forward(rank, &input, &known.weight, &known.bias, transport)
                .unwrap();
            let forward = transport.take();
            let gradients = layer
                .backward(rank, &read, &known.weight, &gradient, transport)
                .unwrap();
            (output, gradients, [forward, transport.take()])
        })
    }

    /// Numbers, and the same bits where no order of additions has changed.
    #[track_caller]
    fn check_numbers(layer: &SplitConvolution, known: &Known, found: &[OfRank], bits: bool) {
        let readers = |row: usize| {
            let reads = |rank: &usize| layer.reads(*rank).contains(&row);
            (0..layer.ranks()).filter(reads).count()
        };
        let mut covered = (0, 0);
        for (rank, (output, gradients, _)) in found.iter().enumerate() {
            let y = layer.output_part(rank, &known.output).unwrap();
            let dx = layer.input_part(rank, &known.gradients.input).unwrap();
            close("y", output, &y);
            // The largest of all of dx, not of the rank's.
            let largest = known
                .gradients
                .input
                .iter()
                .fold(0.0, |l: f64, x| l.max(x.abs()));
            for (found, expected) in gradients.input.iter().zip(&dx) {
                assert!((found - expected).abs() <= 1e-12 * largest);
            }
            close("dw", &gradients.weight, &known.gradients.weight);
            close("db", &gradients.bias, &known.gradients.bias);
            covered = (covered.0 + output.len(), covered.1 + gradients.input.len());
            if !bits {
                continue;
            }
            assert_eq!(*output, y);
            let rows = layer.rows(rank);
            for row in rows.clone().filter(|row| readers(*row) < 2) {
                let width = layer.shape.width;
                let [found, expected] =
                    [&gradients.input, &dx].map(|dx| take_rows(dx, width, &rows, &(row..row + 1)));
                assert_eq!(found, expected, "row {row}");
            }
            assert_eq!(gradients.weight, found[0].1.weight);
            assert_eq!(gradients.bias, found[0].1.bias);
            if layer.ranks() == 1 {
                assert_eq!(*gradients, known.gradients);
            }
        }
        let all = (known.output.len(), known.gradients.input.len());
        assert_eq!(covered, all);
    }

    /// What was sent, against the formulas.
    #[track_caller]
    fn check_traffic(layer: &SplitConvolution, found: &[OfRank]) {
        for (i, pass) in Pass::ALL.into_iter().enumerate() {
            for (rank, (_, _, sent)) in found.iter().enumerate() {
                assert_eq!(sent[i], layer.sent(pass, rank), "{pass:?}, rank {rank}");
            }
            let all = sum(found.iter().map(|(_, _, sent)| sent[i]));
            assert_eq!(all, layer.traffic(pass), "{pass:?}");
        }
    }

    #[test]
    fn the_unsplit_layer_is_that_of_pytorch() {
        let cases = reference();
        assert!(cases.len() >= 16);
        for known in cases {
            let shape = known.shape;
            let output = shape
                .forward(&known.input, &known.weight, &known.bias)
                .unwrap();
            close("y", &output, &known.output);
            let gradients = shape
                .backward(&known.input, &known.weight, &known.output_gradient)
                .unwrap();
            close("dx", &gradients.input, &known.gradients.input);
            close("dw", &gradients.weight, &known.gradients.weight);
            close("db", &gradients.bias, &known.gradients.bias);
        }
    }

    #[test]
    fn the_split_layer_is_that_of_pytorch_on_up_to_nine_ranks_of_seven_rows() {
        for known in reference() {
            for ranks in 1..=9 {
                let layer = SplitConvolution::new(known.shape, ranks, Algorithm::Ring).unwrap();
                let found = run(&layer, &known);
                check_numbers(&layer, &known, &found, false);
                check_traffic(&layer, &found);
            }
        }
    }

    #[test]
    fn any_all_reduce_gives_the_unsplit_layer_and_sends_what_the_formula_says() {
        let algorithms = [
            Algorithm::Flat,
            Algorithm::KaryTree { k: 2 },
            Algorithm::Binomial,
            Algorithm::Chain { segments: 3 },
            Algorithm::Ring,
            Algorithm::Direct,
            Algorithm::RecursiveDoubling,
            Algorithm::Rabenseifner,
        ];
        for (height, k, stride, padding) in [(11, 3, 1, 1), (10, 5, 2, 2), (5, 5, 1, 2)] {
            let known = Known::unsplit(square(height, k, stride, padding));
            for ranks in 1..=7 {
                for sum in algorithms {
                    let layer = SplitConvolution::new(known.shape, ranks, sum).unwrap();
                    let found = run(&layer, &known);
                    check_numbers(&layer, &known, &found, true);
                    check_traffic(&layer, &found);
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn any_kernel_stride_padding_and_bands_are_the_unsplit_layer(
            batch in 0..3usize,
            channels in 0..3usize,
            filters in 0..3usize,
            size in [1..14usize, 1..6],
            kernel in [1..8usize, 1..5],
            stride in [1..5usize, 1..4],
            padding in [0..8usize, 0..6],
            cuts in prop::collection::vec(0..14usize, 0..7),
        ) {
            let [height, width] = size;
            prop_assume!((0..2).all(|i| kernel[i] <= size[i] + 2 * padding[i]));
            let shape =
                ConvolutionShape { batch, channels, height, width, filters, kernel, stride, padding };
            let mut bounds: Vec<usize> = cuts.into_iter().map(|cut| cut.min(height)).collect();
            bounds.extend([0, height]);
            bounds.sort_unstable();
            let known = Known::unsplit(shape);
            let layer = SplitConvolution::with_bounds(shape, bounds, Algorithm::Ring).unwrap();
            let found = run(&layer, &known);
            check_numbers(&layer, &known, &found, true);
            check_traffic(&layer, &found);
            for rank in 0..layer.ranks() {
                let [above, below] = layer.halo(rank);
                prop_assert!(above.len() <= (kernel[0] - 1) / 2);
                prop_assert!(below.len() <= kernel[0] / 2);
            }
        }
    }

    #[test]
    fn the_output_is_held_as_the_next_layer_needs_its_input() {
        // 13 rows, by a kernel of 3 and stride 2 to 7, by a kernel of 5 to 7.
        let first = Known::unsplit(square(13, 3, 2, 1));
        let [height, width] = first.shape.output();
        let shape = ConvolutionShape {
            batch: 2,
            channels: 3,
            height,
            width,
            filters: 2,
            kernel: [5, 3],
            stride: [1, 1],
            padding: [2, 1],
        };
        let [weight, bias] = [numbers(4, shape.weights()), numbers(5, shape.filters)];
        let output = shape.forward(&first.output, &weight, &bias).unwrap();
        let g = numbers(6, output.len());
        let of_second = shape.backward(&first.output, &weight, &g).unwrap();
        let of_first = first
            .shape
            .backward(&first.input, &first.weight, &of_second.input)
            .unwrap();
        for ranks in 1..=7 {
            let ring = Algorithm::Ring;
            let one = SplitConvolution::new(first.shape, ranks, ring).unwrap();
            let two = SplitConvolution::with_bounds(shape, one.output_bounds(), ring).unwrap();
            let found = on_ranks(ranks, |rank, transport| {
                let input = one.input_part(rank, &first.input).unwrap();
                let between = one
                    .forward(rank, &input, &first.weight, &first.bias, transport)
                    .unwrap();
                let end = two
                    .forward(rank, &between.output, &weight, &bias, transport)
                    .unwrap();
                let g = two.output_part(rank, &g).unwrap();
                let second = two
                    .backward(rank, &end.read, &weight, &g, transport)
                    .unwrap();
                let first = one
                    .backward(rank, &between.read, &first.weight, &second.input, transport)
                    .unwrap();
                (end.output, first, second)
            });
            for (rank, (y, first, second)) in found.iter().enumerate() {
                assert_eq!(*y, two.output_part(rank, &output).unwrap());
                let dx = one.input_part(rank, &of_first.input).unwrap();
                close("dx", &first.input, &dx);
                close("dw1", &first.weight, &of_first.weight);
                close("db1", &first.bias, &of_first.bias);
                close("dw2", &second.weight, &of_second.weight);
                close("db2", &second.bias, &of_second.bias);
            }
        }
    }

    /// Rows down and rows up at a border, as the top of the module has them.
    fn common(k: usize, stride: usize) -> [usize; 2] {
        [(k - 1) / 2, (k / 2 + 1).saturating_sub(stride)]
    }

    #[test]
    fn in_the_common_case_each_border_costs_what_the_short_formula_says() {
        for k in 1..=8 {
            for stride in 1..=4 {
                for ranks in 1..=6 {
                    for thickness in (stride..20).step_by(stride).filter(|t| *t >= k / 2) {
                        // The last band may be thinner or thicker by less than a stride.
                        for height in [0, 1].map(|more| ranks * thickness + more % stride) {
                            let shape = square(height, k, stride, (k - 1) / 2);
                            let mut bounds: Vec<_> = (0..ranks).map(|r| r * thickness).collect();
                            bounds.push(height);
                            let ring = Algorithm::Ring;
                            let Ok(layer) = SplitConvolution::with_bounds(shape, bounds, ring)
                            else {
                                // A kernel higher than the image.
                                assert!(ranks == 1 && k > height);
                                continue;
                            };
                            let rows = common(k, stride);
                            let borders = ranks as u128 - 1;
                            let ways = rows.iter().filter(|rows| **rows > 0).count() as u128;
                            let row = 8 * 2 * 2 * 5;
                            let halo = layer.traffic(Pass::Forward);
                            assert_eq!(halo.messages, borders * ways, "{shape:?} {ranks}");
                            assert_eq!(halo.bytes, borders * row * (rows[0] + rows[1]) as u128);
                        }
                    }
                }
            }
        }
    }

    /// The halo as a schedule for the simulation: only the lengths count.
    fn as_schedule(layer: &SplitConvolution, pass: Pass) -> Schedule {
        let ranks = layer.ranks();
        let numbers = |rows: &Range<usize>| 0..layer.shape.input_size(rows.len());
        let mut all = 0;
        let steps = (0..ranks)
            .map(|rank| {
                let (out, into): (Vec<_>, Vec<_>) = match pass {
                    Pass::Forward => (layer.readers(rank).collect(), layer.sources(rank).collect()),
                    Pass::Backward => {
                        (layer.sources(rank).collect(), layer.readers(rank).collect())
                    }
                };
                let action = match pass {
                    Pass::Forward => Action::Copy,
                    Pass::Backward => Action::Add,
                };
                let mut sends: Vec<_> = out
                    .iter()
                    .map(|(to, rows)| Outgoing {
                        to: *to,
                        range: numbers(rows),
                    })
                    .collect();
                sends.sort_by_key(|send| (send.to + ranks - rank) % ranks);
                let mut receives: Vec<_> = into
                    .iter()
                    .map(|(from, rows)| Incoming {
                        from: *from,
                        range: numbers(rows),
                        action,
                    })
                    .collect();
                receives.sort_by_key(|receive| (rank + ranks - receive.from) % ranks);
                all += sends.len();
                let idle = sends.is_empty() && receives.is_empty();
                Vec::from_iter((!idle).then_some(Step { sends, receives }))
            })
            .collect();
        assert_eq!(all as u128, layer.traffic(Pass::Forward).messages);
        Schedule::new(Operation::AllReduce, 0, steps)
    }

    #[test]
    fn the_time_of_a_halo_is_that_of_the_simulation_in_the_common_case_and_never_above_it() {
        let model = Hockney {
            alpha: 1000i128,
            beta: 3,
            gamma: 2,
        };
        for (height, k, stride) in [
            (24, 3, 1),
            (24, 5, 1),
            (48, 5, 2),
            (24, 4, 1),
            (7, 7, 1),
            (9, 3, 2),
        ] {
            let shape = square(height, k, stride, (k - 1) / 2);
            for ranks in 1..=12 {
                let layer = SplitConvolution::new(shape, ranks, Algorithm::Ring).unwrap();
                let rows = (0..ranks).map(|rank| layer.rows(rank));
                let common_case = rows.clone().all(|rows| rows.start.is_multiple_of(stride))
                    && rows.clone().all(|rows| rows.len() >= k / 2);
                for pass in Pass::ALL {
                    let schedule = as_schedule(&layer, pass);
                    let simulated =
                        simulate_hockney(&schedule, 8, &model, &mut Disturbance::default());
                    let simulated = simulated.unwrap().time();
                    let halo = match pass {
                        Pass::Forward => layer.time(pass, &model),
                        Pass::Backward => {
                            layer.time(pass, &model) - layer.collective().time(&model).unwrap()
                        }
                    };
                    assert!(halo <= simulated, "{halo} {simulated}");
                    if !common_case {
                        continue;
                    }
                    assert_eq!(halo, simulated, "{shape:?}, {ranks} ranks, {pass:?}");
                    let ways = common(k, stride).map(|rows| {
                        let per_byte = model.beta
                            + if pass == Pass::Backward {
                                model.gamma
                            } else {
                                0
                            };
                        let bytes = (8 * 2 * 2 * 5 * rows) as i128;
                        i128::from(rows > 0) * model.alpha + per_byte * bytes
                    });
                    let expected = match ranks {
                        1 => 0,
                        2 => ways[0].max(ways[1]),
                        _ => ways[0] + ways[1],
                    };
                    assert_eq!(halo, expected, "{shape:?}, {ranks} ranks, {pass:?}");
                }
            }
        }
    }

    #[test]
    fn bands_thinner_than_the_halo_have_it_from_several_ranks() {
        // A kernel of 7 on bands of one row: 3 ranks above and 3 below.
        let layer = SplitConvolution::new(square(9, 7, 1, 3), 9, Algorithm::Ring).unwrap();
        let sources: Vec<_> = layer.sources(4).map(|(rank, _)| rank).collect();
        assert_eq!(sources, [1, 2, 3, 5, 6, 7]);
        assert_eq!(layer.halo(4), [1..4, 5..8]);
        assert_eq!(layer.traffic(Pass::Forward).messages, 2 * (8 + 7 + 6));
    }

    #[test]
    fn costs_of_many_ranks_are_counted_without_schedules() {
        let shape = ConvolutionShape {
            height: 1_000_000,
            ..square(10, 3, 1, 1)
        };
        let layer = SplitConvolution::new(shape, 100_000, Algorithm::Ring).unwrap();
        let halo = layer.traffic(Pass::Forward);
        assert_eq!(halo.messages, 2 * 99_999);
        assert_eq!(halo.bytes, 2 * 99_999 * 8 * 2 * 2 * 5);
        let back = layer.traffic(Pass::Backward);
        assert_eq!(
            back.bytes,
            halo.bytes + layer.collective().traffic().unwrap().bytes
        );
        assert_eq!(layer.collective().elements, 3 * (2 * 3 * 3 + 1));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |shape, bounds: &[usize]| {
            SplitConvolution::with_bounds(shape, bounds.to_vec(), Algorithm::Ring)
                .unwrap_err()
                .to_string()
        };
        let good = square(5, 3, 1, 1);
        assert_eq!(
            SplitConvolution::new(good, 0, Algorithm::Ring).unwrap_err(),
            LayoutError::NoRanks
        );
        assert_eq!(refused(good, &[0]), "a layer cannot be split over 0 ranks");
        assert_eq!(
            refused(good, &[0, 3, 2, 5]),
            "the rows of the ranks must start at 0, never go back and end at the height 5; found [0, 3, 2, 5]"
        );
        assert!(refused(good, &[0, 4]).contains("found [0, 4]"));
        assert!(refused(good, &[1, 5]).contains("found [1, 5]"));
        assert_eq!(
            refused(square(5, 3, 0, 1), &[0, 5]),
            "the stride of a convolution is [0, 1]; both must be at least 1"
        );
        assert_eq!(
            refused(square(5, 8, 1, 1), &[0, 5]),
            "a kernel of [8, 4] does not fit an image of [7, 7] with its padding; at least 1 and at most the image is expected"
        );
        assert!(refused(square(5, 0, 1, 1), &[0, 5]).contains("a kernel of [0, 0]"));
        assert_eq!(
            refused(square(0, 3, 1, 3), &[0, 0]),
            "an image of [0, 5] pixels; height and width must be at least 1"
        );
        let large = ConvolutionShape {
            width: usize::MAX / 2,
            ..good
        };
        assert!(refused(large, &[0, 5]).contains("more numbers than can be counted"));
        let padded = ConvolutionShape {
            padding: [usize::MAX / 2 + 1, 0],
            ..good
        };
        assert!(refused(padded, &[0, 5]).starts_with("the padded image would hold"));
        let scatter = SplitConvolution::new(good, 2, Algorithm::KaryTree { k: 0 });
        assert_eq!(
            scatter.unwrap_err().to_string(),
            "0-ary tree cannot do the all-reduce that the layer needs"
        );
        assert_eq!(
            good.forward(&[0.0; 3], &[], &[]).unwrap_err().to_string(),
            "the input of rank 0: 3 numbers instead of 100"
        );
        assert!(square(5, 3, 0, 1).forward(&[], &[], &[]).is_err());
        let layer = SplitConvolution::new(good, 2, Algorithm::Ring).unwrap();
        let found = on_ranks(1, |_, transport| {
            let forward = layer.forward(2, &[], &[], &[], transport);
            let backward = layer.backward(1, &[0.0; 60], &[0.0; 54], &[], transport);
            [
                forward.unwrap_err().to_string(),
                backward.unwrap_err().to_string(),
            ]
        });
        assert_eq!(
            found[0],
            [
                "rank 2 is not one of the 2 ranks of the layer",
                "the gradient of the output of rank 1: 0 numbers instead of 60"
            ]
        );
    }
}
