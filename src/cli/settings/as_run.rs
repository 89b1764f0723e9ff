//! The text of settings as a run has them: that of the file, with what flags changed, comments and all.

use toml::de::{DeTable, DeValue};

use super::Settings;
use crate::internals::files::RUN_SETTINGS_MARK;

/// A value of a key of a table, as it is written: `("training", "epochs", "10")`.
pub type Change = (&'static str, &'static str, String);

impl Settings {
    /// The settings with changes, as a text that is read as such.
    pub fn as_run(&self, changes: &[Change]) -> String {
        let text = changes.iter().fold(without_mark(&self.text).to_owned(), |text, change| changed(&text, change));
        let text = if Self::parse(&text, "run.toml").is_ok() { text } else { without_mark(&self.text).to_owned() };
        let folder = std::env::current_dir().map_or_else(|_| String::new(), |folder| folder.display().to_string());
        let version = env!("CARGO_PKG_VERSION");
        format!("{RUN_SETTINGS_MARK}{version}, begun in {}.\n{text}", folder.escape_debug())
    }
}

/// A text without the line that an earlier run put above it.
fn without_mark(text: &str) -> &str {
    match text.split_once('\n') {
        Some((first, rest)) if first.starts_with(RUN_SETTINGS_MARK) => rest,
        _ => text,
    }
}

/// Sets a key of a table, where it stands or where it can stand.
fn changed(text: &str, (table, key, value): &Change) -> String {
    let Ok(whole) = DeTable::parse(text) else { return text.to_owned() };
    let replaced = |range: std::ops::Range<usize>, new: &str| {
        let (before, after) = (text.get(..range.start).unwrap_or(text), text.get(range.end..).unwrap_or_default());
        format!("{before}{new}{after}")
    };
    let Some(found) = whole.get_ref().get(*table) else {
        // Adam is the optimizer of settings that name none.
        let kind = if *table == "optimizer" { "type = \"Adam\"\n" } else { "" };
        let gap = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
        return format!("{text}{gap}\n[{table}]\n{kind}{key} = {value}\n");
    };
    let span = found.span();
    let keys = match found.get_ref() {
        DeValue::Table(keys) => keys,
        DeValue::String(kind) => {
            let kind = toml::Value::String(kind.to_string());
            return replaced(span, &format!("{{ type = {kind}, {key} = {value} }}"));
        }
        _ => return text.to_owned(),
    };
    if let Some(old) = keys.get(*key) {
        return replaced(old.span(), value);
    }
    let rest = text.get(span.start..).unwrap_or_default();
    if rest.starts_with('{') {
        let comma = if keys.is_empty() { "" } else { "," };
        return replaced(span.start + 1..span.start + 1, &format!(" {key} = {value}{comma}"));
    }
    // The name of a table that is only implied stands within the header of one inside of it.
    let begin = text.get(..span.start).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1);
    let line = text.get(begin..).unwrap_or_default().lines().next().unwrap_or_default();
    let header = line.trim_start().strip_prefix('[').and_then(|header| header.split(']').next());
    let end_of_line = span.start + rest.find('\n').map_or(rest.len(), |end| end + 1);
    match header {
        Some(header) if header.trim() == *table => {
            let gap = if rest.contains('\n') { "" } else { "\n" };
            replaced(end_of_line..end_of_line, &format!("{gap}{key} = {value}\n"))
        }
        // A table inside of it begins there.
        Some(_) => replaced(begin..begin, &format!("[{table}]\n{key} = {value}\n")),
        None => replaced(begin..begin, &format!("{table}.{key} = {value}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_key_is_read_whatever_the_form_of_its_table() {
        let texts = [
            "[training]\nepochs = 3 # few\nseed = 1\n",
            "[training]\nseed = 1",
            "training = { seed = 1 }\n",
            "training = {}\n",
            "[data]\nx = 1\n\n[training.early_stopping]\nmonitor = \"val_loss\"\n",
            "training.seed = 1\n[data]\nx = 2\n",
            "[data]\nx = 1",
            "",
            "[ training ] # all of it\r\nepochs = 12\r\n",
        ];
        for text in texts {
            let new = changed(text, &("training", "epochs", "7".into()));
            let mut table: toml::Table = new.parse().unwrap_or_else(|error| panic!("{text:?}: {new:?}: {error}"));
            let training = table.get_mut("training").unwrap().as_table_mut().unwrap();
            assert_eq!(training.remove("epochs").unwrap().as_integer(), Some(7), "{new}");
            let mut old: toml::Table = text.parse().unwrap();
            if let Some(training) = old.get_mut("training").and_then(toml::Value::as_table_mut) {
                training.remove("epochs");
            } else {
                old.insert("training".into(), toml::Table::new().into());
            }
            assert_eq!(table, old, "all else stays: {new}");
        }
        assert_eq!(changed(texts[0], &("training", "epochs", "7".into())), "[training]\nepochs = 7 # few\nseed = 1\n");
        let optimizer = |text: &str| changed(text, &("optimizer", "learning_rate", "0.5".into()));
        assert_eq!(optimizer("optimizer = \"sgd\"\n"), "optimizer = { type = \"sgd\", learning_rate = 0.5 }\n");
        assert_eq!(optimizer("a = 1\n"), "a = 1\n\n[optimizer]\ntype = \"Adam\"\nlearning_rate = 0.5\n");
    }

    #[test]
    fn settings_keep_their_comments_and_one_mark() {
        let settings = Settings::of(None).unwrap();
        let changes = [("training", "seed", "9".to_owned()), ("optimizer", "learning_rate", "0.25".to_owned())];
        let text = settings.as_run(&changes);
        assert!(text.contains("learning_rate = 0.25\n") && text.contains("seed = 9\n"), "{text}");
        assert!(text.contains("batch_size = 64 # over all adapters"), "{text}");
        let again = Settings::parse(&text, "run.toml").unwrap();
        assert_eq!(again.training.seed, Some(9));
        assert_eq!(again.as_run(&[]).matches(RUN_SETTINGS_MARK).count(), 1);
        assert_eq!(again.as_run(&[]), text);
    }
}
