//! Charts of curves as SVG: both axes logarithmic, a line for linear growth beside the measured one.
//! The same points give the same file.

use std::fmt::Write as _;

/// A measured curve.
#[derive(Debug)]
pub(super) struct Curve {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// Unit of the sizes.
    pub(super) size: &'static str,
    /// Sizes and milliseconds, both above zero, in the order of sizes.
    pub(super) points: Vec<(f64, f64)>,
    pub(super) exponent: f64,
}

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 44.0;

/// One axis: whole powers of ten around all values, and the pixels of its two ends.
struct Axis {
    low: i32,
    high: i32,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Self {
        let low = values.clone().fold(f64::MAX, f64::min).log10().floor();
        let high = values.fold(f64::MIN_POSITIVE, f64::max).log10().ceil();
        #[expect(clippy::cast_possible_truncation, reason = "powers of ten of times and sizes")]
        let (low, high) = (low as i32, high as i32);
        Self { low, high: high.max(low + 1), from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let part = (value.log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// The powers of ten with their labels.
    fn ticks(&self) -> impl Iterator<Item = (f64, String)> {
        (self.low..=self.high).map(|power| {
            let value = 10_f64.powi(power);
            let label = match power {
                6.. => format!("{} M", 10_f64.powi(power - 6)),
                3..6 => format!("{} k", 10_f64.powi(power - 3)),
                _ => format!("{value}"),
            };
            (value, label)
        })
    }
}

/// The chart of a curve.
pub(super) fn svg(curve: &Curve) -> String {
    let x = Axis::new(curve.points.iter().map(|point| point.0), LEFT, WIDTH - RIGHT);
    let y = Axis::new(curve.points.iter().map(|point| point.1), HEIGHT - BOTTOM, TOP);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"13\" fill=\"#222222\">{}: exponent {:.2}</text>\n",
        curve.what, curve.exponent
    );
    let mut add = |line: String| {
        // Writing to a String cannot fail.
        writeln!(text, "{line}").unwrap_or_default();
    };
    for (value, label) in x.ticks() {
        let at = x.at(value);
        add(format!("<path d=\"M{at:.1} {TOP}V{:.1}\" stroke=\"#dddddd\"/>", HEIGHT - BOTTOM));
        let below = HEIGHT - BOTTOM + 16.0;
        add(format!(
            "<text x=\"{at:.1}\" y=\"{below}\" text-anchor=\"middle\" fill=\"#444444\">{label}</text>"
        ));
    }
    for (value, label) in y.ticks() {
        let at = y.at(value);
        add(format!("<path d=\"M{LEFT} {at:.1}H{:.1}\" stroke=\"#dddddd\"/>", WIDTH - RIGHT));
        let left = LEFT - 6.0;
        add(format!(
            "<text x=\"{left}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#444444\">{label}</text>",
            at + 4.0
        ));
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    let bottom = HEIGHT - 8.0;
    add(format!(
        "<text x=\"{middle}\" y=\"{bottom}\" text-anchor=\"middle\" fill=\"#222222\">{}, against milliseconds</text>",
        curve.size
    ));
    if let Some((last_x, last_y)) = curve.points.last() {
        // Linear growth to the last point.
        let linear: Vec<(f64, f64)> =
            curve.points.iter().map(|(size, _)| (*size, last_y * size / last_x)).collect();
        let shown: Vec<&(f64, f64)> =
            linear.iter().filter(|(_, time)| *time >= 10_f64.powi(y.low)).collect();
        add(line(&shown, &x, &y, "stroke=\"#999999\" stroke-dasharray=\"4 3\""));
    }
    let points: Vec<&(f64, f64)> = curve.points.iter().collect();
    add(line(&points, &x, &y, "stroke=\"#1f6feb\" stroke-width=\"2\""));
    for (size, time) in &curve.points {
        add(format!(
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"#1f6feb\"/>",
            x.at(*size),
            y.at(*time)
        ));
    }
    add("</svg>".to_owned());
    text
}

fn line(points: &[&(f64, f64)], x: &Axis, y: &Axis, style: &str) -> String {
    let places: Vec<String> = points
        .iter()
        .map(|(size, time)| format!("{:.1},{:.1}", x.at(*size), y.at(*time)))
        .collect();
    format!("<polyline points=\"{}\" fill=\"none\" {style}/>", places.join(" "))
}

#[cfg(test)]
mod tests {
    use super::{Curve, svg};

    #[test]
    fn a_chart_shows_every_point_and_is_the_same_each_time() {
        let points = vec![(1.0, 0.4), (100.0, 3.0), (10_000.0, 250.0)];
        let curve = Curve { name: "c", what: "a run", size: "files", points, exponent: 0.96 };
        let chart = svg(&curve);
        assert_eq!(chart, svg(&curve));
        assert_eq!(chart.matches("<circle").count(), 3);
        assert_eq!(chart.matches("<polyline").count(), 2);
        for label in [">1<", ">10 k<", ">0.1<", ">1 k<", "exponent 0.96", "files, against"] {
            assert!(chart.contains(label), "{label}: {chart}");
        }
        let places = chart.split('"').filter_map(|part| part.parse::<f64>().ok());
        assert!(places.into_iter().all(|place| (0.0..=480.0).contains(&place)), "{chart}");
    }
}
