//! Chat templates: messages to the text that a model was trained on, as transformers renders them.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Zoned;
use jiff::fmt::strtime;
use manyhands_engine::{files, shown};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Object, Value, ValueKind};
use minijinja::{Environment, ErrorKind, State};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

use crate::model::ModelFiles;
use crate::tokenizer::{Tokenizer, optional_json};
use crate::{Error, Result};

/// Steps of a template: a conversation of a thousand messages takes some ten thousand.
const MOST_STEPS: u64 = 10_000_000;
const NAME: &str = "chat template";
/// The template for conversations with tools, of models that have two.
const TOOL_USE: &str = "tool_use";
/// Filter that notes a text as an answer, and the variable with what it has noted.
const MARK: &str = "__mark_answer";
const MARKS: &str = "__marks";

/// The end of a rendered conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The last message is the last.
    Closed,
    /// The head of an answer follows, which the model is to write.
    Answer,
}

/// A chat template.
///
/// It is the Jinja that transformers gives to templates: `raise_exception`, `strftime_now`, `tojson` without HTML, loop controls,
/// methods of Python's strings and dicts, no whitespace after blocks, `{% generation %}` around what is an answer.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    named: Vec<(String, Value)>,
    /// Names of the templates that mark answers.
    marking: Vec<&'static str>,
}

/// A rendered conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The text.
    pub text: String,
    /// Places in the text that the template marks as answers by `{% generation %}`, in order.
    pub answers: Vec<Range<usize>>,
}

impl ChatTemplate {
    /// The template of a model, if it has one: `chat_template.jinja`, or `chat_template` of `tokenizer_config.json`, or
    /// `tokenizer.chat_template` of a GGUF file. One of the name `tool_use` beside it is taken where there are tools, as in transformers.
    ///
    /// # Errors
    /// If it is no template that can be read.
    pub fn of(model: &ModelFiles, tokenizer: &Tokenizer) -> Result<Option<Self>> {
        let Some(source) = Self::source(model)? else { return Ok(None) };
        let mut template = Self::new(&source, tokenizer)?;
        let folder = model.folder().filter(|_| model.gguf().is_none());
        if let Some(source) = folder.map(|folder| for_tools(folder.path())).transpose()?.flatten() {
            template.add(TOOL_USE, &source)?;
        }
        Ok(Some(template))
    }

    /// The text of a model's template, if it has one.
    pub(crate) fn source(model: &ModelFiles) -> Result<Option<String>> {
        match (model.gguf(), model.folder()) {
            (Some(file), _) => Ok(file.text("tokenizer.chat_template")?.map(ToOwned::to_owned)),
            (None, Some(folder)) => in_folder(folder.path()),
            (None, None) => Ok(None),
        }
    }

