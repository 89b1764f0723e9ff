//! Conversations are rendered to the texts of `apply_chat_template` of transformers.

use manyhands_text::chat::Ending;
use manyhands_text::write::write_folder;
use manyhands_text::{ChatTemplate, Encoding, ModelFiles, Tokenizer};
use minijinja::value::Value;

use super::golden;

fn template_of(name: &str) -> ChatTemplate {
    let model = ModelFiles::open(&golden::path(name)).unwrap();
    ChatTemplate::of(&model, &Tokenizer::of(&model).unwrap()).unwrap().unwrap()
}

/// Conversations of a model, with their keys in order.
fn chats(name: &str) -> Vec<Value> {
    let golden = std::fs::read_to_string(golden::path(name).join("golden.json")).unwrap();
    let golden: Value = serde_json::from_str(&golden).unwrap();
    golden.get_attr("chats").unwrap().try_iter().unwrap().collect()
}

#[test]
fn templates_render_as_in_transformers() {
    let models = golden::FOLDERS.into_iter().filter(|name| *name != "bert");
    let files = golden::GGUF_FILES.map(|name| format!("{name}.gguf"));
    let mut refused = 0;
    for name in models.chain(files.iter().map(String::as_str)) {
        let template = template_of(name);
        for case in chats(name.trim_end_matches(".gguf")) {
            let field = |name: &str| case.get_attr(name).ok().filter(|value| !value.is_undefined());
            let ending = if field("add_generation_prompt").is_some() { Ending::Answer } else { Ending::Closed };
            let messages: Vec<Value> = field("messages").unwrap().try_iter().unwrap().collect();
            let text = template.render(&messages, field("tools").as_ref(), ending);
            match field("text").unwrap().as_str() {
                Some(known) => assert_eq!(text.unwrap(), known, "{name}"),
                None => {
                    let error = text.unwrap_err().to_string();
                    assert!(
                        error.contains("roles must alternate") && error.contains("of the template)"),
                        "{name}: {error}"
                    );
                    refused += 1;
                }
            }
        }
    }
    assert_eq!(refused, 4, "llama, its file, mistral and gemma3 refuse a tool's message");
}

fn rendered(source: &str) -> Result<String, String> {
    let tokenizer = Tokenizer::from_folder(&golden::path("smollm")).unwrap();
    let template = ChatTemplate::new(source, &tokenizer).map_err(|error| error.to_string())?;
    let message = r#"{"role": "user", "content": "Hi", "name": null, "n": {"b": [1, true, null], "a": "ä<"}}"#;
    let messages = [serde_json::from_str(message).unwrap()];
    template.render(&messages, None, Ending::Closed).map_err(|error| error.to_string())
}

