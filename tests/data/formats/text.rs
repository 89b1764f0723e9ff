//! Texts: windows for language models, and columns of tables.

use manyhands::data::{Format, Schema, Texts, TokenSettings, Vocabulary, Windows};

use super::*;

fn text_config(folder: &TempDir, text: &str, more: &str) -> DataConfig {
    let path = write(folder, "train.txt", text);
    config(&format!("type = 'text'\ntrain = '{}'\ntokens = {{ split = 'character' }}\n{more}", path.display()))
}

#[test]
fn the_target_at_each_position_is_the_next_token() {
    let folder = tempfile::tempdir().unwrap();
    let data = text_config(&folder, "abcabcab", "sequence_length = 3").open().unwrap();
    let vocabulary = data.train.schema().inputs[0].text.clone().unwrap().vocabulary;
    assert_eq!(vocabulary.tokens(), ["", "[UNK]", "a", "b", "c"]);
    let batch = all(&data.train);
    assert_eq!(batch.inputs[0][..], [2.0, 3.0, 4.0, 2.0, 3.0, 4.0]);
    assert_eq!(batch.targets[0][..], [3.0, 4.0, 2.0, 3.0, 4.0, 2.0]);
    assert_eq!(data.train.notes(), ["8 tokens, 1 behind the last rows of their texts are not used"]);
    assert_eq!(data.train.schema().classes(0), vocabulary.tokens());
}

#[test]
fn windows_may_overlap_and_never_span_two_texts() {
    let vocabulary = Vocabulary::adapt(TokenSettings::default(), ["a b c d"]);
    let texts =
        Texts::new(vocabulary.clone(), ["a b c d", "d c b"], Windows::new(2).unwrap().stride(1).unwrap()).unwrap();
    let batch = all(&texts);
    assert_eq!(batch.inputs[0][..], [2.0, 3.0, 3.0, 4.0, 5.0, 4.0]);
    assert_eq!(batch.targets[0][..], [3.0, 4.0, 4.0, 5.0, 4.0, 3.0]);
    let short = Texts::new(vocabulary, ["a b", "c"], Windows::new(2).unwrap());
    assert!(
        message(short).starts_with("the text needs more than 2 tokens for a row and the token after it, but has 2\n")
    );
    assert!(message(Windows::new(0)).starts_with("`sequence_length` needs to be at least 1, but is 0"));
}

#[test]
fn test_text_and_later_text_have_the_vocabulary_of_the_training() {
    let folder = tempfile::tempdir().unwrap();
    let test = write(&folder, "test.txt", "cbaz");
    let more = format!("sequence_length = 3\ntest = '{}'", test.display());
    let settings = text_config(&folder, "aaabbc", &more);
    let data = settings.open().unwrap();
    assert_eq!(all(&data.test.unwrap()).targets[0][..], [3.0, 2.0, 1.0], "`z` is unknown");
    let trained = data.train.schema();
    assert!(matches!(trained.format, Format::Text { sequence_stride: 3 }));

    let text: Schema = serde_json::from_str(&serde_json::to_string(&trained).unwrap()).unwrap();
    assert_eq!(text, trained);
    let later = DataConfig::of_schema(&trained, &test).unwrap();
    assert_eq!(all(&later.open_like(&trained).unwrap().train).inputs[0][..], [4.0, 3.0, 2.0]);
    let inputs = later.open_inputs(&write(&folder, "prompt.txt", "abcz"), Some(&trained)).unwrap();
    assert_eq!(all(&inputs.dataset).inputs[0][..], [2.0, 3.0, 4.0, 1.0, 0.0, 0.0], "zeros follow the text");
}

#[test]
fn a_folder_is_read_in_the_order_of_its_names() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("b.txt", "bcd"), ("a.TXT", "abc"), ("c.md", "xyz")] {
        write(&folder, name, text);
    }
    let path = folder.path().display();
    let settings = format!("type = 'text'\ntrain = '{path}'\ntokens = {{ split = 'character' }}\nsequence_length = 2");
    let data = config(&settings).open().unwrap().train;
    assert_eq!(all(&data).inputs[0][..], [4.0, 2.0, 2.0, 3.0]);
    let empty = tempfile::tempdir().unwrap();
    let settings = format!("type = 'text'\ntrain = '{}'\nsequence_length = 2", empty.path().display());
    assert!(message(config(&settings).open()).contains("needs text files, but has no `.txt`"));
    let latin = folder.path().join("latin.txt");
    std::fs::write(&latin, b"caf\xe9").unwrap();
    let settings = format!("type = 'text'\ntrain = '{}'\nsequence_length = 2", latin.display());
    assert!(message(config(&settings).open()).contains("needs UTF-8 text, but has other bytes at byte 3"));
}

