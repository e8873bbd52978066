//! The stacks from which a call tree is built.

/// Stacks of entities, leaf first, with `width` values each.
#[derive(Default)]
pub struct EntityStacks {
    /// The entities of all stacks, one stack after the other.
    pub entity: Vec<u32>,
    /// The end of each stack in `entity`.
    pub end: Vec<usize>,
    /// The number of values per stack.
    pub width: usize,
    /// The values of all stacks. The value of a stack in a column is at `stack * width + column`.
    pub value: Vec<i64>,
}

impl EntityStacks {
    /// Returns the number of stacks.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks whether it is")]
    pub fn len(&self) -> usize {
        self.end.len()
    }

    /// Returns the entities of stack `i`, leaf first.
    pub fn get(&self, i: usize) -> &[u32] {
        let start = if i == 0 { 0 } else { self.end[i - 1] };
        &self.entity[start..self.end[i]]
    }

    /// Returns the values of stack `i`.
    pub fn values(&self, i: usize) -> &[i64] {
        &self.value[i * self.width..(i + 1) * self.width]
    }

    /// Copies the stacks with the numbers `which`, without the `depth` frames nearest to the root.
    pub fn below(&self, which: &[u32], depth: usize) -> Self {
        let mut below = Self {
            width: self.width,
            ..Self::default()
        };
        for &stack in which {
            let entities = self.get(stack as usize);
            let kept = entities.len().saturating_sub(depth);
            below.entity.extend_from_slice(&entities[..kept]);
            below.end.push(below.entity.len());
            below.value.extend_from_slice(self.values(stack as usize));
        }
        below
    }

    /// Merges equal stacks if any value is negative. Then values of both signs cancel before they
    /// are weighed, no matter how the file spread them over samples. Otherwise the stacks stay
    /// unchanged, because merging would not change their weights.
    pub fn merge_equal(self) -> Self {
        if self.value.iter().all(|&v| v >= 0) {
            return self;
        }
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_by(|&a, &b| self.get(a).cmp(self.get(b)));
        let mut settled = Self {
            width: self.width,
            ..Self::default()
        };
        for run in order.chunk_by(|&a, &b| self.get(a) == self.get(b)) {
            let at = settled.value.len();
            settled.entity.extend_from_slice(self.get(run[0]));
            settled.end.push(settled.entity.len());
            settled.value.resize(at + self.width, 0);
            for &i in run {
                for (sum, value) in settled.value[at..].iter_mut().zip(self.values(i)) {
                    *sum += value;
                }
            }
        }
        settled
    }
}
