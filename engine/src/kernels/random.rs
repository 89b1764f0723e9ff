//! Counter-based random numbers, the same bits as `lib/random.wgsl`.
//!
//! A number depends on (seed, step, node, row of the whole batch, element) alone: not on the adapter, the split of
//! the batch or the order of evaluation. Source: `pcg4d` of Jarzynski, Olano 2020, Hash Functions for GPU Rendering,
//! JCGT 9(3), which passes `BigCrush`.

/// The hash: four words to four words.
fn pcg4d(counter: [u32; 4]) -> [u32; 4] {
    let [x, y, z, w] = counter.map(|word| word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    let mixed = mix([x, y, z, w]).map(|word| word ^ (word >> 16));
    mix(mixed)
}

fn mix([x, y, z, w]: [u32; 4]) -> [u32; 4] {
    let x = x.wrapping_add(y.wrapping_mul(w));
    let y = y.wrapping_add(z.wrapping_mul(x));
    let z = z.wrapping_add(x.wrapping_mul(y));
    let w = w.wrapping_add(y.wrapping_mul(z));
    [x, y, z, w]
}

/// Hashes that [`RowKey::words`] computes together.
pub(crate) const LANES: usize = 16;

fn mix_lanes(words: &mut [[u32; LANES]; 4]) {
    let [x, y, z, w] = words;
    for lane in 0..LANES {
        x[lane] = x[lane].wrapping_add(y[lane].wrapping_mul(w[lane]));
        y[lane] = y[lane].wrapping_add(z[lane].wrapping_mul(x[lane]));
        z[lane] = z[lane].wrapping_add(x[lane].wrapping_mul(y[lane]));
        w[lane] = w[lane].wrapping_add(y[lane].wrapping_mul(z[lane]));
    }
}

/// Key of one row's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowKey([u32; 3]);

impl RowKey {
    /// The key of a row of the whole batch, at a node, in a training step, of a run with a seed.
    pub fn new(seed: u32, step: u32, node: u32, row: u32) -> Self {
        let [x, y, z, _] = pcg4d([seed, step, node, row]);
        Self([x, y, z])
    }

    /// The numbers of elements `4 block` to `4 block + 3`, uniform in `[0, 1)`: multiples of 2^-24, exact in f32.
    pub fn units(self, block: u32) -> [f32; 4] {
        let [x, y, z] = self.0;
        pcg4d([x, y, z, block]).map(|bits| (bits >> 8) as f32 * 5.960_464_5e-8)
    }

    /// Words of [`LANES`] blocks from `first` on, as `[[element of the block; block]; 4]`: units are `word >> 8` × 2^-24.
    ///
    /// The hash of [`units`](Self::units) over arrays, which the compiler vectorises.
    pub(crate) fn words(self, first: u32) -> [[u32; LANES]; 4] {
        let start = |word: u32| word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let [x, y, z] = self.0.map(|word| [start(word); LANES]);
        let mut words = [x, y, z, [0; LANES]];
        for (lane, word) in (first..).zip(&mut words[3]) {
            *word = start(lane);
        }
        mix_lanes(&mut words);
        words.as_flattened_mut().iter_mut().for_each(|word| *word ^= *word >> 16);
        mix_lanes(&mut words);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: u32 = 40_000;

    fn units(key: impl Fn(u32) -> RowKey) -> Vec<f64> {
        (0..N).flat_map(|i| key(i / 100).units(i % 100)).map(f64::from).collect()
    }

    /// Mean 1/2, variance 1/12, and no correlation: each within five standard errors.
    fn assert_uniform(units: &[f64]) {
        let n = units.len() as f64;
        let mean = units.iter().sum::<f64>() / n;
        let variance = units.iter().map(|u| (u - 0.5).powi(2)).sum::<f64>() / n;
        assert!((mean - 0.5).abs() < 5.0 / (12.0 * n).sqrt(), "mean {mean}");
        assert!((variance - 1.0 / 12.0).abs() < 5.0 / (180.0 * n).sqrt(), "variance {variance}");
        for lag in [1, 2, 3, 4, 5, 400] {
            let pairs = units.iter().zip(&units[lag..]);
            let correlation = pairs.map(|(a, b)| (a - 0.5) * (b - 0.5)).sum::<f64>() * 12.0 / n;
            assert!(correlation.abs() < 5.0 / n.sqrt(), "lag {lag}: {correlation}");
        }
    }

    #[test]
    fn numbers_are_uniform_and_independent() {
        assert_uniform(&units(|row| RowKey::new(7, 0, 3, row)));
        assert_uniform(&units(|step| RowKey::new(7, step, 3, 0)));
        assert_uniform(&units(|node| RowKey::new(0, 0, node, 0)));
        assert_uniform(&units(|seed| RowKey::new(seed, 1, 1, 1)));
    }

    #[test]
    fn many_hashes_at_once_are_the_same() {
        let key = RowKey::new(1, 2, 3, 4);
        let words = key.words(100);
        for (lane, block) in (100..).take(LANES).enumerate() {
            assert_eq!(words.map(|word| (word[lane] >> 8) as f32 / 16_777_216.0), key.units(block));
        }
    }

    #[test]
    fn every_bucket_gets_its_share() {
        let mut counts = [0.0f64; 64];
        for unit in units(|row| RowKey::new(1, 2, 3, row)) {
            assert!((0.0..1.0).contains(&unit));
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 64")]
            let bucket = (unit * 64.0) as usize;
            counts[bucket] += 1.0;
        }
        let expected = f64::from(4 * N) / 64.0;
        let chi_squared: f64 = counts.iter().map(|count| (count - expected).powi(2) / expected).sum();
        // 63 degrees of freedom: mean 63, standard deviation 11.2.
        assert!((20.0..120.0).contains(&chi_squared), "{chi_squared}");
    }
}