const PAIRS: &str = "first,second,same\n\"To be, or not\",not to,1\n\"to\nsee\",be,0\n";

fn pairs(folder: &TempDir, second: &str) -> DataConfig {
    let path = write(folder, "pairs.csv", PAIRS);
    config(&format!(
        "type = 'csv'\ntrain = '{}'\ntarget = 'same'\ntarget_kind = 'classes'\n\
         inputs = [{{ name = 'a', columns = ['first'], output_sequence_length = 3 }}, {{ name = 'b', columns = ['second'], {second} }}]",
        path.display()
    ))
}

#[test]
fn columns_of_texts_share_a_vocabulary() {
    let folder = tempfile::tempdir().unwrap();
    let data = pairs(&folder, "output_sequence_length = 2").open().unwrap().train;
    let schema = data.schema();
    let tokens = |input: usize| schema.inputs[input].text.as_ref().unwrap().vocabulary.tokens().to_vec();
    assert_eq!(tokens(0), ["", "[UNK]", "to", "be", "not", "or", "see"]);
    assert_eq!(tokens(0), tokens(1));
    let batch = all(&data);
    assert_eq!(batch.inputs[0][..], [2.0, 3.0, 5.0, 2.0, 6.0, 0.0]);
    assert_eq!(batch.inputs[1][..], [4.0, 2.0, 3.0, 0.0]);
    assert_eq!(batch.targets[0][..], [1.0, 0.0]);
    let cut = "1 of 2 texts of `a` is cut after 3 tokens: `output_sequence_length` says how many count";
    assert_eq!(data.notes(), [cut], "texts may have several lines, and are not to be scaled");

    let later = write(&folder, "later.csv", "second,first\nbe bee,See\n");
    let inputs = DataConfig::of_schema(&schema, &later).unwrap().open_inputs(&later, Some(&schema)).unwrap();
    let batch = all(&inputs.dataset);
    assert_eq!((&batch.inputs[0][..], &batch.inputs[1][..]), (&[6.0, 0.0, 0.0][..], &[3.0, 1.0][..]));
}

#[test]
fn columns_of_other_settings_have_their_own_vocabulary() {
    let folder = tempfile::tempdir().unwrap();
    let data =
        pairs(&folder, "output_sequence_length = 4, tokens = { split = 'character', max_tokens = 4 }").open().unwrap();
    let schema = data.train.schema();
    let tokens = schema.inputs[1].text.as_ref().unwrap().vocabulary.tokens().to_vec();
    assert_eq!(tokens, ["", "[UNK]", "o", "t"]);
}

#[test]
fn settings_of_texts_that_clash_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(
        message(pairs(&folder, "tokens = {}").open())
            .contains("input `b`, needs `output_sequence_length` beside `tokens`")
    );
    let many = message(pairs(&folder, "output_sequence_length = 2147483648").open());
    assert!(many.contains("needs `output_sequence_length` up to ") && many.contains("has 2147483648"), "{many}");
    let none = message(pairs(&folder, "output_sequence_length = 0").open());
    assert!(none.contains("needs one column of texts and at least 1 token, but has 1 columns and 0"), "{none}");
}

/// Files of Windows give the tokens of Python's text mode: no `\r`, and no mark of UTF-8.
#[test]
fn ends_of_lines_do_not_depend_on_the_system() {
    let folder = tempfile::tempdir().unwrap();
    let read = |text: &str| Texts::read(&write(&folder, "t.txt", text)).unwrap();
    for text in ["one\ntwo\n\nthree\n", "one\r\ntwo\r\n\r\nthree\r\n", "\u{feff}one\rtwo\r\rthree\r"] {
        assert_eq!(read(text), ["one\ntwo\n\nthree\n"]);
    }
}

#[test]
fn texts_that_are_cut_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, "t.csv", "text,y\na b c,0\na b c d,1\n,0\na b c d e f,1\n");
    let notes = |length: usize| {
        let text = Column::Name("text".into());
        let inputs = vec![InputColumns::text("review", text, length, TokenSettings::default())];
        let of_y = CsvSettings::new(Column::Name("y".into()), TargetKind::Classes);
        csv::open(&path, &CsvSettings { inputs, ..of_y }).unwrap().dataset.notes()
    };
    assert_eq!(notes(6), [""; 0]);
    assert_eq!(
        notes(5),
        ["1 of 4 texts of `review` is cut after 5 tokens: `output_sequence_length` says how many count"]
    );
    assert_eq!(
        notes(3),
        ["2 of 4 texts of `review` are cut after 3 tokens: `output_sequence_length` says how many count"]
    );
}
