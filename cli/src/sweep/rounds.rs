//! Successive halving: all trials are trained for a few epochs, the best part of them for more, and so on.
//!
//! Source: Jamieson, Talwalkar 2016, arXiv:1502.07943, algorithm 1. Rounds wait for their last trial: which trials go on then
//! depends on the results alone, not on the number or the speed of the adapters.

/// The last epoch of each round, and the part of the trials that goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// The last epoch of each round.
    pub epochs: Vec<u64>,
    /// One of so many trials goes on to the next round.
    factor: usize,
}

impl Rounds {
    /// Rounds for some trials, up to an epoch; the first has at least `first` epochs. With the factor 1 there is one round.
    pub fn new(epochs: u64, trials: usize, factor: usize, first: u64) -> Self {
        let (mut list, mut last, mut left) = (vec![epochs], epochs, trials);
        while factor > 1 && left > 1 && last / factor as u64 >= first.max(1) {
            last /= factor as u64;
            left = left.div_ceil(factor);
            list.push(last);
        }
        list.reverse();
        Self { epochs: list, factor }
    }

    /// The trials of each round, if none fails.
    pub fn trials(&self, trials: usize) -> impl Iterator<Item = usize> {
        let next = |left: &usize| Some(self.kept(*left));
        std::iter::successors(Some(trials), next).take(self.epochs.len())
    }

    /// Of so many trials, those that go on.
    pub fn kept(&self, trials: usize) -> usize {
        trials.div_ceil(self.factor.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_goes_on_for_three_times_as_many_epochs() {
        let of = |epochs, trials, factor, first| {
            let rounds = Rounds::new(epochs, trials, factor, first);
            let trials: Vec<usize> = rounds.trials(trials).collect();
            rounds.epochs.into_iter().zip(trials).collect::<Vec<_>>()
        };
        assert_eq!(of(12, 12, 3, 1), [(1, 12), (4, 4), (12, 2)]);
        assert_eq!(of(30, 20, 3, 1), [(1, 20), (3, 7), (10, 3), (30, 1)]);
        assert_eq!(of(30, 20, 3, 5), [(10, 20), (30, 7)]);
        assert_eq!(of(30, 20, 1, 1), [(30, 20)], "all are trained to the end");
        assert_eq!(of(2, 20, 3, 1), [(2, 20)]);
        assert_eq!(of(100, 1, 3, 1), [(100, 1)]);
    }
}
