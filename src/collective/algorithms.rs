//! The algorithms behind [`schedule`](super::schedule).

use std::ops::Range;

use super::plan::{Action, Algorithm, Blocks, Incoming, Operation, Outgoing, Step};

/// The steps of each rank. What the algorithm cannot do gives none.
pub(super) fn steps(
    operation: Operation,
    algorithm: Algorithm,
    ranks: usize,
    elements: usize,
) -> Vec<Vec<Step>> {
    let mut plan = Plan::new(ranks);
    let blocks = Blocks::new(elements, ranks);
    match algorithm {
        Algorithm::Flat | Algorithm::KaryTree { .. } | Algorithm::Binomial => {
            let whole = |_: Range<usize>| 0..elements;
            let own = |node: Range<usize>| blocks.span(node);
            match operation {
                Operation::Broadcast => plan.tree_down(algorithm, whole),
                Operation::Reduce => plan.tree_up(algorithm, Action::Add, whole),
                Operation::AllReduce => {
                    plan.tree_up(algorithm, Action::Add, whole);
                    plan.tree_down(algorithm, whole);
                }
                Operation::AllGather => {
                    plan.tree_up(algorithm, Action::Copy, own);
                    plan.tree_down(algorithm, whole);
                }
                Operation::Scatter => plan.tree_down(algorithm, own),
                Operation::Gather => plan.tree_up(algorithm, Action::Copy, own),
            }
        }
        Algorithm::Chain { segments } => {
            let segments = segments.min(elements);
            if matches!(operation, Operation::Reduce | Operation::AllReduce) {
                let last = ranks - 1;
                plan.pipeline(elements, segments, Action::Add, |place| last - place);
            }
            if matches!(operation, Operation::Broadcast | Operation::AllReduce) {
                plan.pipeline(elements, segments, Action::Copy, |place| place);
            }
        }
        Algorithm::Ring => {
            let shift = usize::from(operation == Operation::AllReduce);
            if shift == 1 {
                plan.rounds_of_ring(blocks, 0, Action::Add);
            }
            plan.rounds_of_ring(blocks, shift, Action::Copy);
        }
        Algorithm::Direct => plan.direct(operation, blocks, elements),
        Algorithm::RecursiveDoubling if operation == Operation::AllGather => {
            plan.doubling_gather(blocks, elements);
        }
        Algorithm::RecursiveDoubling => plan.doubling_sum(elements),
        Algorithm::Rabenseifner => plan.rabenseifner(elements),
    }
    plan.steps
}

/// The largest power of two up to the ranks, its logarithm, and the ranks left over.
fn fold(ranks: usize) -> (usize, u32, usize) {
    let levels = ranks.ilog2();
    let power = 1 << levels;
    (power, levels, ranks - power)
}

struct Plan {
    steps: Vec<Vec<Step>>,
}

impl Plan {
    fn new(ranks: usize) -> Self {
        Self {
            steps: vec![Vec::new(); ranks],
        }
    }

    fn ranks(&self) -> usize {
        self.steps.len()
    }

    /// Appends a step, without what is empty.
    fn step(&mut self, rank: usize, mut sends: Vec<Outgoing>, mut receives: Vec<Incoming>) {
        sends.retain(|s| !s.range.is_empty());
        receives.retain(|r| !r.range.is_empty());
        if !(sends.is_empty() && receives.is_empty()) {
            self.steps[rank].push(Step { sends, receives });
        }
    }

    /// One message, a step of its own on either side.
    fn message(&mut self, from: usize, to: usize, range: &Range<usize>, action: Action) {
        let send = Outgoing {
            to,
            range: range.clone(),
        };
        let receive = Incoming {
            from,
            range: range.clone(),
            action,
        };
        self.step(from, vec![send], Vec::new());
        self.step(to, Vec::new(), vec![receive]);
    }

    /// Half of an exchange, as one rank sees it.
    fn exchange(
        &mut self,
        rank: usize,
        peer: usize,
        out: Range<usize>,
        into: Range<usize>,
        action: Action,
    ) {
        let send = Outgoing {
            to: peer,
            range: out,
        };
        let receive = Incoming {
            from: peer,
            range: into,
            action,
        };
        self.step(rank, vec![send], vec![receive]);
    }

    /// From the root to all; `content` says what a subtree needs.
    fn tree_down(&mut self, algorithm: Algorithm, content: impl Fn(Range<usize>) -> Range<usize>) {
        let mut nodes = Vec::from([Range {
            start: 0,
            end: self.ranks(),
        }]);
        while let Some(node) = nodes.pop() {
            let parent = node.start;
            for child in algorithm.subtrees(node) {
                let range = content(child.clone());
                self.message(parent, child.start, &range, Action::Copy);
                nodes.push(child);
            }
        }
    }

    /// From all to the root: the same messages back, in the opposite order.
    fn tree_up(
        &mut self,
        algorithm: Algorithm,
        action: Action,
        content: impl Fn(Range<usize>) -> Range<usize>,
    ) {
        let mut down = Self::new(self.ranks());
        down.tree_down(algorithm, content);
        for (rank, steps) in down.steps.into_iter().enumerate() {
            for Step { sends, receives } in steps.into_iter().rev() {
                let back = receives.into_iter().map(|r| Outgoing {
                    to: r.from,
                    range: r.range,
                });
                let forth = sends.into_iter().map(|s| Incoming {
                    from: s.to,
                    range: s.range,
                    action,
                });
                self.step(rank, back.collect(), forth.collect());
            }
        }
    }

