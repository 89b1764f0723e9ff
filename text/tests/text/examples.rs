//! Texts become rows whose targets are the next tokens.

use std::collections::BTreeSet;
use std::fs;

use manyhands_text::examples::{Examples, NOT_LEARNED, RowRules, Rows};
use manyhands_text::rows::{Document, Reader};
use manyhands_text::{ModelFiles, Tokenizer};

use super::golden;

fn tokenizer() -> Tokenizer {
    Tokenizer::of(&ModelFiles::open(&golden::path("smollm")).unwrap()).unwrap()
}

fn read(files: &[(&str, &str)], path: &str, most: usize, held_out: f64) -> manyhands_text::Result<Examples> {
    read_by(files, path, &RowRules { most, are_joined: false, held_out, seed: 3 })
}

fn read_by(files: &[(&str, &str)], path: &str, rules: &RowRules) -> manyhands_text::Result<Examples> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let tokenizer = tokenizer();
    let reader = Reader { tokenizer: &tokenizer, template: None };
    Examples::read(&reader, &folder.path().join(path), rules)
}

/// By hand: of `prompt` and `completion`, the targets are the completion and the end, each one place before its token.
#[test]
fn targets_are_the_next_tokens_of_answers() {
    let (prompt, completion) = ("blue or ", "red");
    let line = format!("{{\"prompt\": \"{prompt}\", \"completion\": \"{completion}\"}}");
    let examples = read(&[("a.jsonl", &line)], "a.jsonl", 64, 0.0).unwrap();
    let tokenizer = tokenizer();
    let encode = |text: &str| tokenizer.encode(text, manyhands_text::tokenizer::Around::None).unwrap().ids;
    let (prompt, mut answer) = (encode(prompt), encode(completion));
    answer.push(tokenizer.end().unwrap());
    let bytes = tokenizer.decode(&answer).unwrap().len();
    let all: Vec<f32> = prompt.iter().chain(&answer).map(|id| *id as f32).collect();
    assert_eq!(examples.length, all.len().next_multiple_of(16));
    assert_eq!(examples.train.ids[..all.len()], all);
    assert!(examples.train.ids[all.len()..].iter().all(|id| *id == 0.0));
    let mut targets = vec![NOT_LEARNED; examples.length];
    for (place, id) in (prompt.len() - 1..).zip(&answer) {
        targets[place] = *id as f32;
    }
    assert_eq!(examples.train.targets, targets);
    assert_eq!((examples.train.learned, examples.train.bytes), (answer.len(), bytes));
    // Each token as probable as one of 2^3, so 3 bits a token.
    let bits = examples.train.bits_a_byte(3.0 * std::f64::consts::LN_2);
    assert!((bits - 3.0 * answer.len() as f64 / bytes as f64).abs() < 1e-12);
}

#[test]
fn each_token_of_a_plain_text_but_the_first_is_learned_once() {
    let text = "to be or not to be, that is the question. ".repeat(9);
    let examples = read(&[("a.txt", &text)], "a.txt", 16, 0.0).unwrap();
    let ids = tokenizer().encode(&text, manyhands_text::tokenizer::Around::None).unwrap().ids;
    let learned: Vec<f32> = examples.train.targets.iter().copied().filter(|target| *target != NOT_LEARNED).collect();
    assert_eq!(learned, ids[1..].iter().map(|id| *id as f32).collect::<Vec<_>>());
    assert_eq!((examples.length, examples.train.learned), (16, ids.len() - 1));
}

