//! Curves and bars as SVG. Colours are classes of the page, so that they follow its scheme.

use super::text::{escaped, number, write_to};

/// Size, in units of the picture: about pixels.
const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 250.0;
/// Room for labels.
const LEFT: f64 = 54.0;
const BOTTOM: f64 = 40.0;
const TOP: f64 = 10.0;
const RIGHT: f64 = 12.0;
/// From this ratio of the largest to the smallest on, an axis is logarithmic.
const WIDE: f64 = 200.0;
/// Points that get a mark.
const MARKED: usize = 40;
/// Colours of the page.
const COLOURS: usize = 6;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Solid,
    Dashed,
    /// In the background.
    Faint,
    /// Points without a line.
    Points,
    /// A line upwards at each point.
    Mark,
}

/// A named curve.
pub struct Series {
    pub name: String,
    pub colour: usize,
    pub style: Style,
    pub points: Vec<(f64, f64)>,
}

pub struct Chart {
    pub title: String,
    pub x: String,
    pub y: String,
    /// Whether the vertical axis may be logarithmic.
    pub may_be_log: bool,
    pub series: Vec<Series>,
}

/// An axis: values to positions.
struct ChartAxis {
    from: f64,
    to: f64,
    is_log: bool,
    /// Of whole numbers, such as epochs: then no fraction is labelled.
    is_whole: bool,
    begin: f64,
    end: f64,
}

impl ChartAxis {
    fn new(values: impl Iterator<Item = f64>, may_be_log: bool, (begin, end): (f64, f64)) -> Self {
        let (mut least, mut most, mut is_whole) = (f64::INFINITY, f64::NEG_INFINITY, true);
        for value in values {
            (least, most) = (least.min(value), most.max(value));
            is_whole &= value.fract() == 0.0;
        }
        let is_log = may_be_log && least > 0.0 && most / least > WIDE;
        let (from, to) = if is_log { (least.log10(), most.log10()) } else { (least, most) };
        let (from, to) = match to - from {
            width if width > 0.0 => (from, to),
            _ if from.is_finite() => (from - 0.5 * from.abs().max(1e-3), from + 0.5 * from.abs().max(1e-3)),
            _ => (0.0, 1.0),
        };
        Self { from, to, is_log, is_whole, begin, end }
    }

    /// With room on both sides.
    fn padded(mut self) -> Self {
        let room = 0.04 * (self.to - self.from);
        (self.from, self.to) = (self.from - room, self.to + room);
        self
    }

    fn at(&self, value: f64) -> f64 {
        let value = if self.is_log { value.log10() } else { value };
        self.begin + (self.end - self.begin) * (value - self.from) / (self.to - self.from)
    }

    /// Round values to label.
    fn ticks(&self) -> Vec<f64> {
        if self.is_log {
            let decades = self.to - self.from;
            let multiples: &[f64] = if decades < 3.0 { &[1.0, 3.0] } else { &[1.0] };
            #[allow(clippy::cast_possible_truncation, reason = "exponents of floats")]
            let exponents = self.from.floor() as i32..=self.to.ceil() as i32;
            let all = exponents.flat_map(|it| multiples.iter().map(move |multiple| multiple * 10_f64.powi(it)));
            return all.filter(|value| (self.from - 1e-9..=self.to + 1e-9).contains(&value.log10())).collect();
        }
        let rough = (self.to - self.from) / 5.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|it| it * power).into_iter().find(|step| *step >= rough).unwrap_or(power);
        let step = if self.is_whole { step.max(1.0) } else { step };
        let first = (self.from / step).ceil();
        (0..12).map(|at| (first + f64::from(at)) * step).filter(|value| *value <= self.to + 1e-9 * step).collect()
    }
}

impl Chart {
    /// A figure: title, legend, picture.
    pub fn html(&self) -> String {
        let finite: Vec<&Series> = self.series.iter().filter(|it| it.points.iter().any(is_finite)).collect();
        if finite.is_empty() {
            return String::new();
        }
        let mut html = format!("<figure class=\"chart\"><figcaption>{}", escaped(&self.title));
        if finite.len() > 1 || finite[0].name != self.title {
            html.push_str("<span class=\"legend\">");
            for series in &finite {
                let line = swatch(series);
                write_to(&mut html, format_args!("<span>{line}{}</span>", escaped(&series.name)));
            }
            html.push_str("</span>");
        }
        html.push_str("</figcaption>");
        html.push_str(&self.svg(&finite));
        html.push_str("</figure>\n");
        html
    }

