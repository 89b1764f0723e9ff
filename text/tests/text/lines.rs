//! Lines of JSONL become the tokens of transformers with a mask of the answers, or are refused with their number.

use std::path::{Path, PathBuf};

use manyhands_text::packing::{LeftOut, Packed};
use manyhands_text::rows::{Document, Reader};
use manyhands_text::{ChatTemplate, ModelFiles, Tokenizer};

use super::golden;

struct Fixture {
    folder: tempfile::TempDir,
    tokenizer: Tokenizer,
    template: ChatTemplate,
}

impl Fixture {
    fn of(name: &str) -> Self {
        Self::at(&golden::path(name))
    }

    fn at(path: &Path) -> Self {
        let model = ModelFiles::open(path).unwrap();
        let tokenizer = Tokenizer::of(&model).unwrap();
        let template = ChatTemplate::of(&model, &tokenizer).unwrap().unwrap();
        Self { folder: tempfile::tempdir().unwrap(), tokenizer, template }
    }

    fn reader(&self) -> Reader<'_> {
        Reader { tokenizer: &self.tokenizer, template: Some(&self.template) }
    }

    fn write(&self, text: &str) -> PathBuf {
        let path = self.folder.path().join("chat.jsonl");
        std::fs::write(&path, text).unwrap();
        path
    }

    fn read(&self, text: &str) -> Vec<Document> {
        self.reader().read(&self.write(text)).unwrap()
    }

    fn refused(&self, text: &str) -> String {
        self.reader().read(&self.write(text)).unwrap_err().to_string()
    }

    /// The text of the tokens that are learned.
    fn learned(&self, document: &Document) -> String {
        let ids = document.ids.iter().zip(&document.learned).filter(|(_, learned)| **learned == 1).map(|(id, _)| *id);
        self.tokenizer.decode(&ids.collect::<Vec<_>>()).unwrap()
    }
}

/// Masks of answers, as transformers gives them by `return_assistant_tokens_mask` of a template with `{% generation %}`.
fn check_masks(mut fixture: Fixture) {
    for case in golden::of("smollm")["masks"].as_array().unwrap() {
        fixture.template = ChatTemplate::new(case["template"].as_str().unwrap(), &fixture.tokenizer).unwrap();
        let row = serde_json::json!({"messages": case["messages"]}).to_string();
        let document = &fixture.read(&row)[0];
        assert_eq!(serde_json::json!(document.ids), case["ids"], "{row}");
        assert_eq!(serde_json::json!(document.learned), case["mask"], "{row}");
    }
}

/// A tokenizer as that of `smollm`, with another end.
fn with_post_processor(post_processor: &serde_json::Value) -> Fixture {
    with_part("post_processor", post_processor)
}

/// A tokenizer as that of `smollm`, but for one part.
fn with_part(part: &str, value: &serde_json::Value) -> Fixture {
    let mut fixture = Fixture::of("smollm");
    let mut json: serde_json::Value = serde_json::from_str(fixture.tokenizer.json()).unwrap();
    json[part] = value.clone();
    let folder = fixture.folder.path();
    std::fs::copy(golden::path("smollm/tokenizer_config.json"), folder.join("tokenizer_config.json")).unwrap();
    std::fs::write(folder.join("tokenizer.json"), json.to_string()).unwrap();
    fixture.tokenizer = Tokenizer::from_folder(folder).unwrap();
    fixture
}

#[test]
fn masks_are_those_of_transformers() {
    check_masks(Fixture::of("smollm"));
}

/// The tokenizer of Llama 3 leaves out spaces at the ends of tokens' spans.
#[test]
fn masks_do_not_depend_on_trimmed_spans() {
    let trimming =
        serde_json::json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    check_masks(with_post_processor(&trimming));
}

/// A template may have no place for answers.
#[test]
fn answers_that_are_left_out_are_refused() {
    let mut fixture = Fixture::of("smollm");
    fixture.template = ChatTemplate::new(
        "{% for m in messages %}{% if m.role == 'user' %}u {% endif %}{% endfor %}",
        &fixture.tokenizer,
    )
    .unwrap();
    let row = r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}"#;
    assert!(fixture.refused(row).contains("has an answer, message 2, that the chat template leaves out"));
}

