//! Texts to train on: a JSONL file of conversations, prompts with completions, or plain texts, as tokens with a mask of answers.

use std::ops::Range;
use std::path::Path;

use manyhands_engine::{files, shown};
use minijinja::value::{Value, ValueKind};

use crate::chat::{ChatTemplate, Ending, Rendered};
use crate::tokenizer::{Around, Tokenizer, Tokens};
use crate::{Error, Result};

/// Longest file that is read: its rows are kept as tokens.
const MOST_BYTES: u64 = 4 << 30;

/// Tokens of one text, and the tokens of it that are learned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// Number of the line, from 1, or of the piece of a plain text. Documents of one line are the answers of one conversation.
    pub line: usize,
    /// Numbers of the tokens.
    pub ids: Vec<u32>,
    /// For each token, 1 if the model learns to predict it, else 0: answers with the token that ends them, not prompts.
    pub learned: Vec<u8>,
}

impl Document {
    /// Whether there is a token to learn behind the first, before which nothing is.
    pub fn is_learned(&self) -> bool {
        self.learned.iter().skip(1).any(|learned| *learned == 1)
    }

    /// Whether a row of a length can teach it.
    pub(crate) fn fits(&self, length: usize) -> bool {
        self.is_learned() && self.ids.len() <= length
    }
}

/// A text without the mark that some programs write before UTF-8.
pub(crate) fn unmarked(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Turns lines of JSON into tokens.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    /// The model's tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// The model's chat template: rows of `messages` need one.
    pub template: Option<&'a ChatTemplate>,
}