    /// Reads a template.
    ///
    /// # Errors
    /// If its syntax is wrong.
    pub fn new(source: &str, tokenizer: &Tokenizer) -> Result<Self> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(refuse)?);
        environment.set_fuel(Some(MOST_STEPS));
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_formatter(|out, state, value| minijinja::escape_formatter(out, state, &as_in_python(value)));
        environment.add_filter("tojson", to_json);
        environment.add_filter(MARK, mark_answer);
        environment.add_test("iterable", is_iterable);
        environment.add_test("sequence", is_sequence);
        environment.add_function("raise_exception", |message: String| -> Result<Value, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_function("strftime_now", |format: String| {
            strtime::format(format, &Zoned::now())
                .map_err(|error| minijinja::Error::new(ErrorKind::InvalidOperation, error.to_string()))
        });
        let named = tokenizer.named().iter().map(|(name, token)| (name.clone(), token.into())).collect();
        let mut template = Self { environment, named, marking: Vec::new() };
        template.add(NAME, source)?;
        Ok(template)
    }

    fn add(&mut self, name: &'static str, source: &str) -> Result<()> {
        // Jinja ends all lines of a template by `\n`.
        let source = source.replace("\r\n", "\n").replace('\r', "\n");
        let (source, marks_answers) = with_filters(&source);
        self.environment.add_template_owned(name, source).map_err(refuse)?;
        self.marking.extend(marks_answers.then_some(name));
        Ok(())
    }

    /// The template for a conversation.
    fn name(&self, tools: Option<&Value>) -> &'static str {
        let has_tool_use = self.environment.get_template(TOOL_USE).is_ok();
        if tools.is_some() && has_tool_use { TOOL_USE } else { NAME }
    }

    /// Whether the template, of conversations with tools or without, has `{% generation %}`, which marks what is learned.
    pub fn marks_answers(&self, tools: Option<&Value>) -> bool {
        self.marking.contains(&self.name(tools))
    }

    /// The text of a conversation: a list of messages, and the tools that they may call, or none.
    ///
    /// Keys of a message whose value is null are left out, as transformers leaves them out, and thoughts have all its names for them.
    ///
    /// # Errors
    /// If the template refuses the messages, or takes too many steps.
    pub fn render(&self, messages: &[Value], tools: Option<&Value>, ending: Ending) -> Result<String> {
        Ok(self.written(messages, tools, ending)?.0)
    }

    /// A conversation with the places that the template marks, for `return_assistant_tokens_mask` of transformers.
    ///
    /// # Errors
    /// As [`render`](Self::render), and if marked text does not stand where transformers looks for it: behind what was written before.
    pub fn marked(&self, messages: &[Value], tools: Option<&Value>) -> Result<Rendered> {
        let (text, marks) = self.written(messages, tools, Ending::Closed)?;
        let mut answers: Vec<Range<usize>> = Vec::new();
        for (begin, answer) in marks {
            let is_behind = answers.last().is_none_or(|last| last.end <= begin);
            if !is_behind || !text.get(begin..).is_some_and(|rest| rest.starts_with(&answer)) {
                let problem = "needs `{% generation %}` where its text is written at once, but has it in a macro, a `{% set %}` or another \
                               `{% generation %}`";
                let help = "move it to where the text is written: transformers would mark other tokens, too";
                return Err(Error::checkpoint("the chat template", problem, help));
            }
            answers.push(begin..begin + answer.len());
        }
        Ok(Rendered { text, answers })
    }

    /// The text of one message of a user, with the head of the answer.
    ///
    /// # Errors
    /// As [`render`](Self::render).
    pub fn question(&self, content: &str) -> Result<String> {
        let message = Value::from_pairs([("role", "user"), ("content", content)]);
        self.render(&[message], None, Ending::Answer)
    }

    /// A text, and what it marks, each behind so many bytes of it.
    fn written(
        &self,
        messages: &[Value],
        tools: Option<&Value>,
        ending: Ending,
    ) -> Result<(String, Vec<(usize, String)>)> {
        let messages: Value = messages.iter().map(given).collect();
        let marks = Arc::new(Marks::default());
        let own = [
            ("messages".to_owned(), messages),
            ("tools".to_owned(), tools.cloned().unwrap_or(Value::from(()))),
            ("documents".to_owned(), Value::from(())),
            ("add_generation_prompt".to_owned(), Value::from(ending == Ending::Answer)),
            (MARKS.to_owned(), Value::from_dyn_object(Arc::clone(&marks))),
        ];
        let context = Value::from_pairs(self.named.iter().cloned().chain(own));
        let mut written = Written { bytes: Vec::new(), marks: Arc::clone(&marks) };
        let template = self.environment.get_template(self.name(tools));
        let rendered = template.and_then(|template| template.render_captured_to(context, &mut written).map(drop));
        rendered.map_err(|error| {
            let problem = format!("can't render the messages: {}", told(&error));
            Error::data(
                "the chat template",
                problem,
                "give messages in the order and with the fields that the model knows",
            )
        })?;
        let found = std::mem::take(&mut *marks.found.lock().unwrap_or_else(PoisonError::into_inner));
        Ok((String::from_utf8_lossy(&written.bytes).into_owned(), found))
    }
}

/// Answers that a template marks while it is rendered.
#[derive(Debug, Default)]
struct Marks {
    /// Bytes written so far. Text of macros is written when it is whole.
    written: AtomicUsize,
    found: Mutex<Vec<(usize, String)>>,
}

impl Object for Marks {}

/// The filter that stands around the text of `{% generation %}`.
fn mark_answer(answer: String, marks: &Value) -> Result<String, minijinja::Error> {
    let lost = || minijinja::Error::new(ErrorKind::InvalidOperation, "`{% generation %}` is out of place");
    let marks = marks.downcast_object_ref::<Marks>().ok_or_else(lost)?;
    let begin = marks.written.load(Ordering::Relaxed);
    marks.found.lock().unwrap_or_else(PoisonError::into_inner).push((begin, answer.clone()));
    Ok(answer)
}

/// The text of a template, which counts its bytes.
struct Written {
    bytes: Vec<u8>,
    marks: Arc<Marks>,
}

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        self.marks.written.store(self.bytes.len(), Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn in_folder(folder: &Path) -> Result<Option<String>> {
    let path = folder.join("chat_template.jinja");
    if path.exists() {
        return files::read_text(&path).map(Some);
    }
    let config = optional_json(&folder.join("tokenizer_config.json"))?;
    let template = config.get("chat_template");
    let text = template.and_then(|template| template.as_str().or_else(|| of_name(template.as_array()?, "default")));
    Ok(text.map(ToOwned::to_owned))
}

/// The template for tools of a folder, if it has one of its own: a file, or one of the list in `tokenizer_config.json`.
fn for_tools(folder: &Path) -> Result<Option<String>> {
    let path = folder.join("additional_chat_templates").join("tool_use.jinja");
    if path.exists() {
        return files::read_text(&path).map(Some);
    }
    if folder.join("chat_template.jinja").exists() {
        return Ok(None);
    }
    let config = optional_json(&folder.join("tokenizer_config.json"))?;
    let list = config.get("chat_template").and_then(|list| list.as_array());
    Ok(list.and_then(|list| of_name(list, TOOL_USE)).map(ToOwned::to_owned))
}

/// One of several templates.
fn of_name<'a>(list: &'a [serde_json::Value], name: &str) -> Option<&'a str> {
    let is_named = |one: &&serde_json::Value| one.get("name").and_then(|name| name.as_str()) == Some(name);
    list.iter().find(is_named)?.get("template")?.as_str()
}

