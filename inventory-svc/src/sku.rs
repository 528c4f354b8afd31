//! What is counted: SKUs, units, and the lines of a request merged per SKU. No I/O.

use std::{collections::BTreeMap, fmt};

/// A stock keeping unit: 1 to 128 of `[A-Za-z0-9 _.-]`. The alphabet keeps Redis hash tags, the lines' text and
/// error metadata free of quoting.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sku(String);

/// Text that is not a SKU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to 128 characters of [A-Za-z0-9 _.-]")]
pub struct NotASku;

impl Sku {
    /// Takes text that is a SKU.
    pub fn parse(text: &str) -> Result<Self, NotASku> {
        let fits = (1..=128).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" _.-".contains(&byte));
        if fits { Ok(Self(text.to_owned())) } else { Err(NotASku) }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Sku {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// A number of units, 1 to [`Units::MAX`]; small enough that sums stay exact in Lua's doubles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Units(i64);

impl Units {
    /// The most units one line, receipt or adjustment may name.
    pub const MAX: i64 = 1_000_000_000;
    /// The most units of a SKU that may ever be received, net.
    pub const RECEIVED_MAX: i64 = 1_000_000_000_000;

    /// Takes a number within the limits.
    pub const fn new(number: i64) -> Option<Self> {
        if number >= 1 && number <= Self::MAX { Some(Self(number)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> i64 {
        self.0
    }
}

/// One SKU and how many units of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The SKU.
    pub sku: Sku,
    /// How many.
    pub units: Units,
}

/// Lines merged per SKU and sorted by SKU: two requests that mean the same have equal lines. May be empty, for
/// what never held anything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lines(Vec<Line>);

/// The sum of a SKU's lines is more than [`Units::MAX`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("more than 1,000,000,000 units of {0}")]
pub struct TooManyUnits(pub Sku);

/// Text that is not lines.
#[derive(Debug, thiserror::Error)]
#[error("not lines")]
pub struct NotLines;

impl Lines {
    /// Sums the lines of each SKU and sorts them.
    pub fn merge(lines: impl IntoIterator<Item = Line>) -> Result<Self, TooManyUnits> {
        let mut sums = BTreeMap::<Sku, i64>::new();
        for line in lines {
            let sum = sums.entry(line.sku).or_default();
            *sum = sum.saturating_add(line.units.get());
        }
        let merged = sums.into_iter().map(|(sku, sum)| match Units::new(sum) {
            Some(units) => Ok(Line { sku, units }),
            None => Err(TooManyUnits(sku)),
        });
        merged.collect::<Result<_, _>>().map(Self)
    }

    /// The lines in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Line> {
        self.0.iter()
    }

    /// How many SKUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The SKUs at these places, counted from 1 as Lua counts. Places that do not exist are left out.
    pub fn skus_at(&self, places: &[usize]) -> Vec<Sku> {
        places
            .iter()
            .filter_map(|place| self.0.get(place.checked_sub(1)?))
            .map(|line| line.sku.clone())
            .collect()
    }

    /// `sku=units` joined by newlines: how lines stand in Redis and in a fingerprint.
    pub fn to_text(&self) -> String {
        let lines: Vec<String> =
            self.0.iter().map(|line| format!("{}={}", line.sku, line.units.get())).collect();
        lines.join("\n")
    }

    /// Reads [`Lines::to_text`] back.
    pub fn from_text(text: &str) -> Result<Self, NotLines> {
        let line = |line: &str| {
            let (sku, units) = line.split_once('=')?;
            Some(Line { sku: Sku::parse(sku).ok()?, units: Units::new(units.parse().ok()?)? })
        };
        if text.is_empty() {
            return Ok(Self::default());
        }
        text.split('\n').map(line).collect::<Option<Vec<_>>>().map(Self).ok_or(NotLines)
    }
}

impl<'a> IntoIterator for &'a Lines {
    type Item = &'a Line;
    type IntoIter = std::slice::Iter<'a, Line>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(sku: &str, units: i64) -> Line {
        Line { sku: Sku::parse(sku).unwrap(), units: Units::new(units).unwrap() }
    }

    #[test]
    fn skus_are_parsed_not_checked() {
        for right in ["A", "85049E", "gift 0001_40", "a.b-c", &"x".repeat(128)] {
            assert!(Sku::parse(right).is_ok(), "{right}");
        }
        for wrong in ["", "{A}", "a\nb", "a=b", "a,b", "é", "a\u{0}", &"x".repeat(129)] {
            assert_eq!(Sku::parse(wrong), Err(NotASku), "{wrong:?}");
        }
    }

    #[test]
    fn lines_of_one_sku_are_one_line() {
        let merged = Lines::merge([line("B", 1), line("A", 2), line("B", 3)]).unwrap();
        assert_eq!(merged.to_text(), "A=2\nB=4");
        let too_many = Lines::merge((0..2).map(|_| line("A", Units::MAX)));
        assert_eq!(too_many, Err(TooManyUnits(Sku::parse("A").unwrap())));
    }

    #[test]
    fn places_count_from_one() {
        let lines = Lines::merge([line("A", 1), line("B", 1)]).unwrap();
        assert_eq!(lines.skus_at(&[0, 2, 3]), [Sku::parse("B").unwrap()]);
    }

    proptest! {
        #[test]
        fn merging_keeps_every_unit_in_any_order(
            mut lines in prop::collection::vec(("[A-D]", 1..1_000i64), 0..40),
            seed in any::<prop::sample::Index>(),
        ) {
            let merge = |lines: &[(String, i64)]| Lines::merge(lines.iter().map(|(sku, units)| line(sku, *units))).unwrap();
            let merged = merge(&lines);
            let sum: i64 = merged.iter().map(|line| line.units.get()).sum();
            prop_assert_eq!(sum, lines.iter().map(|(_, units)| units).sum::<i64>());
            prop_assert_eq!(&Lines::from_text(&merged.to_text()).unwrap(), &merged);
            if !lines.is_empty() {
                let middle = seed.index(lines.len());
                lines.rotate_left(middle);
                prop_assert_eq!(merge(&lines), merged);
            }
        }
    }
}
