//! The text of settings as a run has them: that of the file, with what flags changed, comments and all.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::SettingsFile;
use manyhands_engine::files::RUN_SETTINGS_MARK;

/// A value of a key of a table, as it is written: `("training", "epochs", "10")`.
pub type SettingChange = (&'static str, &'static str, String);

/// Settings with changes, as a text that is read as such.
pub fn as_run(settings: &SettingsFile, changes: &[SettingChange]) -> String {
    let unchanged = without_mark(&settings.text);
    let text = changes.iter().fold(unchanged.to_owned(), |text, (table, key, value)| changed(&text, table, key, value));
    let text = if SettingsFile::parse(&text, "run.toml").is_ok() { text } else { unchanged.to_owned() };
    let folder = std::env::current_dir().map_or_else(|_| String::new(), |folder| folder.display().to_string());
    let version = env!("CARGO_PKG_VERSION");
    format!("{RUN_SETTINGS_MARK}{version}, begun in {}.\n{text}", folder.escape_debug())
}

/// A text without the line that an earlier run put above it.
fn without_mark(text: &str) -> &str {
    match text.split_once('\n') {
        Some((first, rest)) if first.starts_with(RUN_SETTINGS_MARK) => rest,
        _ => text,
    }
}

/// A text with a value at a path, such as `training.batch_size` or `model.layers.2.units`; layers are counted from 0, or named.
/// `None` if the table that would hold the key is not there.
pub fn with_value(text: &str, path: &[String], value: &str) -> Option<String> {
    let (key, parents) = path.split_last()?;
    let new = match parents {
        [] => return None,
        [table] => changed(text, table, key, value),
        _ => changed_within(text, parents, key, value)?,
    };
    let is_set = |table: toml::Table| {
        let wanted: toml::Table = format!("it = {value}").parse().ok()?;
        Some(value_at(&table.into(), path)? == wanted.get("it")?)
    };
    new.parse().ok().and_then(is_set)?.then_some(new)
}

/// The part of a list or table that a word of a path names.
fn position(list: &[toml::Value], word: &str) -> Option<usize> {
    let is_named = |value: &toml::Value| value.get("name").and_then(toml::Value::as_str) == Some(word);
    word.parse().ok().or_else(|| list.iter().position(is_named))
}

fn value_at<'a>(value: &'a toml::Value, path: &[String]) -> Option<&'a toml::Value> {
    path.iter().try_fold(value, |value, word| match value {
        toml::Value::Array(list) => list.get(position(list, word)?),
        value => value.get(word),
    })
}

fn part<'a, 'b>(value: &'a Spanned<DeValue<'b>>, word: &str) -> Option<&'a Spanned<DeValue<'b>>> {
    match value.get_ref() {
        DeValue::Table(keys) => keys.get(word),
        DeValue::Array(list) => {
            let is_named = |item: &Spanned<DeValue<'_>>| {
                let name = item.get_ref().as_table().and_then(|keys| keys.get("name"));
                name.and_then(|name| name.get_ref().as_str()) == Some(word)
            };
            list.get(word.parse().ok().or_else(|| list.iter().position(is_named))?)
        }
        _ => None,
    }
}

/// Sets a key of a table that lies within others.
fn changed_within(text: &str, parents: &[String], key: &str, value: &str) -> Option<String> {
    let whole = DeTable::parse(text).ok()?;
    let (first, inner) = parents.split_first()?;
    let table = inner.iter().try_fold(whole.get_ref().get(first.as_str())?, |value, word| part(value, word))?;
    let keys = table.get_ref().as_table()?;
    if let Some(old) = keys.get(key) {
        return Some(replaced(text, old.span(), value));
    }
    let (start, rest) = (table.span().start, text.get(table.span().start..)?);
    if rest.starts_with('{') {
        let comma = if keys.is_empty() { "" } else { "," };
        return Some(replaced(text, start + 1..start + 1, &format!(" {key} = {value}{comma}")));
    }
    let end_of_line = start + rest.find('\n').map_or(rest.len(), |end| end + 1);
    let gap = if rest.contains('\n') { "" } else { "\n" };
    Some(replaced(text, end_of_line..end_of_line, &format!("{gap}{key} = {value}\n")))
}