fn refuse(error: minijinja::Error) -> Error {
    let problem = format!("needs to be a Jinja template, but {}", told(&error));
    Error::checkpoint("the chat template", problem, "take the model's files as they were published")
}

/// The problem, with its line, as the template's author knows it.
fn told(error: &minijinja::Error) -> String {
    let detail = error.detail().map_or_else(|| error.kind().to_string(), ToOwned::to_owned);
    match error.line() {
        Some(line) => format!("{} (line {line} of the template)", shown(&detail)),
        None => shown(&detail).to_string(),
    }
}

/// A template with a filter in place of `{% generation %}`, and whether it has one.
///
/// No call with the block as its `caller`, as in transformers: minijinja 3.1 does not find a variable in such a block that the block itself
/// sets, as in `{% set text = text | trim %}`. Variables that the block sets end with it.
fn with_filters(source: &str) -> (String, bool) {
    let mut parts = source.split("{%");
    let mut text = parts.next().unwrap_or_default().to_owned();
    let mut is_found = false;
    for part in parts {
        let (tag, rest) = part.split_once("%}").unwrap_or((part, ""));
        let new = match tag.trim_matches(['-', '+']).trim() {
            "generation" => {
                is_found = true;
                tag.replace("generation", &format!("with __own = {MARKS} %}}{{% filter {MARK}(__own)"))
            }
            "endgeneration" => tag.replace("endgeneration", "endfilter %}{% endwith"),
            _ => tag.to_owned(),
        };
        text.push_str("{%");
        text.push_str(&new);
        if tag.len() < part.len() {
            text.push_str("%}");
            text.push_str(rest);
        }
    }
    (text, is_found)
}

/// Keys of a message that hold thoughts. Templates read the first, those of gpt-oss the second.
const THOUGHTS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// A message as transformers gives it to templates.
fn given(message: &Value) -> Value {
    if message.kind() != ValueKind::Map {
        return message.clone();
    }
    let keys = message.try_iter().into_iter().flatten();
    let pairs = keys.filter_map(|key| message.get_item(&key).ok().map(|value| (key, value)));
    let pairs: Vec<(Value, Value)> = pairs.filter(|(_, value)| !value.is_none()).collect();
    let find = |name: &str| pairs.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value.clone());
    let Some(thought) = THOUGHTS.into_iter().find_map(find) else { return Value::from_pairs(pairs) };
    let [first, second, _] = THOUGHTS.map(Value::from);
    Value::from_pairs([(second, thought.clone())].into_iter().chain(pairs).chain([(first, thought)]))
}

/// `is iterable` of Jinja, for which `none` is not, as where there are no tools.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// `is sequence` of Jinja: all that has a length and takes a key.
fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Undefined | ValueKind::String | ValueKind::Seq | ValueKind::Map)
}

/// Values that Python prints in another way than Rust.
fn as_in_python(value: &Value) -> Value {
    match value.kind() {
        ValueKind::Bool => Value::from(if value.is_true() { "True" } else { "False" }),
        ValueKind::None => Value::from("None"),
        _ => value.clone(),
    }
}

/// `json.dumps` of Python, as transformers gives it to templates.
fn to_json(_: &State, value: &Value, indent: Option<usize>, options: Kwargs) -> Result<Value, minijinja::Error> {
    let indent = options.get::<Option<usize>>("indent")?.or(indent);
    let wrong = |error: String| minijinja::Error::new(ErrorKind::BadSerialization, error);
    for option in ["ensure_ascii", "separators", "sort_keys"] {
        if options.get::<Option<Value>>(option)?.is_some_and(|value| value.is_true()) {
            return Err(wrong(format!("`tojson` takes no `{option}` here")));
        }
    }
    options.assert_all_used()?;
    let mut bytes = Vec::new();
    let written = match indent {
        Some(indent) => {
            let indent = " ".repeat(indent.min(16));
            let formatter = PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut bytes, formatter))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut bytes, Spaced)),
    };
    written.map_err(|error| wrong(error.to_string()))?;
    String::from_utf8(bytes).map(Value::from).map_err(|error| wrong(error.to_string()))
}

/// JSON on one line with a space after each comma and colon, as Python writes it.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(&mut self, out: &mut W, first: bool) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(&mut self, out: &mut W, first: bool) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, out: &mut W) -> std::io::Result<()> {
        out.write_all(b": ")
    }
}
