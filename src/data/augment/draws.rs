//! Random numbers of a row.

use rand::RngExt;
use rand::rand_core::Rng;

/// Numbers drawn one after the other.
pub(super) struct Draws<R>(pub R);

impl<R: Rng> Draws<R> {
    /// A number from 0, below 1.
    pub fn uniform(&mut self) -> f32 {
        self.0.random()
    }

    /// A number from the least, below the most.
    pub fn between(&mut self, [least, most]: [f32; 2]) -> f32 {
        least + (most - least) * self.uniform()
    }

    /// True with this probability.
    pub fn is_below(&mut self, probability: f32) -> bool {
        self.uniform() < probability
    }

    /// A whole number below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        self.0.random_range(0..count.max(1))
    }

    /// A number of the normal distribution. Source: Box & Muller 1958.
    #[allow(clippy::cast_possible_truncation, reason = "the nearest f32 is meant")]
    pub fn normal(&mut self) -> f32 {
        let (radius, angle): (f64, f64) = (1.0 - self.0.random::<f64>(), self.0.random());
        ((-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()) as f32
    }

    /// A number of the beta distribution of two equal shapes. Source: Jöhnk 1964.
    #[allow(clippy::cast_possible_truncation, reason = "the nearest f32 is meant")]
    pub fn beta(&mut self, alpha: f32) -> f32 {
        let power = 1.0 / f64::from(alpha);
        loop {
            let [a, b] = [self.0.random::<f64>().powf(power), self.0.random::<f64>().powf(power)];
            // Both are 0 where a small alpha takes them below the smallest number.
            if a + b > 0.0 && a + b <= 1.0 {
                return (a / (a + b)) as f32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// Mean and variance of 20,000 numbers.
    fn moments(mut draw: impl FnMut(&mut Draws<ChaCha8Rng>) -> f32) -> (f64, f64) {
        const COUNT: u32 = 20_000;
        let mut draws = Draws(ChaCha8Rng::seed_from_u64(1));
        let numbers: Vec<f64> = (0..COUNT).map(|_| f64::from(draw(&mut draws))).collect();
        let mean = numbers.iter().sum::<f64>() / f64::from(COUNT);
        (mean, numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / f64::from(COUNT))
    }

    #[test]
    fn numbers_have_mean_and_variance_of_their_distribution() {
        let close = |(mean, variance): (f64, f64), (needed_mean, needed): (f64, f64)| {
            // Five standard errors of 20,000 numbers, whose fourth moment is at most that of the normal distribution.
            let is_mean = (mean - needed_mean).abs() < 5.0 * (needed / 20_000.0).sqrt();
            assert!(is_mean && (variance / needed - 1.0).abs() < 0.05, "{mean} {variance}");
        };
        close(moments(Draws::normal), (0.0, 1.0));
        close(moments(|draws| draws.between([-1.0, 3.0])), (1.0, 16.0 / 12.0));
        // The variance of a beta distribution of two equal shapes is 1 / (4 (2 alpha + 1)).
        for alpha in [0.05, 0.2, 1.0, 2.5] {
            close(moments(|draws| draws.beta(alpha)), (0.5, 0.25 / (2.0 * f64::from(alpha) + 1.0)));
        }
    }
}
