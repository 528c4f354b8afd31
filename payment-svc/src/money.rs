//! Money as whole minor units of one currency. Never negative, and every sum is checked.
//!
//! Absent: conversion between currencies; nothing here ever adds two of them.

use std::fmt;

/// An amount in a currency's smallest unit, zero or more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MinorUnits(i64);

impl MinorUnits {
    /// Nothing.
    pub(crate) const ZERO: MinorUnits = MinorUnits(0);

    /// `None` below zero.
    pub(crate) fn new(units: i64) -> Option<Self> {
        (units >= 0).then_some(MinorUnits(units))
    }

    /// The number of units.
    pub(crate) fn get(self) -> i64 {
        self.0
    }

    /// Whether it is nothing.
    pub(crate) fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// `None` on overflow.
    pub(crate) fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(MinorUnits)
    }

    /// `None` if `other` is more.
    pub(crate) fn checked_sub(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).and_then(Self::new)
    }
}

/// An ISO 4217 code: three upper case letters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Currency([u8; 3]);

impl Currency {
    /// `None` unless the text is three upper case letters.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let code: [u8; 3] = text.as_bytes().try_into().ok()?;
        code.iter().all(u8::is_ascii_uppercase).then_some(Currency(code))
    }

    /// The code.
    pub(crate) fn as_str(&self) -> &str {
        // Parsed from upper case ASCII letters only.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An amount of one currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Money {
    /// In what.
    pub currency: Currency,
    /// How much.
    pub units: MinorUnits,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_never_negative_and_never_wraps() {
        assert_eq!(MinorUnits::new(-1), None);
        let most = MinorUnits::new(i64::MAX).unwrap();
        let one = MinorUnits::new(1).unwrap();
        assert_eq!(most.checked_add(one), None);
        assert_eq!(one.checked_sub(most), None);
        assert_eq!(one.checked_sub(one), Some(MinorUnits::ZERO));
    }

    #[test]
    fn a_currency_is_three_upper_case_letters() {
        assert_eq!(Currency::parse("GBP").unwrap().as_str(), "GBP");
        for text in ["", "gbp", "GB", "GBPX", "G1P", "G P"] {
            assert_eq!(Currency::parse(text), None, "{text}");
        }
    }
}