impl Reader<'_> {
    /// Reads a file of one JSON object a line: `messages` (and perhaps `tools`), `prompt` and `completion`, or `text`. Empty lines
    /// are left out.
    ///
    /// # Errors
    /// If the file has no rows or another encoding, or a line is no such object, or the template refuses it: with the line's number.
    pub fn read(&self, path: &Path) -> Result<Vec<Document>> {
        let lines = files::text_of(path, files::read(path, MOST_BYTES)?)?;
        let mut documents = Vec::new();
        for (line, text) in (1..).zip(unmarked(&lines).split('\n')) {
            if text.bytes().all(|byte| byte.is_ascii_whitespace()) {
                continue;
            }
            documents.extend(self.row(text, line, &Place::Line(path, line))?);
        }
        if documents.is_empty() {
            return Err(none(&format!("`{}`", shown(path))));
        }
        Ok(documents)
    }

    /// Reads rows that are a JSON object each, as the lines of [`read`](Self::read).
    ///
    /// # Errors
    /// If there is no row, or one is no such object, or the template refuses it: with the row's place in the list, from 0.
    pub fn parse(&self, rows: &[String]) -> Result<Vec<Document>> {
        if rows.is_empty() {
            return Err(none("`rows`"));
        }
        let mut documents = Vec::new();
        for (at, text) in rows.iter().enumerate() {
            documents.extend(self.row(text, at + 1, &Place::Row(at))?);
        }
        Ok(documents)
    }

    fn row(&self, text: &str, line: usize, place: &Place<'_>) -> Result<Vec<Document>> {
        let row: Value = serde_json::from_str(text).map_err(|error| place.not_json(&error))?;
        let documents = self.documents(&row).map_err(|problem| place.refuse(&problem))?;
        Ok(documents.into_iter().map(|document| Document { line, ..document }).collect())
    }

    /// Tokens of a prompt: of a message of a user with the head of the answer, if there is a template, else of a text.
    ///
    /// # Errors
    /// As [`ChatTemplate::question`] and [`Tokenizer::encode`].
    pub fn prompt(&self, text: &str) -> Result<Vec<u32>> {
        let tokens = match self.template {
            Some(template) => self.tokenizer.encode(&template.question(text)?, Around::None)?,
            None => self.tokenizer.encode(text, Around::Added)?,
        };
        Ok(tokens.ids)
    }

    /// Tokens of a conversation, a JSON list of messages, with the head of the answer that is to be written.
    ///
    /// # Errors
    /// If there is no template, the list has no messages, or the template refuses them.
    pub fn conversation_so_far(&self, messages: &str) -> Result<Vec<u32>> {
        let refuse = |refused: Refused| Error::data("the conversation", refused.problem, refused.help);
        let template = self
            .template
            .ok_or_else(|| refuse(without_template("needs a model with a chat template, but this one has none")))?;
        let messages: Value = serde_json::from_str(messages)
            .map_err(|error| refuse(Refused::because(format!("needs to be JSON, but: {error}"))))?;
        let text = template.render(&checked(&messages).map_err(refuse)?, None, Ending::Answer)?;
        Ok(self.tokenizer.encode(&text, Around::None)?.ids)
    }

    /// The tokens of a row: one document, unless it is a conversation that has one for each answer.
    fn documents(&self, row: &Value) -> Result<Vec<Document>, Refused> {
        let field = |name: &str| row.get_attr(name).ok().filter(|value| !value.is_undefined() && !value.is_none());
        if row.kind() != ValueKind::Map {
            return Err(no_object(row.kind()));
        }
        refuse_unread(&field)?;
        let (messages, prompt, completion, text) =
            (field("messages"), field("prompt"), field("completion"), field("text"));
        match (messages, prompt, completion, text) {
            (Some(messages), None, None, None) => self.conversation(&messages, tools(field("tools"))?.as_ref()),
            (None, Some(prompt), Some(completion), None) => {
                Ok(vec![self.prompted(&as_text("prompt", &prompt)?, &as_text("completion", &completion)?)?])
            }
            (None, None, None, Some(text)) => Ok(vec![self.plain(&as_text("text", &text)?)?]),
            _ => {
                let keys = row.try_iter().into_iter().flatten().filter_map(|key| {
                    let value = row.get_item(&key).ok()?;
                    let key = key.to_string();
                    Some(format!("`{}`{}", shown(&key), if value.is_none() { " = null" } else { "" }))
                });
                let found: Vec<String> = keys.collect();
                let found = if found.is_empty() { "nothing".to_owned() } else { found.join(", ") };
                Err(Refused::because(format!(
                    "needs `messages`, `prompt` with `completion`, or `text`, and one of them, but has {found}"
                )))
            }
        }
    }

    /// A text, all of which is learned. Of an empty one nothing is, not even its end.
    fn plain(&self, text: &str) -> Result<Document, Refused> {
        let mut ids = self.tokenizer.encode(text, Around::Added)?.ids;
        self.end(&mut ids);
        Ok(Document { line: 0, learned: vec![u8::from(!text.is_empty()); ids.len()], ids })
    }

    /// A prompt, and the completion that is learned. A prompt has the tokens that it has alone, as the model sees it later.
    fn prompted(&self, prompt: &str, completion: &str) -> Result<Document, Refused> {
        let mut ids = self.begun(prompt)?.ids;
        let mut prompted = ids.len();
        let whole = self.begun(&[prompt, completion].concat())?;
        if whole.ids.starts_with(&ids) {
            ids = whole.ids;
        } else {
            ids.extend(self.tokenizer.encode(completion, Around::None)?.ids);
            // Tokenizers of Llama 2 and Mistral put a space before each text, so also before a completion.
            if self.tokenizer.decode(&ids)? != self.tokenizer.decode(&whole.ids)? {
                prompted = whole.spans.partition_point(|(_, end)| *end <= prompt.len());
                ids = whole.ids;
            }
        }
        self.end(&mut ids);
        let learned = (0..ids.len()).map(|token| u8::from(token >= prompted)).collect();
        Ok(Document { line: 0, ids, learned })
    }

    /// Tokens of a text that goes on: without those by which some tokenizers end each text.
    fn begun(&self, text: &str) -> Result<Tokens, Refused> {
        let plain = self.tokenizer.encode(text, Around::None)?.ids;
        let mut tokens = self.tokenizer.encode(text, Around::Added)?;
        let around = tokens.ids.len().saturating_sub(plain.len());
        let begin = (0..=around).find(|begin| tokens.ids[*begin..].starts_with(&plain));
        let end = begin.map_or(tokens.ids.len(), |begin| begin + plain.len());
        tokens.ids.truncate(end);
        tokens.spans.truncate(end);
        Ok(tokens)
    }

    /// Adds the token that ends a text, unless it is there.
    fn end(&self, ids: &mut Vec<u32>) {
        if let Some(end) = self.tokenizer.end().filter(|end| ids.last() != Some(end)) {
            ids.push(end);
        }
    }

    /// A conversation, whose answers are learned, but for those that say otherwise.
    ///
    /// Where the template renders an answer otherwise once messages follow, as that of Qwen 3, each answer is a document of its own: the
    /// conversation up to its end, as the model sees it when it gives this answer.
    fn conversation(&self, messages: &Value, tools: Option<&Value>) -> Result<Vec<Document>, Refused> {
        let template =
            self.template.ok_or_else(|| without_template("has `messages`, but the model has no chat template"))?;
        let messages = checked(messages)?;
        if !messages.iter().any(|message| role(message) == "assistant") {
            return Err(Refused::because("needs a message with the role `assistant`, but has none"));
        }
        if template.marks_answers(tools) {
            return Ok(vec![self.marked(template, &messages, tools)?]);
        }
        let text = template.render(&messages, tools, Ending::Closed)?;
        let mut answers = Vec::new();
        for (number, message) in messages.iter().enumerate() {
            if !is_learned(message, number)? {
                continue;
            }
            let begin = template.render(&messages[..number], tools, Ending::Answer)?;
            let end = template.render(&messages[..=number], tools, Ending::Closed)?;
            if !end.starts_with(&begin) {
                return Err(rendered_otherwise(number + 1));
            }
            if begin.len() == end.len() {
                let problem = format!("has an answer, message {}, that the chat template leaves out", number + 1);
                return Err(Refused { problem, help: "give answers with the fields that the model knows".into() });
            }
            answers.push((begin.len()..end.len(), end));
        }
        if answers.iter().all(|(_, end)| text.starts_with(end)) {
            let places: Vec<_> = answers.into_iter().map(|(place, _)| place).collect();
            return Ok(vec![self.with_answers(&text, &places)?]);
        }
        answers.into_iter().map(|(place, end)| self.with_answers(&end, &[place])).collect()
    }

    /// A conversation of which is learned what the template marks by `{% generation %}`, but for messages that say otherwise.
    ///
    /// Each token of which a part is marked is learned, as transformers gives it by `return_assistant_tokens_mask`.
    fn marked(&self, template: &ChatTemplate, messages: &[Value], tools: Option<&Value>) -> Result<Document, Refused> {
        let whole = template.marked(messages, tools)?;
        let mut is_learned_at = vec![true; whole.answers.len()];
        for (number, message) in messages.iter().enumerate() {
            if is_learned(message, number)? || role(message) != "assistant" {
                continue;
            }
            // Marks of the messages before, and with it.
            let mut counts = [0, 0];
            for (count, end) in counts.iter_mut().zip([number, number + 1]).filter(|(_, end)| *end > 0) {
                let part = template.marked(&messages[..end], tools)?;
                let texts = |rendered: &Rendered| -> Vec<String> {
                    rendered.answers.iter().map(|place| rendered.text[place.clone()].to_owned()).collect()
                };
                if !texts(&whole).starts_with(&texts(&part)) {
                    return Err(marked_otherwise(number + 1));
                }
                *count = part.answers.len();
            }
            is_learned_at[counts[0].min(counts[1])..counts[1]].fill(false);
        }
        let tokens = self.tokenizer.encode(&whole.text, Around::None)?;
        let mut learned = vec![0; tokens.ids.len()];
        for place in
            whole.answers.iter().zip(is_learned_at).filter(|(_, is_learned)| *is_learned).map(|(place, _)| place)
        {
            let first = tokens.spans.partition_point(|(_, end)| *end <= place.start);
            let behind = tokens.spans.partition_point(|(begin, _)| *begin < place.end);
            learned[first.min(behind)..behind].fill(1);
        }
        Ok(Document { line: 0, ids: tokens.ids, learned })
    }

    /// A rendered conversation, of which the answers at some places are learned.
    fn with_answers(&self, text: &str, answers: &[Range<usize>]) -> Result<Document, Refused> {
        let tokens = self.tokenizer.encode(text, Around::None)?;
        let mut learned = vec![0; tokens.ids.len()];
        for answer in answers {
            self.learn((text, &tokens), answer.clone(), &mut learned);
        }
        Ok(Document { line: 0, ids: tokens.ids, learned })
    }

    /// Marks the tokens of an answer, up to the token that ends it: line breaks behind it are the template's.
    fn learn(&self, (text, tokens): (&str, &Tokens), answer: Range<usize>, learned: &mut [u8]) {
        // A token that holds the end of the prompt and the begin of the answer is the answer's.
        let first = tokens.spans.partition_point(|(_, end)| *end <= answer.start);
        let behind = tokens.spans.partition_point(|(begin, _)| *begin < answer.end);
        let last = (first..behind).rev().find(|token| self.tokenizer.is_special(tokens.ids[*token]));
        let is_end = |last: &usize| text[tokens.spans[*last].1..answer.end].trim().is_empty();
        let behind = last.filter(is_end).map_or(behind, |last| last + 1);
        learned[first..behind].fill(1);
    }
}