    /// Segments through all ranks; `at` says which rank stands at a place. Each rank sends a
    /// segment on while it receives the next.
    fn pipeline(
        &mut self,
        elements: usize,
        segments: usize,
        action: Action,
        at: impl Fn(usize) -> usize,
    ) {
        let cut = Blocks::new(elements, segments);
        let ranks = self.ranks();
        for place in 0..ranks {
            for round in 0..=segments {
                let sends = (place + 1 < ranks && round > 0).then(|| Outgoing {
                    to: at(place + 1),
                    range: cut.range(round - 1),
                });
                let receives = (place > 0 && round < segments).then(|| Incoming {
                    from: at(place - 1),
                    range: cut.range(round),
                    action,
                });
                self.step(
                    at(place),
                    sends.into_iter().collect(),
                    receives.into_iter().collect(),
                );
            }
        }
    }

    /// p - 1 rounds, in the first of which rank r sends block r + shift, and in each the block that
    /// it received last.
    fn rounds_of_ring(&mut self, blocks: Blocks, shift: usize, action: Action) {
        let p = self.ranks();
        for rank in 0..p {
            for round in 0..p - 1 {
                let block = (rank + shift + p - round) % p;
                let send = Outgoing {
                    to: (rank + 1) % p,
                    range: blocks.range(block),
                };
                let receive = Incoming {
                    from: (rank + p - 1) % p,
                    range: blocks.range((block + p - 1) % p),
                    action,
                };
                self.step(rank, vec![send], vec![receive]);
            }
        }
    }

    /// One step: to the next rank, the one after it and so on, and from the one before.
    fn direct(&mut self, operation: Operation, blocks: Blocks, elements: usize) {
        let p = self.ranks();
        for rank in 0..p {
            let content = |of: usize| {
                if operation == Operation::AllGather {
                    (blocks.range(of), Action::Copy)
                } else {
                    (0..elements, Action::Add)
                }
            };
            let sends = (1..p).map(|i| Outgoing {
                to: (rank + i) % p,
                range: content(rank).0,
            });
            let receives = (1..p).map(|i| {
                let from = (rank + p - i) % p;
                let (range, action) = content(from);
                Incoming {
                    from,
                    range,
                    action,
                }
            });
            self.step(rank, sends.collect(), receives.collect());
        }
    }

    /// The ranks from P on give their vectors away first and get the sum last. Rank P + i gives to
    /// rank i and gets from rank P - 1 - i, so that what came last is on its way to the end at
    /// once, and no rank has both duties unless there are more than P/2 of them.
    fn doubling_sum(&mut self, elements: usize) {
        let (power, levels, left) = fold(self.ranks());
        for i in 0..left {
            self.message(power + i, i, &(0..elements), Action::Add);
        }
        for level in 0..levels {
            for rank in 0..power {
                let peer = rank ^ (1 << level);
                self.exchange(rank, peer, 0..elements, 0..elements, Action::Add);
            }
        }
        for i in 0..left {
            self.message(power - 1 - i, power + i, &(0..elements), Action::Copy);
        }
    }

    /// The ranks are folded in neighbours: virtual rank i < p - P is the pair 2i, 2i + 1, of which
    /// the former acts, so that what a group has is in one piece. The vector goes to the latter of
    /// pair i from virtual rank P - 1 - i.
    fn doubling_gather(&mut self, blocks: Blocks, elements: usize) {
        let (power, levels, left) = fold(self.ranks());
        let real = |v: usize| v + v.min(left);
        for i in 0..left {
            self.message(2 * i + 1, 2 * i, &blocks.range(2 * i + 1), Action::Copy);
        }
        for level in 0..levels {
            let held = |v: usize| {
                let group = v >> level;
                blocks.span(real(group << level)..real((group + 1) << level))
            };
            for v in 0..power {
                let peer = v ^ (1 << level);
                self.exchange(real(v), real(peer), held(v), held(peer), Action::Copy);
            }
        }
        for i in 0..left {
            self.message(real(power - 1 - i), 2 * i + 1, &(0..elements), Action::Copy);
        }
    }

    /// Halving from the largest distance down, then doubling back. Rank P + i gives to rank
    /// P - 1 - i and gets from it.
    fn rabenseifner(&mut self, elements: usize) {
        let (power, levels, left) = fold(self.ranks());
        let parts = Blocks::new(elements, power);
        let half = |rank: usize, level: u32| {
            let start = (rank >> level) << level;
            parts.span(start..start + (1 << level))
        };
        for i in 0..left {
            self.message(power + i, power - 1 - i, &(0..elements), Action::Add);
        }
        for level in (0..levels).rev() {
            for rank in 0..power {
                let peer = rank ^ (1 << level);
                let (out, into) = (half(peer, level), half(rank, level));
                self.exchange(rank, peer, out, into, Action::Add);
            }
        }
        for level in 0..levels {
            for rank in 0..power {
                let peer = rank ^ (1 << level);
                let (out, into) = (half(rank, level), half(peer, level));
                self.exchange(rank, peer, out, into, Action::Copy);
            }
        }
        for i in 0..left {
            self.message(power - 1 - i, power + i, &(0..elements), Action::Copy);
        }
    }
}
