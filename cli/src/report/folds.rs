//! Scores of folds in words.

use manyhands::logs::Values;

use super::spread::mean_and_deviation;
use super::text::number;

/// `loss 0.1234, accuracy 0.95`.
pub fn values_of(values: &Values) -> String {
    values.iter().map(|(name, value)| format!("{name} {}", number(value))).collect::<Vec<_>>().join(", ")
}

/// `mean of 5 folds: loss 0.1234 ± 0.02, accuracy 0.95 ± 0.01`.
pub fn mean_of(folds: &[Values]) -> String {
    let Some(first) = folds.first() else { return "no fold has a score".into() };
    let told = first.iter().map(|(name, _)| {
        let values: Vec<f64> = folds.iter().filter_map(|fold| fold.get(name)).collect();
        let (mean, deviation) = mean_and_deviation(&values, 1);
        format!("{name} {} ± {}", number(mean), number(deviation))
    });
    format!("mean of {} folds ± standard deviation: {}", folds.len(), told.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_that_of_a_sample() {
        let fold = |value: f64| {
            let mut values = Values::default();
            values.set("loss", value);
            values
        };
        // The textbook's: 2, 4, 4, 4, 5, 5, 7, 9 have the mean 5 and 32 / 7 as variance of a sample.
        let told = mean_of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0].map(fold));
        assert_eq!(told, "mean of 8 folds ± standard deviation: loss 5 ± 2.138");
        assert_eq!(mean_of(&[]), "no fold has a score");
    }
}