/// A problem of a row, to which its place is added.
struct Refused {
    problem: String,
    help: String,
}

impl Refused {
    fn because(problem: impl Into<String>) -> Self {
        let help = "write {\"messages\": [{\"role\": \"user\", \"content\": \"…\"}, {\"role\": \"assistant\", \"content\": \"…\"}]}, \
                    {\"prompt\": \"…\", \"completion\": \"…\"} or {\"text\": \"…\"}";
        Self { problem: problem.into(), help: help.into() }
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self {
            problem: format!("can't be read, since {} {}", error.who(), error.problem()),
            help: error.help().to_owned(),
        }
    }
}

/// The problem of a row that is no object, such as a whole file that is one list.
fn no_object(kind: ValueKind) -> Refused {
    match kind {
        ValueKind::Seq => Refused {
            problem: "needs to be a JSON object, but is a list".into(),
            help: "write each object of the list on a line of its own: `jq -c '.[]' old.json > new.jsonl`".into(),
        },
        _ => Refused::because("needs to be a JSON object, but is something else"),
    }
}

/// Refuses keys that change what is to be learned, and that are not read.
fn refuse_unread(field: &dyn Fn(&str) -> Option<Value>) -> Result<(), Refused> {
    let wished =
        "answers are learned, not preferences (DPO, KTO): write a row of each answer that is wished for, and no other";
    let first = "make it the first message: {\"role\": \"system\", \"content\": \"…\"}";
    let is_row = ["messages", "completion", "text"].into_iter().any(|key| field(key).is_some());
    let is_given = |key: &str| field(key).is_some_and(|value| value.as_str() != Some(""));
    let is_unwished = |label: Value| label.kind() == ValueKind::Bool && !label.is_true();
    let found = [
        ("`chosen`", wished, is_given("chosen")),
        ("`rejected`", wished, is_given("rejected")),
        ("`label` = false", wished, field("completion").is_some() && field("label").is_some_and(is_unwished)),
        ("`system`", first, is_row && is_given("system")),
        (
            "`chat_template_kwargs`",
            "leave it out: the template's own defaults hold",
            is_row && is_given("chat_template_kwargs"),
        ),
    ];
    match found.into_iter().find(|(.., is_found)| *is_found) {
        Some((what, help, _)) => {
            Err(Refused { problem: format!("has {what}, which is not supported"), help: help.into() })
        }
        None => Ok(()),
    }
}

