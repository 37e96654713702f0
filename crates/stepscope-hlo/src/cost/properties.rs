//! The figures of an instruction.

/// Operands and parts of results beyond this number have no figures of their own. A file of a few
/// megabytes may have many calls of a computation with many operands.
const MAX_OPERANDS: usize = 256;

/// The figures of an instruction, or of a computation as their sum. A figure that is 0 is not reported.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Properties {
    /// `flops`: floating-point operations (comparisons and operations of whole numbers, too).
    pub flops: f32,
    /// `transcendentals`: functions such as `tanh`, one for each element.
    pub transcendentals: f32,
    /// `bytes accessed`: read and written.
    pub bytes: f32,
    /// `optimal_seconds`: -1 for each custom call; XLA fills in no other value here.
    pub optimal_seconds: f32,
    /// `bytes accessedout{}`: written.
    pub output_bytes: f32,
    /// `bytes accessedout{N}`: written to part N of a tuple by a fusion.
    pub output_part_bytes: Vec<f32>,
    /// `bytes accessedN{}`: read of operand N.
    pub operand_bytes: Vec<f32>,
    /// `utilizationN{}`: share of operand N that is read.
    pub utilizations: Vec<f32>,
}

/// Calls `visit` for each pair of two lists; missing figures are 0.
fn zip(into: &mut Vec<f32>, from: &[f32], visit: impl Fn(&mut f32, f32)) {
    if into.len() < from.len() {
        into.resize(from.len().min(MAX_OPERANDS), 0.0);
    }
    for (into, from) in into.iter_mut().zip(from) {
        visit(into, *from);
    }
}

impl Properties {
    fn merge(&mut self, other: &Self, visit: impl Fn(&mut f32, f32)) {
        visit(&mut self.flops, other.flops);
        visit(&mut self.transcendentals, other.transcendentals);
        visit(&mut self.bytes, other.bytes);
        visit(&mut self.optimal_seconds, other.optimal_seconds);
        visit(&mut self.output_bytes, other.output_bytes);
        zip(
            &mut self.output_part_bytes,
            &other.output_part_bytes,
            &visit,
        );
        zip(&mut self.operand_bytes, &other.operand_bytes, &visit);
        zip(&mut self.utilizations, &other.utilizations, &visit);
    }

    /// Returns the bytes written and read of all operands, added in double precision: [`bytes`](Self::bytes) is an
    /// `f32` as XLA's, which loses small operands of large operations.
    ///
    /// The figures of a fusion go on after its operands with sums over the instructions inside, as XLA's do.
    pub fn exact_bytes(&self, operands: usize) -> f64 {
        let operands = self.operand_bytes.iter().take(operands);
        let operands = operands.map(|bytes| f64::from(*bytes));
        f64::from(self.output_bytes) + operands.sum::<f64>()
    }

    /// Adds the figures of another instruction.
    pub(super) fn add(&mut self, other: &Self) {
        self.merge(other, |into, from| *into += from);
    }

    /// Keeps the larger one of each figure.
    pub(super) fn maximum(&mut self, other: &Self) {
        self.merge(other, |into, from| {
            if from > *into {
                *into = from;
            }
        });
    }

    /// Adds the work, but not the bytes, of a computation that runs `times`.
    pub(super) fn add_scaled_work(&mut self, other: &Self, times: f32) {
        self.flops += other.flops * times;
        self.transcendentals += other.transcendentals * times;
        self.optimal_seconds += other.optimal_seconds * times;
    }

    /// Sets the bytes written to a part of a tuple.
    pub(super) fn set_output_part(&mut self, index: usize, bytes: f32) {
        set(&mut self.output_part_bytes, index, bytes);
    }

    /// Sets the bytes read of an operand.
    pub(super) fn set_operand(&mut self, index: usize, bytes: f32) {
        set(&mut self.operand_bytes, index, bytes);
    }

    /// Sets the share of an operand that is read.
    pub(super) fn set_utilization(&mut self, index: usize, share: f32) {
        set(&mut self.utilizations, index, share);
    }

    /// Returns every figure that is not 0, with XLA's name for it.
    pub fn named(&self) -> Vec<(String, f32)> {
        let list = |figures: &[f32], name: &dyn Fn(usize) -> String| -> Vec<(String, f32)> {
            figures
                .iter()
                .enumerate()
                .map(|(index, figure)| (name(index), *figure))
                .collect()
        };
        let mut named = vec![
            ("flops".to_owned(), self.flops),
            ("transcendentals".to_owned(), self.transcendentals),
            ("bytes accessed".to_owned(), self.bytes),
            ("optimal_seconds".to_owned(), self.optimal_seconds),
            ("bytes accessedout{}".to_owned(), self.output_bytes),
        ];
        named.extend(list(&self.output_part_bytes, &|index| {
            format!("bytes accessedout{{{index}}}")
        }));
        named.extend(list(&self.operand_bytes, &|index| {
            format!("bytes accessed{index}{{}}")
        }));
        named.extend(list(&self.utilizations, &|index| {
            format!("utilization{index}{{}}")
        }));
        named.retain(|(_name, figure)| *figure != 0.0);
        named
    }
}

fn set(figures: &mut Vec<f32>, index: usize, value: f32) {
    if index >= MAX_OPERANDS {
        return;
    }
    if figures.len() <= index {
        figures.resize(index + 1, 0.0);
    }
    figures[index] = value;
}