/// Python's text mode, by which others read them, gives one line end for all, too.
#[test]
fn texts_are_read_whichever_line_ends_and_encoding_they_have() {
    let text = "to be\nor not\nto be, that is the question.\n\n".repeat(3);
    let plain = read(&[("a.txt", &text)], "a.txt", 16, 0.0).unwrap();
    for ends in [text.replace('\n', "\r\n"), text.replace('\n', "\r"), format!("\u{feff}{text}")] {
        assert_eq!(read(&[("a.txt", &ends)], "a.txt", 16, 0.0).unwrap(), plain, "{ends:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer();
    let reader = Reader { tokenizer: &tokenizer, template: None };
    let rules = RowRules { most: 16, ..RowRules::default() };
    let of = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        Examples::read(&reader, &path, &rules)
    };
    let wide = |text: &str| format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    assert_eq!(of("a.txt", &wide(&text)).unwrap(), plain);
    let line = "{\"text\": \"to be\"}\r\n{\"text\": \"or not\"}";
    assert_eq!(of("a.jsonl", &wide(line)).unwrap(), of("a.jsonl", line.as_bytes()).unwrap());
    for (name, before) in [("a.txt", "to be\n"), ("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"")] {
        let refused = of(name, &[before.as_bytes(), b"caf\xe9\"}"].concat()).unwrap_err().to_string();
        assert!(
            refused.contains("needs UTF-8 text, but has other bytes") && refused.contains("in line 2"),
            "{refused}"
        );
        assert!(refused.contains("iconv"), "{refused}");
    }
}

#[test]
fn what_leaves_nothing_to_train_on_is_named() {
    let refused = |name: &str, text: &str, most: usize, held_out: f64| {
        read(&[(name, text)], name, most, held_out).unwrap_err().to_string()
    };
    let line = |text: &str| format!("{{\"text\": \"{text}\"}}\n");
    assert!(refused("a.txt", "", 16, 0.1).contains("needs text of two tokens or more, but has none"));
    assert!(refused("a.jsonl", &line(""), 16, 0.0).contains("needs a token to learn, but its texts have none"));
    let long = line(&"red ".repeat(40));
    assert!(refused("a.jsonl", &long, 16, 0.1).contains("needs a text of at most 16 tokens, but all have more"));
    let one = refused("a.jsonl", &(line("red") + &long), 16, 0.1);
    assert!(one.contains("but has 1, beside 1 of more than 16 tokens\n") && one.contains("`--validation 0`"), "{one}");
    let all = refused("a.jsonl", &line("red").repeat(4), 16, 0.9);
    assert!(all.contains("needs a text to train on, but all 4 are held out\n"), "{all}");
    // An empty text among others is told, and makes no row.
    let Examples { train, length, left_out, .. } =
        read(&[("a.jsonl", &(line("red") + &line("")))], "a.jsonl", 16, 0.0).unwrap();
    assert_eq!((train.ids.len() / length, left_out.unlearned, left_out.first_unlearned, left_out.count), (1, 1, 2, 0));
}

/// By hand: the longest of four texts fills a row with the shortest, and the other two have room in the next.
#[test]
fn short_texts_share_rows() {
    let tokenizer = tokenizer();
    let text = |words: usize| "red ".repeat(words);
    let ids = |words: usize| {
        let mut ids = tokenizer.encode(&text(words), manyhands_text::tokenizer::Around::Added).unwrap().ids;
        ids.push(tokenizer.end().unwrap());
        ids
    };
    let lines: String = [1, 4, 2, 3].map(|words| format!("{{\"text\": \"{}\"}}\n", text(words))).concat();
    let most = ids(4).len() + ids(1).len();
    let rules = RowRules { most, are_joined: true, held_out: 0.0, seed: 3 };
    let Examples { train, length, .. } = read_by(&[("a.jsonl", &lines)], "a.jsonl", &rules).unwrap();
    assert!(length == most && train.ids.len() == 2 * most, "{length} of {most}, {}", train.ids.len());
    // The longest with the shortest, which fills the row; then the others.
    let (long, short) = (ids(4), ids(1));
    let row: Vec<f32> = long.iter().chain(&short).map(|id| *id as f32).collect();
    assert_eq!(train.ids[..most], row);
    let documents: Vec<f32> = long.iter().map(|_| 1.0).chain(short.iter().map(|_| 2.0)).collect();
    assert_eq!(train.documents[..most], documents);
    // Neither the first token of a text nor what follows the last is learned.
    let next = |ids: &[u32]| -> Vec<f32> { ids[1..].iter().map(|id| *id as f32).chain([NOT_LEARNED]).collect() };
    assert_eq!(train.targets[..most], [next(&long), next(&short)].concat());
    let learned: usize = [1, 4, 2, 3].map(|words| ids(words).len() - 1).iter().sum();
    assert_eq!(train.learned, learned);
}

/// Conversations of one to four answers, of which each has a row: whole conversations are held out.
#[test]
fn answers_of_a_conversation_are_held_out_together() {
    let document = |line: usize, answer: usize| Document {
        line,
        ids: vec![u32::try_from(line).unwrap(), u32::try_from(answer).unwrap(), 7],
        learned: vec![0, 1, 1],
    };
    let documents: Vec<Document> =
        (1..=40).flat_map(|line| (0..line % 4 + 1).map(move |answer| document(line, answer))).collect();
    for are_joined in [false, true] {
        let rules = RowRules { most: 16, are_joined, held_out: 0.25, seed: 3 };
        let Examples { train, held_out, texts, divided, length, .. } =
            Examples::of("x", &tokenizer(), &documents, &rules).unwrap();
        // Places of first tokens: rows are filled by zeros, and texts have three tokens.
        let lines = |rows: &Rows| -> BTreeSet<u32> {
            let firsts = rows.ids.chunks(length).flat_map(|row| row.chunks_exact(3).map(|text| text[0]));
            firsts.filter(|id| *id > 0.0).map(f32::to_bits).collect()
        };
        assert_eq!((texts, divided), (40, 30));
        assert_eq!((lines(&train).len(), lines(&held_out).len()), (30, 10));
        assert!(lines(&train).is_disjoint(&lines(&held_out)));
        assert_eq!(train.learned + held_out.learned, 2 * documents.len());
        if !are_joined {
            assert_eq!((train.ids.len() + held_out.ids.len()) / length, documents.len());
        }
    }
    let one =
        Examples::of("x", &tokenizer(), &documents[2..5], &RowRules { most: 16, held_out: 0.1, ..RowRules::default() });
    assert!(one.unwrap_err().to_string().contains("needs two texts, one to train on and one to hold out, but has 1\n"));
}

#[test]
fn rows_are_held_out_by_the_seed_and_the_long_ones_left_out() {
    let line = |number: usize| format!("{{\"text\": \"{}\"}}\n", "red ".repeat(number));
    let lines: String = (1..=20).map(line).collect();
    let examples = read(&[("a.jsonl", &lines)], "a.jsonl", 32, 0.2).unwrap();
    let again = read(&[("a.jsonl", &lines)], "a.jsonl", 32, 0.2).unwrap();
    assert_eq!(examples, again);
    let fit = 20 - examples.left_out.count;
    assert!(examples.left_out.count > 0 && examples.left_out.first_line == fit + 1, "{:?}", examples.left_out);
    let rows = |ids: &[f32]| ids.len() / examples.length;
    assert_eq!(rows(&examples.train.ids) + rows(&examples.held_out.ids), fit);
    assert_eq!(rows(&examples.held_out.ids), (2 * fit + 5) / 10);
    let refused = read(&[("a.md", "")], ".", 32, 0.0).unwrap_err().to_string();
    assert!(refused.contains("needs files that end in `.txt`"), "{refused}");
}