fn replaced(text: &str, range: Range<usize>, new: &str) -> String {
    let (before, after) = (text.get(..range.start).unwrap_or(text), text.get(range.end..).unwrap_or_default());
    format!("{before}{new}{after}")
}

/// Sets a key of a table, where it stands or where it can stand.
fn changed(text: &str, table: &str, key: &str, value: &str) -> String {
    let Ok(whole) = DeTable::parse(text) else { return text.to_owned() };
    let replaced = |range: Range<usize>, new: &str| replaced(text, range, new);
    let Some(found) = whole.get_ref().get(table) else {
        // Adam is the optimizer of settings that name none.
        let kind = if table == "optimizer" && key != "type" { "type = \"Adam\"\n" } else { "" };
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
    if let Some(old) = keys.get(key) {
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
        Some(header) if header.trim() == table => {
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
            let new = changed(text, "training", "epochs", "7");
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
        assert_eq!(changed(texts[0], "training", "epochs", "7"), "[training]\nepochs = 7 # few\nseed = 1\n");
        let optimizer = |text: &str| changed(text, "optimizer", "learning_rate", "0.5");
        assert_eq!(optimizer("optimizer = \"sgd\"\n"), "optimizer = { type = \"sgd\", learning_rate = 0.5 }\n");
        assert_eq!(optimizer("a = 1\n"), "a = 1\n\n[optimizer]\ntype = \"Adam\"\nlearning_rate = 0.5\n");
    }

    #[test]
    fn a_value_is_set_at_any_depth() {
        let text = "[model]\nlayers = [\n  { type = \"Dense\", units = 8, name = \"hidden\" }, # few\n  { type = \"ReLU\" },\n]\n\
                    [[losses]]\ntype = \"Huber\"\n[training.early_stopping]\nmonitor = \"loss\"\n";
        let set = |path: &str, value: &str| {
            let path: Vec<String> = path.split('.').map(String::from).collect();
            with_value(text, &path, value).inspect(|new| {
                assert_eq!(value_at(&new.parse::<toml::Table>().unwrap().into(), &path).unwrap().to_string(), value);
            })
        };
        assert_eq!(set("model.layers.0.units", "16").unwrap(), text.replace("units = 8", "units = 16"));
        assert_eq!(set("model.layers.hidden.units", "4").unwrap(), text.replace("units = 8", "units = 4"));
        let paths = ["model.layers.1.negative_slope", "losses.0.delta", "training.early_stopping.patience"];
        assert!(paths.iter().all(|path| set(path, "2").is_some()), "a key may be new");
        assert!(set("training.epochs", "3").is_some() && set("optimizer.learning_rate", "0.5").is_some());
        for path in ["model.layers.7.units", "model.layers.nobody.units", "a.b.c", "model"] {
            assert_eq!(set(path, "1"), None, "{path}");
        }
    }

    #[test]
    fn settings_keep_their_comments_and_one_mark() {
        let settings = SettingsFile::of(None).unwrap();
        let changes = [("training", "seed", "9".to_owned()), ("optimizer", "learning_rate", "0.25".to_owned())];
        let text = as_run(&settings, &changes);
        assert!(text.contains("learning_rate = 0.25\n") && text.contains("seed = 9\n"), "{text}");
        assert!(text.contains("batch_size = 64 # over all adapters"), "{text}");
        let again = SettingsFile::parse(&text, "run.toml").unwrap();
        assert_eq!(again.training.seed, Some(9));
        assert_eq!(as_run(&again, &[]).matches(RUN_SETTINGS_MARK).count(), 1);
        assert_eq!(as_run(&again, &[]), text);
    }
}
