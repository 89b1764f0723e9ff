//! Places of a stage's flat buffers in those of the whole model.

use std::ops::Range;

use super::Layout;

/// Neighbours in a flat buffer of a stage, and where they lie in the whole model's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the stage's segment.
    pub segment: u32,
    /// First element in the stage's segment.
    pub offset: u64,
    /// Index of the whole model's segment.
    pub whole_segment: u32,
    /// First element in the whole model's segment.
    pub whole_offset: u64,
    /// Number of elements.
    pub len: u64,
}

#[allow(clippy::cast_possible_truncation, reason = "a segment is smaller than 2^25 elements")]
impl Place {
    /// Its elements in the whole model's segment.
    pub fn whole_range(&self) -> Range<usize> {
        self.whole_offset as usize..(self.whole_offset + self.len) as usize
    }

    /// Its elements in the stage's segment.
    pub fn range(&self) -> Range<usize> {
        self.offset as usize..(self.offset + self.len) as usize
    }

    /// The part of it that lies in a range of the stage's segment; `None` if none does.
    pub fn within(&self, range: &Range<usize>) -> Option<Self> {
        let (start, end) = (self.range().start.max(range.start), self.range().end.min(range.end));
        (start < end).then(|| self.part(start as u64 - self.offset, (end - start) as u64))
    }

    /// The part of it that lies in a range of the whole model's segment; `None` if none does.
    pub fn within_whole(&self, range: &Range<usize>) -> Option<Self> {
        let (start, end) = (self.whole_range().start.max(range.start), self.whole_range().end.min(range.end));
        (start < end).then(|| self.part(start as u64 - self.whole_offset, (end - start) as u64))
    }

    fn part(&self, from: u64, len: u64) -> Self {
        Self { offset: self.offset + from, whole_offset: self.whole_offset + from, len, ..*self }
    }
}

/// Places of a stage's parameters and moving statistics in the whole model's flat buffers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Parameters, in the order of the stage's layout.
    pub parameters: Vec<Place>,
    /// Moving statistics, in the order of the stage's layout.
    pub statistics: Vec<Place>,
}

impl Places {
    /// The places of a stage that is the whole model.
    pub fn whole(layout: &Layout) -> Self {
        let place =
            |(segment, len): (u32, u64)| Place { segment, offset: 0, whole_segment: segment, whole_offset: 0, len };
        let statistics = Some(layout.statistics_len).filter(|len| *len > 0);
        Self {
            parameters: (0..).zip(layout.segments.iter().copied()).map(place).collect(),
            statistics: statistics.map(|len| place((0, len))).into_iter().collect(),
        }
    }

    /// The places of a stage's layout, whose tensors all are in the whole model's.
    pub fn of(stage: &Layout, whole: &Layout) -> Self {
        let parameters = stage.parameters.iter().filter_map(|placed| {
            let in_whole = &whole.parameters[whole.parameter(&placed.name)?];
            Some((placed, in_whole))
        });
        let statistics = stage.statistics.iter().filter_map(|placed| {
            let in_whole = &whole.statistics[whole.statistic(&placed.name)?];
            Some((placed, in_whole))
        });
        Self { parameters: joined(parameters), statistics: joined(statistics) }
    }
}

/// The places of tensors, neighbours as one.
fn joined<'a>(tensors: impl Iterator<Item = (&'a super::PlacedTensor, &'a super::PlacedTensor)>) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    for (placed, whole) in tensors {
        let (segment, offset) = (placed.segment, placed.offset);
        let (whole_segment, whole_offset) = (whole.segment, whole.offset);
        let len = placed.padded_len();
        match places.last_mut() {
            Some(last)
                if (last.segment, last.offset + last.len) == (segment, offset)
                    && (last.whole_segment, last.whole_offset + last.len) == (whole_segment, whole_offset) =>
            {
                last.len += len;
            }
            _ => places.push(Place { segment, offset, whole_segment, whole_offset, len }),
        }
    }
    places
}