    fn svg(&self, series: &[&Series]) -> String {
        let points = || series.iter().flat_map(|it| it.points.iter().filter(|point| is_finite(point)));
        let x = ChartAxis::new(points().map(|point| point.0), false, (LEFT, WIDTH - RIGHT));
        let y = ChartAxis::new(points().map(|point| point.1), self.may_be_log, (HEIGHT - BOTTOM, TOP)).padded();
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            escaped(&self.description(series))
        );
        for tick in y.ticks() {
            let at = y.at(tick);
            let (right, text) = (WIDTH - RIGHT, number(tick));
            write_to(&mut svg, format_args!("<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right}\"/>"));
            let left = LEFT - 6.0;
            write_to(&mut svg, format_args!("<text x=\"{left}\" y=\"{:.1}\" class=\"end\">{text}</text>", at + 4.0));
        }
        for tick in x.ticks() {
            let (at, text) = (x.at(tick), number(tick));
            let y = HEIGHT - BOTTOM + 17.0;
            write_to(&mut svg, format_args!("<text x=\"{at:.1}\" y=\"{y}\" class=\"mid\">{text}</text>"));
        }
        let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
        let bottom = HEIGHT - 5.0;
        let label = match (self.y.as_str(), y.is_log) {
            ("", false) => escaped(&self.x),
            ("", true) => format!("{} · logarithmic", escaped(&self.x)),
            (name, _) => format!("{} · upwards: {}", escaped(&self.x), escaped(name)),
        };
        write_to(&mut svg, format_args!("<text x=\"{middle}\" y=\"{bottom}\" class=\"mid\">{label}</text>"));
        series.iter().for_each(|series| draw(&mut svg, series, &x, &y));
        svg.push_str("</svg>");
        svg
    }

    /// A description for those who can't see the picture.
    fn description(&self, series: &[&Series]) -> String {
        let told = series.iter().filter(|it| !matches!(it.style, Style::Faint | Style::Mark)).map(|series| {
            let points: Vec<&(f64, f64)> = series.points.iter().filter(|point| is_finite(point)).collect();
            let ends = points.first().zip(points.last());
            let (first, last) = ends.map_or((f64::NAN, f64::NAN), |(first, last)| (first.1, last.1));
            format!("{} from {} to {}", series.name, number(first), number(last))
        });
        format!("{} over {}: {}", self.title, self.x, told.collect::<Vec<_>>().join("; "))
    }
}

fn is_finite(point: &(f64, f64)) -> bool {
    point.0.is_finite() && point.1.is_finite()
}

fn class(series: &Series) -> String {
    let style = match series.style {
        Style::Solid => "",
        Style::Dashed => " dashed",
        Style::Faint => " faint",
        Style::Points => " points",
        Style::Mark => " mark",
    };
    format!("c{}{style}", series.colour % COLOURS)
}

/// The line of a legend.
fn swatch(series: &Series) -> String {
    let shape =
        if series.style == Style::Points { "<circle cx=\"11\" cy=\"5\" r=\"3\"/>" } else { "<path d=\"M0 5H22\"/>" };
    format!("<svg viewBox=\"0 0 22 10\" class=\"swatch {}\" aria-hidden=\"true\">{shape}</svg>", class(series))
}

fn draw(svg: &mut String, series: &Series, x: &ChartAxis, y: &ChartAxis) {
    let places: Vec<(f64, f64, &(f64, f64))> =
        series.points.iter().filter(|it| is_finite(it)).map(|it| (x.at(it.0), y.at(it.1), it)).collect();
    write_to(svg, format_args!("<g class=\"{}\">", class(series)));
    if series.style == Style::Mark {
        for (x, ..) in places {
            write_to(svg, format_args!("<path d=\"M{x:.1} {TOP}V{}\"/>", HEIGHT - BOTTOM));
        }
        svg.push_str("</g>");
        return;
    }
    if series.style != Style::Points && places.len() > 1 {
        svg.push_str("<path d=\"");
        for (at, (x, y, _)) in places.iter().enumerate() {
            let command = if at == 0 { 'M' } else { 'L' };
            write_to(svg, format_args!("{command}{x:.1} {y:.1}"));
        }
        svg.push_str("\"/>");
    }
    if series.style == Style::Points || (places.len() <= MARKED && series.style != Style::Faint) {
        for (x, y, (value_x, value_y)) in &places {
            let radius = if series.style == Style::Points { 2.2 } else { 2.8 };
            let told = format!("{}: {} at {}", escaped(&series.name), number(*value_y), number(*value_x));
            let circle = format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"><title>{told}</title></circle>");
            svg.push_str(&circle);
        }
    }
    svg.push_str("</g>");
}

