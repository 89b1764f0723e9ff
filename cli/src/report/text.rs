//! Text of a page: escaped names, and numbers with few digits.

use manyhands_engine::shown::shown;

/// Adds to a page.
pub fn write_to(html: &mut String, text: std::fmt::Arguments<'_>) {
    html.push_str(&text.to_string());
}

/// Text that a page shows as it is: no character of it is markup, none turns the direction of the others.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    // A line's end is no control character of a page.
    for (at, line) in text.split('\n').enumerate() {
        if at > 0 {
            safe.push('\n');
        }
        for character in shown(line).to_string().chars() {
            match character {
                '&' => safe.push_str("&amp;"),
                '<' => safe.push_str("&lt;"),
                '>' => safe.push_str("&gt;"),
                '"' => safe.push_str("&quot;"),
                '\'' => safe.push_str("&#39;"),
                _ => safe.push(character),
            }
        }
    }
    safe
}

/// Four significant digits at most: `0.0731`, `97.78`, `1.2e-5`.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return value.to_string();
    }
    if value == 0.0 {
        return "0".into();
    }
    let size = value.abs();
    if !(1e-4..1e7).contains(&size) {
        return format!("{value:.2e}");
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between -4 and 7")]
    let digits = (3.0 - size.log10().floor()).clamp(0.0, 7.0) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// `97.8 %`.
pub fn percent(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}

/// `48 s`, `3 min 20 s`, `2 h 5 min`.
pub fn duration(seconds: f64) -> String {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time is never negative")]
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        _ if seconds < 9.95 => format!("{seconds:.1} s"),
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_markup() {
        let name = "<script>alert('a & \"b\"')</script>\u{202e}\u{1b}\nnext";
        let expected = "&lt;script&gt;alert(&#39;a &amp; &quot;b&quot;&#39;)&lt;/script&gt;\\u{202e}\\u{1b}\nnext";
        assert_eq!(escaped(name), expected);
    }

    #[test]
    fn numbers_have_few_digits() {
        let cases =
            [(0.073_12, "0.07312"), (97.777_7, "97.78"), (1.2e-5, "1.20e-5"), (12_345.6, "12346"), (0.5, "0.5")];
        for (value, text) in cases.into_iter().chain([(0.0, "0"), (f64::NAN, "NaN"), (-3.0, "-3"), (1000.0, "1000")]) {
            assert_eq!(number(value), text);
        }
        assert_eq!(["9.9 s", "10 s", "3 min 20 s", "2 h 5 min"], [9.94, 9.96, 200.0, 7500.0].map(duration));
    }
}