/// The texts on the right are those of Jinja with the settings of transformers.
#[test]
fn templates_have_what_transformers_gives_them() {
    for (source, text) in [
        ("{{ messages[0].n | tojson }}", r#"{"b": [1, true, null], "a": "ä<"}"#),
        ("{{ messages[0].n.b | tojson(indent=2) }}", "[\n  1,\n  true,\n  null\n]"),
        ("{{ 'name' in messages[0] }} {{ none }} {{ 1.5 }}", "False None 1.5"),
        ("{% generation %}a{% endgeneration %}b{%- generation -%} c {%- endgeneration %}", "abc"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        (
            "{{ bos_token }}{{ '  x '.strip() }}{{ 'a,b'.split(',')[-1] }}{{ messages[0].get('x', 'y') }}",
            "<|endoftext|>xby",
        ),
        (
            "{{ tools is iterable }} {{ messages is iterable }} {{ 'a' is iterable }} {{ 3 is iterable }} {{ x is iterable }}",
            "False True True False True",
        ),
        (
            "{{ tools is sequence }} {{ 'a' is sequence }} {{ messages[0] is sequence }} {{ 3 is sequence }} {{ x is sequence }}",
            "False True True False True",
        ),
        ("{% if tools is none and documents is none and not add_generation_prompt %}no{% endif %}\n\nend\n", "no\nend"),
        ("{% set s = namespace(n=0) %}{% for m in messages %}{% set s.n = s.n + 1 %}{% endfor %}{{ s.n }}", "1"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ messages[1:] | length }}", "10"),
    ] {
        assert_eq!(rendered(source).unwrap(), text, "{source}");
    }
    let date = rendered("{{ strftime_now('%d %b %Y') }}").unwrap();
    assert!(date.len() == 11 && date.ends_with(char::is_numeric), "{date}");
}

#[test]
fn templates_that_fail_say_why() {
    for (source, message) in [
        (
            "{{ raise_exception('Only users here') }}",
            "can't render the messages: Only users here (line 1 of the template)",
        ),
        ("\n{% if %}", "needs to be a Jinja template"),
        (
            "{% for i in range(100000) %}{% for j in range(100000) %}{{ j }}{% endfor %}{% endfor %}",
            "can't render the messages: ",
        ),
        ("{{ messages[0].n.b.c.d }}", "can't render the messages: "),
        ("{{ messages | tojson(ensure_ascii=true) }}", "`tojson` takes no `ensure_ascii` here"),
    ] {
        let error = rendered(source).unwrap_err();
        assert!(
            error.starts_with("the chat template") && error.contains(message) && error.contains("help: "),
            "{error}"
        );
    }
}

/// Files may have the line ends of Windows or of old Macs, and literals in them, too; those that are written as such stay.
#[test]
fn lines_of_templates_end_as_in_jinja() {
    let model = ModelFiles::open(&golden::path("smollm")).unwrap();
    let tokenizer = Tokenizer::of(&model).unwrap();
    let source = "A\nB\n{% for m in messages %}\n{{ m.content }}\n{% endfor %}{{ 'x\ny\\r\\n' }}\n";
    let message = Value::from_pairs([("role", "user"), ("content", "one\r\n")]);
    for end in ["\n", "\r\n", "\r"] {
        let template = ChatTemplate::new(&source.replace('\n', end), &tokenizer).unwrap();
        let text = template.render(std::slice::from_ref(&message), None, Ending::Closed).unwrap();
        assert_eq!(text, "A\nB\none\r\n\nx\ny\r\n", "{end:?}");
    }
}

/// Some models have a template for tools, in a file of its own or in a list.
#[test]
fn tools_have_their_own_template_where_there_are_two() {
    let golden: Value = serde_json::from_str(&std::fs::read_to_string(golden::path("chats.json")).unwrap()).unwrap();
    let two = golden.get_attr("two").unwrap();
    let field = |name: &str| two.get_attr(name).unwrap();
    let source = |name: &str| field("templates").get_attr(name).unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        std::fs::copy(golden::path("smollm").join(file), path(file)).unwrap();
    }
    let list = ["default", "tool_use"].map(|name| serde_json::json!({"name": name, "template": source(name)}));
    let in_a_list = serde_json::json!({"chat_template": list, "eos_token": "<|im_end|>"});
    let as_text = serde_json::json!({"chat_template": source("default"), "eos_token": "<|im_end|>"});
    for layout in ["list", "files", "text and file"] {
        if layout == "list" {
            std::fs::write(path("tokenizer_config.json"), in_a_list.to_string()).unwrap();
        } else if layout == "text and file" {
            std::fs::remove_file(path("chat_template.jinja")).unwrap();
            std::fs::write(path("tokenizer_config.json"), as_text.to_string()).unwrap();
        } else {
            std::fs::remove_file(path("tokenizer_config.json")).unwrap();
            std::fs::write(path("chat_template.jinja"), source("default")).unwrap();
            std::fs::create_dir(path("additional_chat_templates")).unwrap();
            std::fs::write(path("additional_chat_templates/tool_use.jinja"), source("tool_use")).unwrap();
        }
        let model = ModelFiles::open(folder.path()).unwrap();
        let template = ChatTemplate::of(&model, &Tokenizer::of(&model).unwrap()).unwrap().unwrap();
        let messages: Vec<Value> = field("messages").try_iter().unwrap().collect();
        for (tools, text) in field("tools").try_iter().unwrap().zip(field("texts").try_iter().unwrap()) {
            let tools = Some(&tools).filter(|tools| !tools.is_none());
            assert_eq!(template.render(&messages, tools, Ending::Closed).unwrap(), text.to_string(), "{layout}");
            assert_eq!(template.marks_answers(tools), tools.is_some());
        }
        // A merged model keeps both.
        let merged = tempfile::tempdir().unwrap();
        write_folder(merged.path(), &model, Encoding::F32, &mut |name| model.tensor(name)).unwrap();
        let written = ModelFiles::open(merged.path()).unwrap();
        let template = ChatTemplate::of(&written, &Tokenizer::of(&written).unwrap()).unwrap().unwrap();
        assert_eq!([None, Some(&Value::from(()))].map(|tools| template.marks_answers(tools)), [false, true]);
    }
}
