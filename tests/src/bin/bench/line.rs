//! The last line of a bench: its name and its figures, for programs to read.

use std::fmt;

/// `name key=value …`.
#[derive(Debug)]
pub(crate) struct Line {
    name: &'static str,
    figures: Vec<(&'static str, String)>,
}

impl Line {
    pub(crate) fn of(name: &'static str) -> Self {
        Self { name, figures: Vec::new() }
    }

    /// Adds a figure with so many digits behind the point.
    pub(crate) fn figure(mut self, key: &'static str, value: f64, digits: usize) -> Self {
        self.figures.push((key, format!("{value:.digits$}")));
        self
    }

    /// Adds a number of things.
    pub(crate) fn number(mut self, key: &'static str, value: u64) -> Self {
        self.figures.push((key, value.to_string()));
        self
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        self.figures.iter().try_for_each(|(key, value)| write!(f, " {key}={value}"))
    }
}

/// The middle one; of an even number the mean of the two in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        even if even % 2 == 0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, median};

    #[test]
    fn a_line_is_its_name_and_its_figures() {
        let line = Line::of("engine").figure("ratio", 7.96, 1).number("unfinished", 0);
        assert_eq!(line.to_string(), "engine ratio=8.0 unfinished=0");
    }

    #[test]
    fn the_median_is_in_the_middle() {
        for (values, expected) in [(vec![3.0, 1.0, 2.0], 2.0), (vec![4.0, 1.0], 2.5), (vec![7.0], 7.0)] {
            assert!((median(values) - expected).abs() < f64::EPSILON);
        }
    }
}