/// A tokenizer may end each text; a prompt keeps the ends that it was written with.
#[test]
fn prompts_go_on() {
    let special = |token: &str| serde_json::json!({"SpecialToken": {"id": token, "type_id": 0}});
    let [begin, end] = [special("<|endoftext|>"), special("<|im_end|>")];
    let [one, other] = ["A", "B"].map(|id| serde_json::json!({"Sequence": {"id": id, "type_id": 0}}));
    let fixture = with_post_processor(&serde_json::json!({
        "type": "TemplateProcessing", "single": [begin, one, end], "pair": [one, other],
        "special_tokens": {
            "<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]},
            "<|im_end|>": {"id": "<|im_end|>", "ids": [2], "tokens": ["<|im_end|>"]},
        },
    }));
    let documents = fixture.read("{\"prompt\": \"ab<|im_end|>\", \"completion\": \"c\"}\n{\"text\": \"ab\"}");
    let decoded = |document: &Document| fixture.tokenizer.decode(&document.ids).unwrap();
    assert_eq!(decoded(&documents[0]), "<|endoftext|>ab<|im_end|>c<|im_end|>");
    assert_eq!(fixture.learned(&documents[0]), "c<|im_end|>");
    assert_eq!(decoded(&documents[1]), "<|endoftext|>ab<|im_end|>");
}

/// Tokenizers of Llama 2 and Mistral put a space before each text. A completion begins none.
#[test]
fn completions_go_on_without_a_space_of_their_own() {
    let spaced =
        serde_json::json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true});
    let fixture = with_part("pre_tokenizer", &spaced);
    for (prompt, completion) in [("Say:", "hello"), ("Say: ", "hello"), ("Say:", " hello"), ("Say:\n", "hello you")] {
        let row = serde_json::json!({"prompt": prompt, "completion": completion}).to_string();
        let document = &fixture.read(&row)[0];
        let text = fixture.tokenizer.decode(&document.ids).unwrap();
        assert_eq!(text, format!(" {prompt}{completion}<|im_end|>"));
        let learned = fixture.learned(document);
        assert_eq!(learned.trim_start(), format!("{}<|im_end|>", completion.trim_start()));
    }
    // The beginning stays without a prompt, too.
    let begun = &Fixture::of("llama").read("{\"prompt\": \"\", \"completion\": \"b\"}")[0];
    assert_eq!((begun.ids[0], begun.ids.len()), (0, 3));
}

