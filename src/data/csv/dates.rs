//! Dates in tables: their forms, and the elements that a date becomes.

use std::f64::consts::TAU;

use jiff::ToSpan;
use jiff::civil::{Date, Time, date};
use jiff::fmt::strtime::BrokenDownTime;

/// Forms of a date, as of `strftime`. Those that can be confused stand at the end.
const DATES: [&str; 7] = ["%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%b %d %Y", "%d %b %Y", "%d/%m/%Y", "%m/%d/%Y"];
/// Forms of the time behind a date.
const TIMES: [&str; 8] =
    ["", " %H:%M", " %H:%M:%S%.f", "T%H:%M", "T%H:%M:%S%.f", "T%H:%M:%S%.fZ", "T%H:%M:%S%.f%:z", " %H:%M:%S%.f%:z"];
/// Fewest and most characters of a date.
const LENGTHS: std::ops::RangeInclusive<usize> = 8..=40;
const SECONDS_OF_DAY: f64 = 86_400.0;
const DAYS_OF_WEEK: f64 = 7.0;
/// Mean days of a year of the Gregorian calendar.
pub(crate) const DAYS_OF_YEAR: f64 = 365.2425;
const EPOCH: Date = date(1970, 1, 1);

/// The forms in which all fields so far can be read.
#[derive(Clone, Debug, Default)]
pub(super) struct Forms(Option<Vec<String>>);

impl Forms {
    /// Keeps the forms in which a field can be read, too.
    pub fn keep(&mut self, field: &str) {
        match &mut self.0 {
            Some(forms) if forms.is_empty() => {}
            Some(forms) => forms.retain(|form| days(field, form).is_some()),
            None => {
                let is_likely =
                    LENGTHS.contains(&field.len()) && field.contains(|letter: char| letter.is_ascii_digit());
                let all = DATES.iter().flat_map(|date| TIMES.iter().map(move |time| format!("{date}{time}")));
                self.0 =
                    Some(if is_likely { all.filter(|form| days(field, form).is_some()).collect() } else { vec![] });
            }
        }
    }

    /// The forms that are left: several where days and months can be confused.
    pub fn left(&self) -> &[String] {
        self.0.as_deref().unwrap_or_default()
    }
}

/// Days from 1970 on of a date in this form, with the part of the day.
pub(super) fn days(field: &str, form: &str) -> Option<f64> {
    let read = BrokenDownTime::parse(form, field).ok()?;
    let at =
        if form.contains("%H") { read.to_datetime().ok()? } else { read.to_date().ok()?.to_datetime(Time::midnight()) };
    Some(at.duration_since(EPOCH.to_datetime(Time::midnight())).as_secs_f64() / SECONDS_OF_DAY)
}

/// The date of so many days from 1970 on.
#[allow(clippy::cast_possible_truncation, reason = "jiff's dates end at the year 9999")]
fn date_of(days: f64) -> Option<Date> {
    EPOCH.checked_add((days.floor() as i64).days()).ok()
}

/// Elements of a date: the date itself, then sine and cosine of its part of the year, of the week and, where it has a
/// time, of the day. The first is in years before it is scaled.
pub(crate) fn elements(days: f64, has_time: bool) -> impl Iterator<Item = f64> {
    let date = date_of(days).unwrap_or(EPOCH);
    let part_of_day = days - days.floor();
    let year = (f64::from(date.day_of_year()) - 1.0 + part_of_day) / f64::from(date.days_in_year());
    let week = (f64::from(date.weekday().to_monday_zero_offset()) + part_of_day) / DAYS_OF_WEEK;
    let circles = [year, week].into_iter().chain(has_time.then_some(part_of_day));
    std::iter::once(days / DAYS_OF_YEAR).chain(circles.flat_map(|part| [(TAU * part).sin(), (TAU * part).cos()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forms(fields: &[&str]) -> Vec<String> {
        let mut forms = Forms::default();
        fields.iter().for_each(|field| forms.keep(field));
        forms.left().to_vec()
    }

    #[test]
    fn dates_are_found_in_one_form_for_all_fields() {
        assert_eq!(forms(&["2007-11-11", "2008-2-29"]), ["%Y-%m-%d"]);
        assert_eq!(forms(&["2008-02-29 12:30", "2008-02-29 1:05"]), ["%Y-%m-%d %H:%M"]);
        assert_eq!(forms(&["2008-02-29T12:30:05Z"]), ["%Y-%m-%dT%H:%M:%S%.fZ"]);
        assert_eq!(forms(&["2008-02-29T12:30:05.25+02:00"]), ["%Y-%m-%dT%H:%M:%S%.f%:z"]);
        assert_eq!(forms(&["Jan 1 2000", "Feb 11 2010"]), ["%b %d %Y"]);
        assert_eq!(forms(&["03/04/2020"]), ["%d/%m/%Y", "%m/%d/%Y"]);
        assert_eq!(forms(&["03/04/2020", "13/04/2020"]), ["%d/%m/%Y"]);
        for other in [&["2007-11-11", "soon"][..], &["2007-02-30"], &["20071111"], &["1.5"], &["some 2007-11-11"]] {
            assert!(forms(other).is_empty(), "{other:?}");
        }
    }

    /// 2024-02-29, the 60th of 366 days, was a Thursday.
    #[test]
    fn a_date_becomes_years_and_circles() {
        let at = days("2024-02-29 18:00", "%Y-%m-%d %H:%M").unwrap();
        assert_eq!(at, 19_782.75);
        let (year, week) = (TAU * 59.75 / 366.0, TAU * 3.75 / 7.0);
        let needed = [at / DAYS_OF_YEAR, year.sin(), year.cos(), week.sin(), week.cos(), -1.0, 0.0];
        for (got, needed) in elements(at, true).zip(needed) {
            assert!((got - needed).abs() < 1e-9, "{got} {needed}");
        }
        assert_eq!((elements(at, true).count(), elements(at, false).count()), (7, 5));
    }
}
