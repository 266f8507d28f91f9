//! The ordered tree: a sum over leaves whose shape, and so whose rounding, depends on the number
//! of leaves alone, never on which thread finishes first.

use std::collections::BTreeMap;
use std::ops::{AddAssign, Range};
use std::sync::{Mutex, PoisonError};

/// A node of the tree: its level, and its index on it.
pub(super) type Node = (u32, usize);

/// Sums vectors over a fixed binary tree.
///
/// Node (level, i) is the sum of nodes (level - 1, 2i) and (level - 1, 2i + 1), or the former
/// alone where the latter does not exist; leaves are level 0. Threads deposit leaves in any order;
/// whoever completes a pair adds it, so at most about (threads + log2 leaves) vectors are alive.
/// Spent vectors are kept for reuse.
#[derive(Debug)]
pub struct OrderedTree<F> {
    leaves: usize,
    length: usize,
    waiting: Mutex<BTreeMap<Node, Vec<F>>>,
    spare: Mutex<Vec<Vec<F>>>,
}

/// The root of a completed tree, its last addition left to the consumer, which can fuse it into
/// its own pass over memory.
#[derive(Debug)]
pub struct Root<F> {
    /// The left half.
    pub left: Vec<F>,
    /// The right half; `None` for a tree of one leaf.
    pub right: Option<Vec<F>>,
}

impl<F: Copy + Default + AddAssign> OrderedTree<F> {
    /// A tree over vectors of `length` elements.
    pub fn new(length: usize) -> Self {
        Self {
            leaves: 0,
            length,
            waiting: Mutex::default(),
            spare: Mutex::default(),
        }
    }

    /// Starts a sum over `leaves` leaves.
    pub fn start(&mut self, leaves: usize) {
        self.leaves = leaves;
        let waiting = self
            .waiting
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let left_over = std::mem::take(waiting);
        self.spare
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(left_over.into_values());
    }

    /// Leaves of the sum that was started last.
    pub fn leaves(&self) -> usize {
        self.leaves
    }

    /// Elements of each vector.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The nodes that wait for a sibling, by level, then by index; they are gone from the tree. When
    /// some leaves are in and others will never be, because another rank has them, these are
    /// [`remaining`].
    pub(super) fn take_waiting(&self) -> Vec<(Node, Vec<F>)> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *waiting).into_iter().collect()
    }

    /// A vector to fill; its content is arbitrary.
    pub fn take_buffer(&self) -> Vec<F> {
        let spare = self
            .spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        spare.unwrap_or_else(|| vec![F::default(); self.length])
    }

    /// Gives a vector back for reuse.
    pub fn give_back(&self, buffer: Vec<F>) {
        self.spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(buffer);
    }

    /// Deposits leaf `leaf`. Returns the root to whoever completes the tree.
    pub fn deposit(&self, leaf: usize, mut buffer: Vec<F>) -> Option<Root<F>> {
        let mut index = leaf;
        let mut nodes = self.leaves;
        let mut level = 0;
        while nodes > 1 {
            let sibling = index ^ 1;
            if sibling < nodes {
                let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(other) = waiting.remove(&(level, sibling)) else {
                    waiting.insert((level, index), buffer);
                    return None;
                };
                drop(waiting);
                let (mut left, right) = if index < sibling {
                    (buffer, other)
                } else {
                    (other, buffer)
                };
                if nodes == 2 {
                    return Some(Root {
                        left,
                        right: Some(right),
                    });
                }
                for (l, r) in left.iter_mut().zip(&right) {
                    *l += *r;
                }
                self.give_back(right);
                buffer = left;
            }
            index /= 2;
            nodes = nodes.div_ceil(2);
            level += 1;
        }
        Some(Root {
            left: buffer,
            right: None,
        })
    }
}