#[test]
fn answers_alone_are_learned() {
    let fixture = Fixture::of("qwen2");
    let turns = |user: &str, answer: &str| {
        format!(r#"{{"role":"user","content":"{user}"}},{{"role":"assistant","content":"{answer}"}}"#)
    };
    let chat = format!(r#"{{"messages":[{},{}]}}"#, turns("a", "b c"), turns("d", "e"));
    let text = [&chat, "", r#"{"prompt": "Say: ", "completion": "hello"}"#, r#"{"text": "all of it"}"#].join("\n");
    let documents = fixture.read(&text);
    assert_eq!(documents.iter().map(|document| document.line).collect::<Vec<_>>(), [1, 3, 4]);
    let learned: Vec<String> = documents.iter().map(|document| fixture.learned(document)).collect();
    assert_eq!(learned, ["b c<|im_end|>e<|im_end|>", "hello<|im_end|>", "all of it<|im_end|>"]);
    assert_eq!(fixture.tokenizer.decode(&documents[1].ids).unwrap(), "Say: hello<|im_end|>");
    let begun = Fixture::of("llama").read("{\"prompt\": \"a\", \"completion\": \"b\"}");
    assert_eq!((begun[0].ids[0], begun[0].learned.as_slice()), (0, &[0, 0, 1, 1][..]));
}

#[test]
fn answers_of_weight_0_are_not_learned() {
    let fixture = Fixture::of("qwen2");
    let answer = |text: &str, weight: &str| format!(r#"{{"role":"assistant","content":"{text}"{weight}}}"#);
    let question = r#"{"role":"user","content":"a","weight":0}"#;
    let chat = |first: &str, second: &str| {
        format!(r#"{{"messages":[{question},{},{question},{}]}}"#, answer("b c", first), answer("e", second))
    };
    for (first, second, learned) in [
        ("", "", "b c<|im_end|>e<|im_end|>"),
        (r#","weight":1"#, r#","weight":null"#, "b c<|im_end|>e<|im_end|>"),
        (r#","weight":0"#, r#","weight":1"#, "e<|im_end|>"),
        (r#","weight":0.0"#, r#","weight":0"#, ""),
        (r#","train":true"#, r#","train":false"#, "b c<|im_end|>"),
    ] {
        let documents = fixture.read(&chat(first, second));
        assert_eq!(fixture.learned(&documents[0]), learned, "{first} {second}");
        assert_eq!(documents[0].is_learned(), !learned.is_empty());
    }
    let refused = fixture.refused(&chat(r#","weight":0.5"#, ""));
    assert!(refused.contains("line 1") && refused.contains("but message 2 has another"), "{refused}");
    let refused = fixture.refused(&chat("", "").replace(r#""a","weight":0"#, r#""a","weight":1"#));
    assert!(refused.contains("needs a `weight` of 0 or 1 at answers and of 0 elsewhere"), "{refused}");
    let refused = fixture.refused(&chat("", "").replace(r#""a","weight":0"#, r#""a","train":true"#));
    assert!(refused.contains("needs a `train` of false or true at answers and of false elsewhere"), "{refused}");
}

/// A template that ends answers by nothing, and an answer with a special token of its own.
#[test]
fn an_answer_is_learned_behind_a_special_token() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(golden::path("smollm").join(file), folder.path().join(file)).unwrap();
    }
    let template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}";
    std::fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
    let fixture = Fixture::at(folder.path());
    let answer = r#"{"role":"assistant","content":"a<|im_start|>b"}"#;
    let documents = fixture.read(&format!(r#"{{"messages":[{{"role":"user","content":"c"}},{answer}]}}"#));
    assert_eq!(fixture.learned(&documents[0]), " a<|im_start|>b\n");
}

#[test]
fn broken_lines_are_named() {
    let fixture = Fixture::of("smollm");
    let help = "\n  help: ";
    for (text, message) in [
        ("", "chat.jsonl` needs at least one row, but has none"),
        ("\n \n", "needs at least one row"),
        ("{\"text\": \"a\"}\n{\"text\": ", "line 2 of `"),
        ("{\"text\": ", "needs to be JSON, but at column"),
        ("3", "needs to be a JSON object, but is something else"),
        (
            "[{\"text\": \"a\"}]",
            "needs to be a JSON object, but is a list\n  help: write each object of the list on a line",
        ),
        ("{\"text\": null}", "and one of them, but has `text` = null"),
        ("{}", "but has nothing"),
        (
            "{\"prompt\": \"a\"}",
            "needs `messages`, `prompt` with `completion`, or `text`, and one of them, but has `prompt`",
        ),
        ("{\"text\": \"a\", \"messages\": []}", "but has `text`, `messages`"),
        ("{\"text\": 3}", "needs a text in `text`"),
        ("{\"messages\": 3}", "needs a list of messages"),
        ("{\"messages\": [{\"content\": \"a\"}]}", "needs a `role` in each message, but message 1 has none"),
        ("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", "needs a message with the role `assistant`"),
    ] {
        let error = fixture.refused(text);
        assert!(error.contains(message) && error.contains(help), "{error}");
    }
    let llama = Fixture::of("llama");
    let error = llama.refused("{\"text\": \"a\"}\n\n{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}");
    assert!(error.contains("line 3 of `") && error.contains("roles must alternate"), "{error}");
    let without = Reader { template: None, ..llama.reader() };
    let error =
        without.read(&llama.write("{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}")).unwrap_err();
    assert!(error.to_string().contains("the model has no chat template"), "{error}");
}

/// As a list, or as a text that holds it, which TRL reads, too.
#[test]
fn tools_are_objects() {
    let fixture = Fixture::of("qwen2");
    let row = |tools: &str| {
        format!(
            r#"{{"messages": [{{"role": "user", "content": "a"}}, {{"role": "assistant", "content": "b"}}], "tools": {tools}}}"#
        )
    };
    let list = r#"[{"type": "function", "function": {"name": "add", "parameters": {"b": 1, "a": 2}}}]"#;
    let documents = fixture.read(&row(list));
    let text = fixture.tokenizer.decode(&documents[0].ids).unwrap();
    assert!(
        text.contains(r#"{"type": "function", "function": {"name": "add", "parameters": {"b": 1, "a": 2}}}"#),
        "{text}"
    );
    assert_eq!(fixture.read(&row(&serde_json::Value::from(list).to_string())), documents);
    for tools in ["{\"name\": \"add\"}", "[\"add\"]", "\"add\"", "3"] {
        let error = fixture.refused(&row(tools));
        assert!(
            error.contains("needs a list of objects in `tools`") && error.contains("describe each tool: "),
            "{error}"
        );
    }
}

/// Keys that other programs read, or that only other ways of training need.
#[test]
fn keys_that_would_change_what_is_learned_are_refused() {
    let fixture = Fixture::of("smollm");
    let chat = r#""messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]"#;
    for (keys, what, help) in [
        (r#""prompt": "a", "chosen": "b", "rejected": "c""#.to_owned(), "`chosen`", "not preferences (DPO, KTO)"),
        (format!(r#"{chat}, "chosen": [], "rejected": []"#), "`chosen`", "not preferences (DPO, KTO)"),
        (r#""text": "a", "rejected": "c""#.to_owned(), "`rejected`", "not preferences (DPO, KTO)"),
        (r#""prompt": "a", "completion": "b", "label": false"#.to_owned(), "`label` = false", "no other"),
        (format!(r#"{chat}, "system": "Be brief.""#), "`system`", r#"{"role": "system", "content": "…"}"#),
        (format!(r#"{chat}, "chat_template_kwargs": {{"x": false}}"#), "`chat_template_kwargs`", "leave it out"),
    ] {
        let error = fixture.refused(&format!("{{{keys}}}"));
        assert!(error.contains(&format!("has {what}, which is not supported\n  help: ")), "{error}");
        assert!(error.contains("line 1 of `") && error.contains(help), "{error}");
    }
    let row = r#"{"prompt": "a", "completion": "b", "label": true, "system": "", "chosen": null, "id": 3}"#;
    assert_eq!(fixture.learned(&fixture.read(row)[0]), "b<|im_end|>");
    let error = fixture.refused(r#"{"conversations": [], "system": "Be brief."}"#);
    assert!(error.contains("but has `conversations`, `system`"), "{error}");
}

/// Templates may render earlier answers otherwise, as that of Qwen 3, which leaves out their thoughts. Each row is what the model sees when
/// it gives the answer.
#[test]
fn an_answer_is_a_row_of_its_own_where_it_is_rendered_otherwise_later() {
    let mut fixture = Fixture::of("smollm");
    let golden: serde_json::Value =
        serde_json::from_slice(&std::fs::read(golden::path("chats.json")).unwrap()).unwrap();
    let mut divided = 0;
    for case in golden["answers"].as_array().unwrap() {
        fixture.template = ChatTemplate::new(case["template"].as_str().unwrap(), &fixture.tokenizer).unwrap();
        let row = serde_json::json!({"messages": case["messages"]}).to_string();
        let documents = fixture.read(&row);
        let found: Vec<_> = documents
            .iter()
            .map(|document| serde_json::json!({"ids": document.ids, "learned": document.learned}))
            .collect();
        assert_eq!(serde_json::json!(found), case["rows"], "{row}");
        assert!(documents.iter().all(|document| document.line == 1));
        divided += usize::from(documents.len() > 1);
    }
    assert!(divided >= 4, "{divided}");
}

/// Of a template with `{% generation %}`, what lies within is learned, as TRL does it by `assistant_only_loss`.
#[test]
fn what_a_template_marks_is_learned() {
    let mut fixture = Fixture::of("smollm");
    let golden: serde_json::Value =
        serde_json::from_slice(&std::fs::read(golden::path("chats.json")).unwrap()).unwrap();
    let cases = golden["marked"].as_array().unwrap();
    for case in cases {
        fixture.template = ChatTemplate::new(case["template"].as_str().unwrap(), &fixture.tokenizer).unwrap();
        let row = serde_json::json!({"messages": case["messages"]}).to_string();
        let documents = fixture.read(&row);
        assert_eq!(documents.len(), 1);
        assert_eq!(serde_json::json!(documents[0].ids), case["ids"], "{} {row}", case["template"]);
        assert_eq!(serde_json::json!(documents[0].learned), case["learned"], "{} {row}", case["template"]);
    }
    assert!(cases.len() > 30, "{}", cases.len());
}

/// Marks are refused where transformers itself would mark other tokens, or nothing says which are those of a message.
#[test]
fn marks_that_mislead_are_refused() {
    let mut fixture = Fixture::of("smollm");
    let row = r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0}, {"role": "user", "content": "c"}]}"#;
    for (source, message) in [
        (
            "{% set all %}{% generation %}{{ messages[1].content }}{% endgeneration %}{% endset %}x{{ all }}",
            "line 1 of `",
        ),
        (
            "{% set all %}{% generation %}{{ messages[1].content }}{% endgeneration %}{% endset %}x{{ all }}",
            "needs `{% generation %}` where its text is written at once",
        ),
        (
            "{% for m in messages %}{{ m.role }}{% generation %}{{ loop.length }}{{ m.content }}{% endgeneration %}{% endfor %}",
            "has an answer that is not to be learned, message 2, whose `{% generation %}`",
        ),
    ] {
        fixture.template = ChatTemplate::new(source, &fixture.tokenizer).unwrap();
        let error = fixture.refused(row);
        assert!(error.contains(message) && error.contains("help: "), "{error}");
    }
}

#[test]
fn answers_of_weight_0_have_no_row_of_their_own() {
    let mut fixture = Fixture::of("smollm");
    let source = "{% for m in messages %}{{ m.role }}{% if loop.last and m.role == 'assistant' %}!{% endif %}: {{ m.content }}<|im_end|>{% endfor %}\
                  {% if add_generation_prompt %}assistant{% endif %}";
    fixture.template = ChatTemplate::new(source, &fixture.tokenizer).unwrap();
    let answer =
        |content: &str, weight: u8| serde_json::json!({"role": "assistant", "content": content, "weight": weight});
    let user = serde_json::json!({"role": "user", "content": "x"});
    let learned = |weights: [u8; 3]| {
        let [a, b, c] = weights;
        let messages = [&user, &answer("a", a), &user, &answer("b", b), &user, &answer("c", c), &user];
        let documents = fixture.read(&serde_json::json!({"messages": messages}).to_string());
        documents.iter().map(|document| fixture.learned(document)).collect::<Vec<_>>()
    };
    assert_eq!(learned([1, 1, 1]), ["!: a<|im_end|>", "!: b<|im_end|>", "!: c<|im_end|>"]);
    assert_eq!(learned([1, 0, 1]), ["!: a<|im_end|>", "!: c<|im_end|>"]);
    assert_eq!(learned([0, 0, 0]), [""]);
}

/// Templates such as that of `DeepSeek` R1 ask for a thought, and show answers without one.
#[test]
fn answers_that_begin_otherwise_than_asked_for_are_refused() {
    let mut fixture = Fixture::of("smollm");
    let source = "{% for m in messages %}{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}assistant: <think>{% endif %}";
    fixture.template = ChatTemplate::new(source, &fixture.tokenizer).unwrap();
    let error =
        fixture.refused(r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}"#);
    assert!(
        error.contains("has an answer, message 2, that the chat template renders otherwise than where it asks")
            && error.contains("\n  help: write it as `prompt`"),
        "{error}"
    );
}

fn document(line: usize, len: u32) -> Document {
    let number = u32::try_from(line).unwrap() * 100;
    Document { line, ids: (number..number + len).collect(), learned: vec![1; len as usize] }
}

#[test]
fn short_documents_share_a_row() {
    let documents = [document(1, 3), document(2, 9), document(3, 5), document(4, 2), document(5, 11), document(6, 8)];
    let packed = Packed::new(&documents, 8);
    let LeftOut { count, first_line, longest, .. } = LeftOut::of(&documents, 8);
    assert_eq!((packed.rows(), count, first_line, longest), (3, 2, 2, 11));
    assert_eq!(packed.ids[..8], [600, 601, 602, 603, 604, 605, 606, 607]);
    assert_eq!(packed.ids[8..16], [300, 301, 302, 303, 304, 100, 101, 102]);
    assert_eq!(packed.ids[16..], [400, 401, 0, 0, 0, 0, 0, 0]);
    assert_eq!(packed.documents[8..], [1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(packed.positions[8..], [0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(packed.learned[8..], [0, 1, 1, 1, 1, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0]);
    let single = Packed::one_a_row(&documents, 8);
    assert_eq!(single.rows(), 4);
    assert_eq!(single.ids[..4], [100, 101, 102, 0]);
    assert_eq!(Packed::new(&[], 8).rows(), 0);
}
