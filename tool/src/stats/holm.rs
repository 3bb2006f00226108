//! Correction for many comparisons at once (Holm 1979).

/// The probability of error at which each comparison of a family is to be judged, so that the family
/// as a whole raises a false alarm with probability `alpha` at most, whatever they have in common.
///
/// In the order of their p values, the first of m comparisons is judged at `alpha`/m, the next at
/// `alpha`/(m − 1), and so on while each passes; the first that does not pass, and all after it, are
/// judged at the level that this one failed. An interval at its level excludes 0 exactly where Holm's
/// test rejects.
pub fn holm(p_values: &[f64], alpha: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&a, &b| p_values[a].total_cmp(&p_values[b]));
    let mut levels = vec![alpha; p_values.len()];
    let mut left = p_values.len();
    for index in order {
        levels[index] = alpha / left as f64;
        if p_values[index] <= levels[index] {
            left -= 1;
        }
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_step_is_easier_than_the_last_until_one_fails() {
        let levels = holm(&[0.04, 0.001, 0.02, 0.5], 0.05);
        // 0.001 passes at 0.05/4; 0.02 fails at 0.05/3, and with it the rest.
        let third = 0.05 / 3.0;
        assert_eq!(levels, [third, 0.0125, third, third]);
        assert_eq!(holm(&[0.2], 0.05), [0.05]);
        assert!(holm(&[], 0.05).is_empty());
    }

    proptest! {
        #[test]
        fn between_bonferroni_and_no_correction(p_values in prop::collection::vec(0.0..1.0f64, 1..40)) {
            let bonferroni = 0.05 / p_values.len() as f64;
            for (p_value, level) in p_values.iter().zip(holm(&p_values, 0.05)) {
                prop_assert!(bonferroni <= level && level <= 0.05);
                prop_assert!(*p_value > bonferroni || *p_value <= level);
            }
        }
    }
}
