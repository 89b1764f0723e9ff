//! Scaling as a picture: measured speeds against the ideal, as SVG.

use std::fmt::Display;

use plotters::chart::SeriesLabelPosition;
use plotters::coord::Shift;
use plotters::prelude::*;

use manyhands::error::{Error, Result};
use manyhands::files::PICTURE_MARK;
use manyhands_bench::scaling::{MeasuredScaling, ScalingCurve, ScalingPoint};

/// Size of the picture of one model.
const WIDTH: u32 = 720;
const HEIGHT: u32 = 420;

const IDEAL: RGBColor = RGBColor(120, 120, 120);
const STRONG: RGBColor = RGBColor(31, 90, 166);
const WEAK: RGBColor = RGBColor(196, 92, 24);

/// Draws samples a second over the number of adapters, a picture for each model, one below the other.
///
/// # Errors
/// If there is no model, or the picture can't be drawn.
pub fn svg(scaling: &MeasuredScaling) -> Result<String> {
    let n_curves = u32::try_from(scaling.curves.len()).unwrap_or(0);
    if n_curves == 0 {
        return Err(refused("there is nothing to draw"));
    }
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH, n_curves * HEIGHT)).into_drawing_area();
        root.fill(&WHITE).map_err(refused)?;
        for (curve, area) in scaling.curves.iter().zip(root.split_evenly((scaling.curves.len(), 1))) {
            draw(curve, &area)?;
        }
        root.present().map_err(refused)?;
    }
    // This mark allows to replace the file later.
    Ok(text.replacen('>', &format!(">\n{PICTURE_MARK}"), 1))
}

fn refused(problem: impl Display) -> Error {
    Error::setting("the picture", format!("can't be drawn: {problem}"), "leave out `--svg`; `--json` has the numbers")
}

/// Function that gives the drawn value of a point.
type PointValue = fn(&ScalingPoint) -> f64;

#[allow(clippy::cast_precision_loss, reason = "few adapters")]
fn draw(curve: &ScalingCurve, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<()> {
    let ideal: PointValue = |point| point.ideal_samples_per_s;
    let measured: PointValue = |point| point.samples_per_s;
    let series = [
        ("ideal: the sum of each alone", IDEAL, &curve.strong, ideal),
        ("the batch stays", STRONG, &curve.strong, measured),
        ("the batch grows", WEAK, &curve.weak, measured),
    ];
    let highest = series.iter().flat_map(|(_, _, points, value)| points.iter().map(value)).fold(0.0, f64::max);
    let n_adapters = curve.alone.len();
    let mut chart = ChartBuilder::on(area)
        .caption(curve.about, ("sans-serif", 18))
        .margin(14)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(0.8..n_adapters as f64 + 0.2, 0.0..1.1 * highest)
        .map_err(refused)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("adapters")
        .y_desc("samples a second")
        .x_labels(n_adapters)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .draw()
        .map_err(refused)?;
    for (label, colour, points, value) in series {
        let places: Vec<(f64, f64)> = points.iter().map(|point| (point.n_adapters as f64, value(point))).collect();
        let line = LineSeries::new(places.iter().copied(), colour.stroke_width(2));
        let legend = move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], colour.stroke_width(2));
        chart.draw_series(line).map_err(refused)?.label(label).legend(legend);
        chart.draw_series(places.iter().map(|place| Circle::new(*place, 4, colour.filled()))).map_err(refused)?;
    }
    let labels = &mut chart.configure_series_labels();
    labels.position(SeriesLabelPosition::UpperLeft).background_style(WHITE).border_style(IDEAL).draw().map_err(refused)
}
