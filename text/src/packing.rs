//! Packs short documents into rows of one length.

use crate::rows::Document;

/// Rows of tokens, each with one document after the other.
///
/// A token sees the tokens of its own document alone if the attention is masked by `documents`; its position counts from the document's
/// first token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Tokens of a row.
    pub length: usize,
    /// Numbers of the tokens, `[rows, length]`; 0 behind the last document of a row.
    pub ids: Vec<u32>,
    /// 1 for tokens that are learned, else 0, `[rows, length]`. A document's first token is never learned: nothing is before it.
    pub learned: Vec<u8>,
    /// Number of the document within its row, from 1, `[rows, length]`; 0 behind the last.
    pub documents: Vec<u32>,
    /// Position of the token within its document, from 0, `[rows, length]`.
    pub positions: Vec<u32>,
}

/// Documents that were left out: those that are too long, and those without a token to learn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Number of documents that are too long.
    pub count: usize,
    /// Line of the first.
    pub first_line: usize,
    /// Tokens of the longest.
    pub longest: usize,
    /// Number of documents of which nothing is learned; they are none of `count`.
    pub unlearned: usize,
    /// Line of the first of these.
    pub first_unlearned: usize,
}

impl LeftOut {
    /// Counts the documents that rows of a length leave out.
    pub fn of(documents: &[Document], length: usize) -> Self {
        let (learned, unlearned): (Vec<&Document>, Vec<&Document>) =
            documents.iter().partition(|document| document.is_learned());
        let long: Vec<&Document> = learned.into_iter().filter(|document| document.ids.len() > length).collect();
        let first = |documents: &[&Document]| documents.first().map_or(0, |document| document.line);
        Self {
            count: long.len(),
            first_line: first(&long),
            longest: long.iter().map(|document| document.ids.len()).max().unwrap_or(0),
            unlearned: unlearned.len(),
            first_unlearned: first(&unlearned),
        }
    }
}

impl Packed {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.ids.len().checked_div(self.length).unwrap_or(0)
    }

    /// Packs documents into rows of a length. The longest come first, each into the fullest row that has room for it, so that few
    /// tokens are wasted ("best fit decreasing"). Equal documents give equal rows.
    ///
    /// Documents that are too long, or teach nothing, are left out, never cut.
    pub fn new<'a>(documents: impl IntoIterator<Item = &'a Document>, length: usize) -> Self {
        let mut packed = Self { length, ..Self::default() };
        let mut order: Vec<&Document> = documents.into_iter().filter(|document| document.fits(length)).collect();
        order.sort_by_key(|document| std::cmp::Reverse(document.ids.len()));
        for row in rows(&order, length) {
            packed.push(&row);
        }
        packed
    }

    /// One document a row, in the order of the documents, but for those that [`new`](Self::new) leaves out.
    pub fn one_a_row<'a>(documents: impl IntoIterator<Item = &'a Document>, length: usize) -> Self {
        let mut packed = Self { length, ..Self::default() };
        for document in documents.into_iter().filter(|document| document.fits(length)) {
            packed.push(&[document]);
        }
        packed
    }

    fn push(&mut self, row: &[&Document]) {
        let end = self.ids.len() + self.length;
        for (number, document) in (1..).zip(row) {
            self.ids.extend(&document.ids);
            self.learned.extend(
                document.learned.iter().enumerate().map(|(token, learned)| if token == 0 { 0 } else { *learned }),
            );
            self.documents.extend(document.ids.iter().map(|_| number));
            self.positions.extend((0..).zip(&document.ids).map(|(position, _): (u32, _)| position));
        }
        self.ids.resize(end, 0);
        self.learned.resize(end, 0);
        self.documents.resize(end, 0);
        self.positions.resize(end, 0);
    }
}

/// Documents by row, from documents of falling length.
fn rows<'a>(documents: &[&'a Document], length: usize) -> Vec<Vec<&'a Document>> {
    let mut rows: Vec<Vec<&Document>> = Vec::new();
    // Rows by the room that they have left, the first row first.
    let mut room: std::collections::BTreeSet<(usize, usize)> = std::collections::BTreeSet::new();
    for document in documents {
        let needed = document.ids.len();
        let place = room.range((needed, 0)..).next().copied();
        let (left, row) = place.unwrap_or((length, rows.len()));
        match place {
            Some(place) => drop(room.remove(&place)),
            None => rows.push(Vec::new()),
        }
        rows[row].push(document);
        room.insert((left - needed, row));
    }
    rows
}
