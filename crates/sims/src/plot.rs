//! Plots of a report: curves or bars, one panel each, stacked in one SVG.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde::Serialize;

/// One panel.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Plot {
    /// Caption.
    pub title: String,
    /// What the horizontal axis shows, with its unit.
    pub x_label: String,
    /// What the vertical axis shows, with its unit.
    pub y_label: String,
    /// Logarithmic horizontal axis.
    pub x_log: bool,
    /// Logarithmic vertical axis.
    pub y_log: bool,
    /// Bars: names along the horizontal axis; point `(i, y)` is drawn above name `i`.
    pub bars: Vec<String>,
    /// The curves.
    pub series: Vec<Series>,
}

/// One curve, or one bar of each group.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Series {
    /// As in the legend.
    pub name: String,
    /// (x, y) in the axes' units.
    pub points: Vec<(f64, f64)>,
}

impl Plot {
    /// A panel of curves.
    pub fn lines(title: &str, x_label: &str, y_label: &str) -> Plot {
        Plot {
            title: title.to_owned(),
            x_label: x_label.to_owned(),
            y_label: y_label.to_owned(),
            ..Plot::default()
        }
    }

    /// A panel of bars above these names.
    pub fn bars<N: Into<String>>(
        title: &str,
        y_label: &str,
        names: impl IntoIterator<Item = N>,
    ) -> Plot {
        Plot {
            bars: names.into_iter().map(Into::into).collect(),
            ..Plot::lines(title, "", y_label)
        }
    }

    /// Adds a curve.
    #[must_use]
    pub fn series(mut self, name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Plot {
        self.series.push(Series {
            name: name.to_owned(),
            points: points.into_iter().collect(),
        });
        self
    }

    /// Adds a bar of this height above each name.
    #[must_use]
    pub fn heights(self, name: &str, heights: impl IntoIterator<Item = f64>) -> Plot {
        let heights = heights.into_iter().enumerate();
        self.series(name, heights.map(|(at, height)| (at as f64, height)))
    }

    /// Sets which axes are logarithmic.
    #[must_use]
    pub fn log(mut self, x: bool, y: bool) -> Plot {
        (self.x_log, self.y_log) = (x, y);
        self
    }
}

impl Plot {
    /// Whether the horizontal axis has whole numbers only.
    fn counts(&self) -> bool {
        let mut points = self.series.iter().flat_map(|series| &series.points);
        points.all(|point| point.0.fract() == 0.0)
    }

    /// The points of a series that the axes can show, and its name in the legend.
    fn drawable(&self, series: &Series) -> (Vec<(f64, f64)>, String) {
        let shows = |p: &&(f64, f64)| {
            let finite = p.0.is_finite() && p.1.is_finite();
            finite && (!self.x_log || p.0 > 0.0) && (!self.y_log || p.1 > 0.0)
        };
        let points: Vec<(f64, f64)> = series.points.iter().filter(shows).copied().collect();
        // A logarithmic axis cannot show a series that is always 0.
        let nothing = points.is_empty() && series.points.iter().any(|p| p.1 == 0.0);
        let name = match nothing {
            true => format!("{}: 0", series.name),
            false => series.name.clone(),
        };
        (points, name)
    }

    /// Width of a series' line: wider for each equal series that is drawn on top of it.
    fn stroke(&self, at: usize) -> u32 {
        let points = &self.series[at].points;
        let equal = self.series[at + 1..].iter();
        let equal = equal.filter(|series| series.points == *points).count();
        2 + 3 * u32::try_from(equal).unwrap_or(0)
    }
}

const WIDTH: u32 = 900;
const HEIGHT: u32 = 480;
/// Colours that colour-blind readers can tell apart (after Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 92, 169),
    RGBColor(222, 115, 32),
    RGBColor(0, 143, 105),
    RGBColor(190, 80, 140),
    RGBColor(94, 172, 224),
    RGBColor(150, 120, 20),
    RGBColor(105, 85, 180),
    RGBColor(110, 118, 130),
];