/// The problem of an answer that does not begin as the model is asked for it.
fn rendered_otherwise(number: usize) -> Refused {
    let problem = format!(
        "has an answer, message {number}, that the chat template renders otherwise than where it asks the model for it"
    );
    let help = "write it as `prompt` and `completion`, in the form that the model has for thoughts and answers";
    Refused { problem, help: help.into() }
}

/// The problem of an answer that is not to be learned, and whose marks are not told from those of others.
fn marked_otherwise(number: usize) -> Refused {
    let problem = format!(
        "has an answer that is not to be learned, message {number}, whose `{{% generation %}}` in the chat template changes once messages follow"
    );
    let help =
        "leave out `weight` and `train`, or `{% generation %}` of the template: answers are learned without it, too";
    Refused { problem, help: help.into() }
}

/// The error of texts without a row.
fn none(who: &str) -> Error {
    let help = "write one JSON object a line: {\"messages\": […]}, {\"prompt\": …, \"completion\": …} or {\"text\": …}";
    Error::data(who, "needs at least one row, but has none", help)
}

fn without_template(problem: &str) -> Refused {
    Refused { problem: problem.into(), help: "take a model for chats, or rows with `prompt` and `completion`".into() }
}

/// Place of a row: a line of a file, from 1, or one of a list, from 0.
enum Place<'a> {
    Line(&'a Path, usize),
    Row(usize),
}

