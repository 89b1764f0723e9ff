//! The text that a model has written so far, as far as it is final.

/// A text that grows.
pub(super) struct Written<'a> {
    /// The prompt's text.
    prompt: String,
    text: String,
    /// Bytes that are final: they end no character in its middle, and no beginning of a stop.
    done: usize,
    /// Final bytes that were given to the reader.
    shown: usize,
    stops: &'a [String],
}

impl<'a> Written<'a> {
    /// Nothing yet, behind a prompt.
    pub(super) fn new(prompt: String, stops: &'a [String]) -> Self {
        Self { prompt, text: String::new(), done: 0, shown: 0, stops }
    }

    /// Takes the text of all tokens, those of the prompt included; tells whether it holds a stop, at which it ends.
    pub(super) fn take(&mut self, all: String) -> bool {
        // A decoder may write the last token of the prompt in another way when a token follows.
        let behind = all.char_indices().map(|(at, _)| at).chain([all.len()]).find(|at| *at >= self.prompt.len());
        let begin = if all.starts_with(&self.prompt) { self.prompt.len() } else { behind.unwrap_or(all.len()) };
        self.text = all[begin..].to_owned();
        let stops = self.stops.iter().filter(|stop| !stop.is_empty());
        if let Some(end) = stops.filter_map(|stop| self.text.find(stop.as_str())).min() {
            self.text.truncate(end);
            self.done = end.max(self.shown);
            return true;
        }
        // The tokens of one character may come one by one: decoders write this for its first ones.
        let whole = self.text.trim_end_matches(char::REPLACEMENT_CHARACTER);
        self.done = (whole.len() - begun(whole, self.stops)).max(self.shown);
        false
    }

    /// The part that is final and was not given yet.
    pub(super) fn fresh(&mut self) -> &str {
        let begin = std::mem::replace(&mut self.shown, self.done);
        self.text.get(begin..self.done).unwrap_or_default()
    }

    /// The rest, when no token follows.
    pub(super) fn finish(&mut self) -> &str {
        self.done = self.text.len();
        self.fresh()
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

/// Bytes at the end of a text with which a stop may begin.
fn begun(text: &str, stops: &[String]) -> usize {
    let of_stop = |stop: &String| {
        let lengths = stop.char_indices().map(|(at, _)| at).skip(1);
        lengths.filter(|length| text.ends_with(&stop[..*length])).max().unwrap_or(0)
    };
    stops.iter().map(of_stop).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(texts: &[&str], stops: &[&str]) -> (Vec<String>, bool) {
        let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let mut written = Written::new("Hi".into(), &stops);
        let mut pieces = Vec::new();
        let mut is_stopped = false;
        for text in texts {
            is_stopped = written.take(format!("Hi{text}"));
            pieces.push(written.fresh().to_owned());
        }
        pieces.push(written.finish().to_owned());
        assert_eq!(pieces.concat(), written.into_text());
        (pieces, is_stopped)
    }

    #[test]
    fn a_text_ends_before_a_stop() {
        assert_eq!(shown(&[" a", " a\n", " a\nUs", " a\nUser: b"], &["\nUser:", "zz"]).0, [" a", "", "", "", ""]);
        let (pieces, is_stopped) = shown(&[" a", " a\n", " a\nUs", " a\nUse it"], &["\nUser:"]);
        assert_eq!((pieces.concat(), is_stopped), (" a\nUse it".into(), false));
        assert_eq!(shown(&["x", "x\n"], &["\nUser:"]), (vec!["x".into(), String::new(), "\n".into()], false));
        assert!(shown(&["ab"], &["b", "a"]).1);
        assert_eq!(shown(&["ab"], &["b", "a"]).0.concat(), "");
    }

    #[test]
    fn a_character_is_shown_whole() {
        assert_eq!(shown(&[" \u{fffd}", " \u{fffd}\u{fffd}", " é"], &[]).0, [" ", "", "é", ""]);
        assert_eq!(shown(&["\u{fffd}"], &[]).0, ["", "\u{fffd}"]);
    }
}