/// Draws the panels below each other.
///
/// # Errors
/// When the drawing library refuses.
pub fn svg(plots: &[Plot]) -> Result<String> {
    let mut out = String::new();
    {
        let height = HEIGHT * plots.len().max(1) as u32;
        let root = SVGBackend::with_string(&mut out, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE).map_err(fail)?;
        for (area, plot) in root.split_evenly((plots.len().max(1), 1)).iter().zip(plots) {
            panel(area, plot)?;
        }
        root.present().map_err(fail)?;
    }
    Ok(out)
}

fn fail(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("plot: {error}")
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn panel(area: &Area<'_>, plot: &Plot) -> Result<()> {
    let points = || {
        plot.series
            .iter()
            .flat_map(|series| series.points.iter().copied())
    };
    let x = if plot.bars.is_empty() {
        span(points().map(|p| p.0), plot.x_log)
    } else {
        -0.5..plot.bars.len() as f64 - 0.5
    };
    let y = span(points().map(|p| p.1), plot.y_log);
    // A decade or so on a logarithmic axis has no two numbers beside it.
    let y_log = plot.y_log && y.end / y.start >= DECADES;
    let y = with_room(y, y_log, headroom(plot.series.len()));
    let plot = &Plot {
        y_log,
        ..plot.clone()
    };
    match (plot.x_log && plot.bars.is_empty(), y_log) {
        (false, false) => draw(area, plot, x, y),
        (true, false) => draw(area, plot, x.log_scale(), y),
        (false, true) => draw(area, plot, x, y.log_scale()),
        (true, true) => draw(area, plot, x.log_scale(), y.log_scale()),
    }
}

/// What a logarithmic axis has to span.
const DECADES: f64 = 30.0;

/// The part of the height that stays free for the legend, which must not hide what is drawn; one
/// curve takes none.
fn headroom(series: usize) -> f64 {
    match series {
        0 | 1 => 0.05,
        many => (0.05 + 0.05 * many as f64).min(0.5),
    }
}

/// The range with this much free space above it, and a little below it if zero is outside.
fn with_room(range: std::ops::Range<f64>, log: bool, room: f64) -> std::ops::Range<f64> {
    let above = room / (1.0 - room);
    if log {
        let ratio = range.end / range.start;
        return range.start / ratio.powf(0.04)..range.end * ratio.powf(above);
    }
    let low = range.start.min(0.0);
    low..range.end + (range.end - low) * above
}

/// The range that holds all values, never empty.
fn span(values: impl Iterator<Item = f64>, log: bool) -> std::ops::Range<f64> {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values.filter(|value| value.is_finite() && (!log || *value > 0.0)) {
        low = low.min(value);
        high = high.max(value);
    }
    match (low <= high, low < high) {
        (false, _) if log => 1.0..10.0,
        (false, _) => 0.0..1.0,
        (true, false) if log => low / 2.0..low * 2.0,
        (true, false) => low - 0.5..low + 0.5,
        (true, true) => low..high,
    }
}

fn draw<X, Y>(area: &Area<'_>, plot: &Plot, x: X, y: Y) -> Result<()>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .caption(&plot.title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(x, y)
        .map_err(fail)?;
    // Between whole numbers of hosts there is nothing to label.
    let whole = plot.counts();
    let name_of = |value: &f64| -> String {
        let near = value.round();
        match plot.bars.is_empty() {
            _ if whole && (value - near).abs() > 0.01 => String::new(),
            true => tick(*value),
            false => plot.bars.get(near as usize).cloned().unwrap_or_default(),
        }
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .x_labels(if plot.bars.is_empty() {
            10
        } else {
            plot.bars.len() * 2 + 1
        })
        .x_label_formatter(&name_of)
        .y_label_formatter(&|value| tick(*value))
        .x_desc(&plot.x_label)
        .y_desc(&plot.y_label)
        .draw()
        .map_err(fail)?;
    for (at, series) in plot.series.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()].to_rgba();
        let (points, name) = plot.drawable(series);
        let drawn = if plot.bars.is_empty() {
            let width = plot.stroke(at);
            let dot = |p: &(f64, f64)| Circle::new(*p, width + 1, colour.filled());
            chart.draw_series(points.iter().map(dot)).map_err(fail)?;
            let line = LineSeries::new(points, colour.stroke_width(width));
            chart.draw_series(line).map_err(fail)?
        } else {
            let width = 0.8 / plot.series.len() as f64;
            let left = -0.4 + width * at as f64;
            let floor = if plot.y_log { f64::MIN_POSITIVE } else { 0.0 };
            let bar = |p: &(f64, f64)| {
                let corners = [(p.0 + left, floor), (p.0 + left + width * 0.92, p.1)];
                Rectangle::new(corners, colour.filled())
            };
            if plot.series.len() == 1 {
                let style = ("sans-serif", 15).into_font().into_text_style(area);
                let style = style.pos(Pos::new(HPos::Center, VPos::Bottom));
                let label = |p: &(f64, f64)| Text::new(figure(p.1), *p, style.clone());
                chart.draw_series(points.iter().map(label)).map_err(fail)?;
            }
            chart.draw_series(points.iter().map(bar)).map_err(fail)?
        };
        drawn
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
    }
    if plot.series.len() > 1 {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()
            .map_err(fail)?;
    }
    Ok(())
}