impl Place<'_> {
    fn who(&self) -> String {
        match self {
            Self::Line(path, line) => format!("line {line} of `{}`", shown(path)),
            Self::Row(at) => format!("`rows[{at}]`"),
        }
    }

    fn refuse(&self, refused: &Refused) -> Error {
        Error::data(self.who(), refused.problem.clone(), refused.help.clone())
    }

    fn not_json(&self, error: &serde_json::Error) -> Error {
        let text = error.to_string();
        let cause = text.split(" at line ").next().unwrap_or_default();
        let problem = format!("needs to be JSON, but at column {}: {cause}", error.column());
        Error::data(
            self.who(),
            problem,
            "write one JSON object a line, without line breaks in it: \\n stands for one in a text",
        )
    }
}

fn as_text(name: &str, value: &Value) -> Result<String, Refused> {
    let text = value.as_str().map(ToOwned::to_owned);
    text.ok_or_else(|| Refused::because(format!("needs a text in `{name}`, but has something else")))
}

/// The tools of a conversation: a list of objects, or its JSON as a text, which TRL reads, too.
fn tools(given: Option<Value>) -> Result<Option<Value>, Refused> {
    let Some(given) = given else { return Ok(None) };
    let read = given.as_str().map_or(Some(given.clone()), |text| serde_json::from_str(text).ok());
    let is_list = |tools: &Value| tools.kind() == ValueKind::Seq;
    let has_objects =
        |tools: &Value| tools.try_iter().is_ok_and(|mut tools| tools.all(|tool| tool.kind() == ValueKind::Map));
    match read.filter(|tools| is_list(tools) && has_objects(tools)) {
        Some(tools) => Ok(Some(tools)),
        None => Err(Refused {
            problem: "needs a list of objects in `tools`, but has something else".into(),
            help:
                "describe each tool: [{\"type\": \"function\", \"function\": {\"name\": \"…\", \"parameters\": {…}}}]"
                    .into(),
        }),
    }
}

/// The messages of a conversation, each an object with a role.
fn checked(messages: &Value) -> Result<Vec<Value>, Refused> {
    let is_list = messages.kind() == ValueKind::Seq;
    let list: Vec<Value> = messages.try_iter().into_iter().flatten().collect();
    if !is_list || list.is_empty() {
        return Err(Refused::because("needs a list of messages in `messages`, but has none"));
    }
    match list.iter().position(|message| role(message).is_empty()) {
        Some(number) => {
            Err(Refused::because(format!("needs a `role` in each message, but message {} has none", number + 1)))
        }
        None => Ok(list),
    }
}

/// Whether a message is learned: an answer that says nothing else by a weight, as files for `OpenAI` have it, or by `train`, as those for
/// axolotl.
fn is_learned(message: &Value, number: usize) -> Result<bool, Refused> {
    let is_answer = role(message) == "assistant";
    let mut is_learned = is_answer;
    for (key, [no, yes]) in [("weight", ["0", "1"]), ("train", ["false", "true"])] {
        let value = message.get_attr(key).ok().filter(|value| !value.is_undefined() && !value.is_none());
        let Some(value) = value else { continue };
        let is_flag = value.kind() == ValueKind::Bool;
        match if is_flag { Some(i64::from(value.is_true())) } else { value.as_i64() } {
            Some(0) => is_learned = false,
            Some(1) if is_answer => {}
            _ => {
                let number = number + 1;
                let problem = format!(
                    "needs a `{key}` of {no} or {yes} at answers and of {no} elsewhere, but message {number} has another"
                );
                let help = format!("leave `{key}` out: answers are learned, other messages are not");
                return Err(Refused { problem, help });
            }
        }
    }
    Ok(is_learned)
}

/// The role of a message; empty if there is none.
fn role(message: &Value) -> String {
    message.get_attr("role").ok().and_then(|role| role.as_str().map(ToOwned::to_owned)).unwrap_or_default()
}