/// A histogram as a figure.
pub fn histogram(title: &str, x: &str, (start, end): (f64, f64), bars: &[u64]) -> String {
    let most = bars.iter().copied().max().unwrap_or(0).max(1);
    let axis = ChartAxis::new([start, end].into_iter(), false, (LEFT, WIDTH - RIGHT));
    let n_bars = f64::from(u32::try_from(bars.len()).unwrap_or(1));
    let width = (axis.end - axis.begin) / n_bars;
    let all = bars.iter().fold(0_u64, |all, rows| all.saturating_add(*rows));
    let told = format!("{title}: {all} rows between {} and {}", number(start), number(end));
    let mut html = format!("<figure class=\"chart\"><figcaption>{}</figcaption>", escaped(title));
    write_to(
        &mut html,
        format_args!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\"><g class=\"c0 bars\">",
            escaped(&told)
        ),
    );
    let floor = HEIGHT - BOTTOM;
    for (at, rows) in bars.iter().enumerate() {
        #[allow(clippy::cast_precision_loss, reason = "drawn")]
        let height = (floor - TOP) * *rows as f64 / most as f64;
        let left = axis.begin + width * f64::from(u32::try_from(at).unwrap_or(0));
        let (top, wide) = (floor - height, width - 1.0);
        write_to(
            &mut html,
            format_args!(
                "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{height:.1}\"><title>{rows} rows</title></rect>"
            ),
        );
    }
    html.push_str("</g>");
    write_to(&mut html, format_args!("<path class=\"grid\" d=\"M{LEFT} {floor}H{}\"/>", WIDTH - RIGHT));
    write_to(&mut html, format_args!("<text x=\"{}\" y=\"{:.1}\" class=\"end\">{most}</text>", LEFT - 6.0, TOP + 8.0));
    for tick in axis.ticks() {
        let (at, y) = (axis.at(tick), floor + 17.0);
        write_to(&mut html, format_args!("<text x=\"{at:.1}\" y=\"{y}\" class=\"mid\">{}</text>", number(tick)));
    }
    let (middle, bottom) = (f64::midpoint(LEFT, WIDTH - RIGHT), HEIGHT - 5.0);
    write_to(&mut html, format_args!("<text x=\"{middle}\" y=\"{bottom}\" class=\"mid\">{}</text>", escaped(x)));
    html.push_str("</svg></figure>\n");
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: &[(f64, f64)]) -> Chart {
        let series = Series { name: "train".into(), colour: 0, style: Style::Solid, points: points.to_vec() };
        Chart { title: "<loss>".into(), x: "epoch".into(), y: String::new(), may_be_log: true, series: vec![series] }
    }

    #[test]
    fn a_curve_stays_in_its_picture_whatever_its_values() {
        let cases: [&[(f64, f64)]; 6] = [
            &[(1.0, 2.0)],
            &[(1.0, 0.0), (2.0, 0.0)],
            &[(1.0, 1e-30), (2.0, 1e30)],
            &[(1.0, f64::NAN), (2.0, -5.0), (3.0, f64::INFINITY)],
            &[(1.0, 1e300), (2.0, -1e300)],
            &[(0.5, 3.0), (1.0, 0.001), (2.0, 0.0005)],
        ];
        for points in cases {
            let html = chart(points).html();
            assert!(html.contains("&lt;loss&gt;") && !html.contains("<loss>") && !html.contains("NaN\""), "{html}");
            for circle in html.split("<circle cx=\"").skip(1) {
                let number = |text: &str| text.split('"').next().unwrap().parse::<f64>().unwrap();
                let (x, y) = (number(circle), number(circle.split("cy=\"").nth(1).unwrap()));
                assert!(
                    (LEFT..=WIDTH - RIGHT).contains(&x) && (TOP..=HEIGHT - BOTTOM).contains(&y),
                    "{points:?}: {x} {y}"
                );
            }
        }
        assert_eq!(chart(&[(1.0, f64::NAN)]).html(), "");
    }

    #[test]
    fn ticks_are_round_and_few() {
        let ticks = |from: f64, to: f64, log| ChartAxis::new([from, to].into_iter(), log, (0.0, 1.0)).ticks();
        assert_eq!(ticks(0.0, 10.0, true), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        let decades: Vec<String> = ticks(0.001, 10.0, true).into_iter().map(number).collect();
        assert_eq!(decades, ["0.001", "0.01", "0.1", "1", "10"]);
        let many = ticks(1.0, 7.0, false);
        assert_eq!(many, [2.0, 4.0, 6.0]);
        assert_eq!((ticks(1.0, 3.0, false), ticks(0.5, 1.5, false).len()), (vec![1.0, 2.0, 3.0], 5));
    }
}