/// The nodes of a tree of so many leaves that the leaves `own` sum up to, and that need a leaf of
/// others to be added to: by level, then by index. At most two on a level; none where all leaves are
/// own.
pub(super) fn remaining(leaves: usize, own: Range<usize>) -> Vec<Node> {
    let (mut first, mut end) = (own.start, own.end);
    let mut nodes = leaves;
    let mut level = 0;
    let mut found = Vec::new();
    while nodes > 1 && first < end {
        if first % 2 == 1 {
            found.push((level, first));
            first += 1;
        }
        if first < end && end % 2 == 1 && end < nodes {
            end -= 1;
            found.push((level, end));
        }
        first /= 2;
        end = end.div_ceil(2);
        nodes = nodes.div_ceil(2);
        level += 1;
    }
    found
}

/// Adds nodes that together hold every leaf of a tree once, as the tree does, and returns where the
/// sum is; `None` without nodes.
pub(super) fn add_up<'a, F: Copy + AddAssign>(
    nodes: impl Iterator<Item = (Node, &'a mut [F])>,
) -> Option<&'a mut [F]> {
    let mut waiting: BTreeMap<Node, &'a mut [F]> = nodes.collect();
    // The first node of the lowest level is a left one, so what follows it on that level, if
    // anything does, is its sibling.
    while let Some(((level, index), left)) = waiting.pop_first() {
        if waiting.is_empty() {
            return Some(left);
        }
        if let Some(right) = waiting.remove(&(level, index + 1)) {
            for (l, r) in left.iter_mut().zip(right) {
                *l += *r;
            }
        }
        waiting.insert((level + 1, index / 2), left);
    }
    None
}

#[cfg(test)]
impl<F> OrderedTree<F> {
    /// Vectors kept for reuse.
    pub(super) fn spare_buffers(&self) -> usize {
        self.spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Stream;

    fn leaf(index: usize) -> Vec<f32> {
        let mut stream = Stream::new(0, "tree-test", index as u64);
        (0..5)
            .map(|_| stream.normal() as f32 * 10f32.powf((index % 7) as f32 - 3.0))
            .collect()
    }

    fn total(root: Root<f32>) -> Vec<f32> {
        let mut sum = root.left;
        if let Some(right) = root.right {
            for (l, r) in sum.iter_mut().zip(right) {
                *l += r;
            }
        }
        sum
    }

    fn in_order(order: &[u32]) -> Vec<f32> {
        let mut tree = OrderedTree::new(5);
        tree.start(order.len());
        let mut roots: Vec<Root<f32>> = order
            .iter()
            .filter_map(|&i| tree.deposit(i as usize, leaf(i as usize)))
            .collect();
        assert_eq!(roots.len(), 1, "exactly one deposit completes the tree");
        total(roots.remove(0))
    }

    fn halves(leaves: &[Vec<f32>]) -> Vec<f32> {
        if leaves.len() == 1 {
            return leaves[0].clone();
        }
        let middle = leaves.len().next_power_of_two() / 2;
        let (left, right) = (halves(&leaves[..middle]), halves(&leaves[middle..]));
        left.iter().zip(right).map(|(l, r)| l + r).collect()
    }

    #[test]
    fn the_sum_has_the_same_bits_whatever_the_order_of_arrival() {
        for n in 1..=33usize {
            let leaves: Vec<Vec<f32>> = (0..n).map(leaf).collect();
            let expected = halves(&leaves);
            for shuffle in 0..20 {
                let order = crate::rng::permutation(n, 1, "tree-order", shuffle);
                assert_eq!(in_order(&order), expected, "{n} leaves in order {order:?}");
            }
        }
    }

    #[test]
    fn depositing_in_order_keeps_at_most_log2_vectors_waiting() {
        let mut tree = OrderedTree::new(5);
        tree.start(1000);
        for i in 0..999 {
            assert!(tree.deposit(i, leaf(i)).is_none());
            assert!(tree.waiting.lock().unwrap().len() <= 10);
        }
        assert!(tree.deposit(999, leaf(999)).is_some());
    }
}