/// A figure above a bar: two digits that count, more before the point.
fn figure(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".to_owned();
    }
    let digits = (1.0 - value.abs().log10().floor()).clamp(0.0, 9.0);
    let text = format!("{value:.*}", digits as usize);
    match text.strip_suffix(".0") {
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

fn tick(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        small if small < 0.01 => format!("{value:.0e}"),
        large if large >= 1e5 => format!("{value:.0e}"),
        _ => {
            let text = format!("{value:.2}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short_and_zero_is_named() {
        let shown = [9.704, 8.0, 0.0085, 1575.2, 0.59, 0.0].map(figure);
        assert_eq!(shown, ["9.7", "8", "0.0085", "1575", "0.59", "0"]);
        let plot = Plot::lines("t", "x", "y")
            .log(false, true)
            .series("some", vec![(1.0, 1.0), (2.0, 1000.0)])
            .series("none", vec![(1.0, 0.0), (2.0, 0.0)]);
        assert!(svg(&[plot]).expect("drawn").contains("none: 0"));
        let bars = Plot::bars("t", "y", ["a", "b"]).heights("", [3.25, 0.0]);
        assert!(svg(&[bars]).expect("drawn").contains("3.2"));
    }

    #[test]
    fn counts_have_whole_labels_and_equal_series_show() {
        let points = vec![(1.0, 500.0), (3.0, 600.0)];
        let plot = Plot::lines("t", "hosts", "y")
            .series("a", points.clone())
            .series("b", points);
        let drawn = svg(std::slice::from_ref(&plot)).expect("drawn");
        assert!(!drawn.contains("1.2") && !drawn.contains("1.5"), "{drawn}");
        assert_eq!([plot.stroke(0), plot.stroke(1)], [5, 2]);
    }

    #[test]
    fn the_legend_hides_nothing_and_one_curve_needs_none() {
        let one = Plot::lines("t", "x", "y").series("only", vec![(0.0, 1.0), (1.0, 2.0)]);
        let two = one.clone().series("other", vec![(0.0, 3.0)]);
        assert!(!svg(&[one]).expect("drawn").contains("only"));
        let drawn = svg(&[two]).expect("drawn");
        assert!(drawn.contains("only") && drawn.contains("other"));
        let range = with_room(0.0..80.0, false, 0.2);
        assert_eq!(range, 0.0..100.0);
        let range = with_room(1.0..1e4, true, 0.5);
        assert!(
            range.start < 1.0 && (range.end / 1e8 - 1.0).abs() < 1e-9,
            "{range:?}"
        );
    }
}
