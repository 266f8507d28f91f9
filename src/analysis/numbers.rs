//! How numbers are written in sentences, tables and on axes.

use crate::math::statistics::Estimate;

/// A count, with a comma between thousands from 10,000 on.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    if value < 10_000 {
        return digits;
    }
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number with a fixed number of decimals and a true minus sign; never "-0".
pub fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    match text.strip_prefix('-') {
        Some(rest) if rest.chars().all(|c| matches!(c, '0' | '.')) => rest.to_owned(),
        Some(rest) => format!("\u{2212}{rest}"),
        None => text,
    }
}

/// As [`fixed`], with a plus sign before positive numbers.
pub fn signed(value: f64, decimals: usize) -> String {
    let text = fixed(value, decimals);
    let zero = text.chars().all(|c| matches!(c, '0' | '.'));
    if zero || text.starts_with('\u{2212}') {
        text
    } else {
        format!("+{text}")
    }
}

/// A number with about `digits` significant digits; scientific only where it would be long.
pub fn significant(value: f64, digits: i32) -> String {
    if !value.is_finite() {
        return value.to_string();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor() as i32;
    if !(-4..7).contains(&magnitude) {
        let decimals = (digits - 1).max(0) as usize;
        return format!("{value:.decimals$e}").replace('-', "\u{2212}");
    }
    fixed(value, (digits - 1 - magnitude).max(0) as usize)
}

/// Decimals that show a half width with two significant digits, else the mean with four.
pub fn decimals(estimate: &Estimate) -> usize {
    let shown = |x: f64, digits: i32| {
        let magnitude = x.abs().log10().floor();
        if magnitude.is_finite() {
            (digits - 1 - magnitude as i32).clamp(0, 8) as usize
        } else {
            0
        }
    };
    match estimate.half_width {
        Some(h) if h > 0.0 => shown(h, 2).min(shown(estimate.mean, 4).max(2)),
        _ => shown(estimate.mean, 4),
    }
}

/// Mean and half width, `97.83 ± 0.41`; the mean alone where there is no interval. Both are
/// multiplied by `factor` first (100 for per cent).
pub fn with_interval(estimate: &Estimate, factor: f64, decimals: usize) -> String {
    let mean = fixed(estimate.mean * factor, decimals);
    match estimate.half_width {
        Some(h) => format!("{mean} ± {}", fixed(h * factor, decimals)),
        None => mean,
    }
}

/// As [`with_interval`], with the sign of the mean shown.
pub fn change(estimate: &Estimate, factor: f64, decimals: usize) -> String {
    let mean = signed(estimate.mean * factor, decimals);
    match estimate.half_width {
        Some(h) => format!("{mean} ± {}", fixed(h * factor, decimals)),
        None => mean,
    }
}

/// Two counts, `295 to 340`; one where they round to the same.
pub fn span((low, high): (f64, f64)) -> String {
    let [low, high] = [low, high].map(|v| count(v.round() as u64));
    if low == high {
        low
    } else {
        format!("{low} to {high}")
    }
}

/// "1 trial", "3 trials".
pub fn plural(n: usize, one: &str, many: &str) -> String {
    format!("{} {}", count(n as u64), if n == 1 { one } else { many })
}

/// "a", "a and b", "a, b and c".
pub fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_written_by_hand() {
        assert_eq!(count(8192), "8192");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(fixed(-0.001, 2), "0.00");
        assert_eq!(fixed(-1.5, 1), "\u{2212}1.5");
        assert_eq!(signed(0.25, 2), "+0.25");
        assert_eq!(signed(0.0, 2), "0.00");
        assert_eq!(significant(0.012_345, 3), "0.0123");
        assert_eq!(significant(2.301_9, 3), "2.30");
        assert_eq!(significant(1.0e9, 3), "1.00e9");
        assert_eq!(span((312.0, 312.4)), "312");
        assert_eq!(span((312.0, 12_000.0)), "312 to 12,000");
        assert_eq!(list(&["a".into(), "b".into(), "c".into()]), "a, b and c");
    }

    #[test]
    fn the_interval_sets_the_decimals() {
        let estimate = Estimate::of(&[0.512, 0.498, 0.505]).unwrap();
        assert_eq!(
            with_interval(&estimate, 1.0, decimals(&estimate)),
            "0.505 ± 0.017"
        );
        let one = Estimate::of(&[0.512_34]).unwrap();
        assert_eq!(with_interval(&one, 1.0, decimals(&one)), "0.5123");
    }
}
