//! Prices as the file writes them ("1.79", "4", "0.001") read exactly into pence: no floating point touches money.

/// Reads a decimal number of pounds into pence, rounded half up where it has more than two decimals. `None` if it is
/// no such number or too large.
pub fn pence(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (pounds, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if (pounds.is_empty() && fraction.is_empty()) || ![pounds, fraction].iter().all(|part| is_digits(part)) {
        return None;
    }
    let pounds: i64 = if pounds.is_empty() { 0 } else { pounds.parse().ok()? };
    let digit = |at: usize| fraction.as_bytes().get(at).map_or(0, |digit| i64::from(digit - b'0'));
    let rounded_up = i64::from(digit(2) >= 5);
    let magnitude = pounds.checked_mul(100)?.checked_add(digit(0) * 10 + digit(1) + rounded_up)?;
    Some(if negative { -magnitude } else { magnitude })
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::pence;

    #[test]
    fn decimals_become_exact_pence() {
        for (text, expected) in [
            ("1.79", Some(179)),
            ("4", Some(400)),
            ("0.1", Some(10)),
            ("0.29", Some(29)),
            (".5", Some(50)),
            ("0.001", Some(0)),
            ("0.005", Some(1)),
            ("1.994", Some(199)),
            ("1.995", Some(200)),
            ("-11062.06", Some(-1_106_206)),
            ("0", Some(0)),
            ("", None),
            (".", None),
            ("1e3", None),
            ("£1", None),
            ("1.2.3", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(pence(text), expected, "{text:?}");
        }
    }
}
