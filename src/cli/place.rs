//! Where in a settings file a mistake stands: its line and key.

use manyhands::Error;

/// The error of a file, with line and key.
pub fn refuse(text: &str, file: &str, error: &toml::de::Error) -> Error {
    let message = error.message().lines().next().unwrap_or_default();
    let help = renamed(message).unwrap_or("`manyhands train --print-config` shows a whole file, to copy from");
    // Something that is missing from the whole file stands in no line.
    let Some(span) = error.span().filter(|span| span.start > 0 || !message.starts_with("missing field")) else {
        return Error::setting(format!("`{file}`"), format!("can't be read: {message}"), help);
    };
    let rest = text.get(span.start..).unwrap_or_default();
    let found = culprit(message).and_then(|culprit| {
        rest.split_inclusive('\n')
            .scan(span.start, |start, line| {
                let begin = *start;
                *start += line.len();
                Some((begin, line))
            })
            .find(|(_, line)| culprit.is_in(line))
    });
    let offset = found.map_or(span.start, |(begin, _)| begin);
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = text[line_start..].lines().next().unwrap_or_default();
    let number = before.matches('\n').count() + 1;
    let key = line.split('=').next().unwrap_or_default().trim().trim_matches(['[', ']']);
    Error::setting(format!("`{file}`, line {number}, key `{key}`,"), format!("can't be read: {message}"), help)
}

/// What to write in place of a key that Keras has, but with another meaning.
fn renamed(message: &str) -> Option<&'static str> {
    message.starts_with("unknown field `gradient_accumulation_steps`").then_some(
        "Keras updates after so many batches; here one batch is computed in parts: for Keras' 4 steps of 32 rows write \
         `batch_size = 128` and `micro_batches = 4`",
    )
}

/// What a message complains of. Within a table that is chosen by its `type`, only the message tells.
enum Culprit<'a> {
    Key(&'a str),
    Value(String),
}

fn culprit(message: &str) -> Option<Culprit<'_>> {
    let quoted = |text: &'_ str| -> Option<(usize, usize)> {
        let begin = text.find('`')? + 1;
        Some((begin, begin + text[begin..].find('`')?))
    };
    if let Some(rest) = message.strip_prefix("unknown field ") {
        return quoted(rest).map(|(begin, end)| Culprit::Key(&rest[begin..end]));
    }
    if let Some(rest) = message.strip_prefix("unknown variant ") {
        return quoted(rest).map(|(begin, end)| Culprit::Value(format!("\"{}\"", &rest[begin..end])));
    }
    let rest = message.strip_prefix("invalid type: ").or(message.strip_prefix("invalid value: "))?;
    let value = rest.split(", expected").next()?;
    if let Some(text) = value.strip_prefix("string ") {
        return Some(Culprit::Value(text.to_owned()));
    }
    quoted(value).map(|(begin, end)| Culprit::Value(value[begin..end].to_owned()))
}

impl Culprit<'_> {
    fn is_in(&self, line: &str) -> bool {
        match self {
            Self::Key(key) => {
                let name = line.trim_start().trim_start_matches('[').trim_end().trim_end_matches(']');
                name.split('=').next().is_some_and(|name| name.trim() == *key)
            }
            Self::Value(value) => {
                line.split_once('=').is_some_and(|(_, rest)| rest.trim_start().starts_with(value.as_str()))
            }
        }
    }
}
