//! Texts that a language model writes after each epoch of its training.

use manyhands::callbacks::{Callback, EpochEnd, Flow};
use manyhands::{Error, Result};
use manyhands_engine::adapters::Info;
use manyhands_engine::shown::shown;
use manyhands_text::adapter::Adapter;
use manyhands_text::generate::{self, Cached, Generation, Sampling};
use manyhands_text::rows::Reader;
use manyhands_text::{ChatTemplate, ModelFiles, Tokenizer};

use super::super::report::results::Sample;
use super::super::settings::{LanguageTable, ModelSource, PackedWeights, SettingsFile};
use super::super::terminal::Terminal;

/// Tokens of a text at most.
const TOKENS: usize = 64;

/// Writes a text after each epoch, always with the likeliest token. The CPU computes it: cards have room for training.
pub struct Samples<'a> {
    language: &'a LanguageTable,
    files: ModelFiles,
    tokenizer: Tokenizer,
    prompt: Vec<u32>,
    terminal: &'a Terminal,
    /// The texts so far.
    pub written: Vec<Sample>,
}

impl<'a> Samples<'a> {
    /// For settings that ask for it.
    pub fn of(settings: &'a SettingsFile, terminal: &'a Terminal) -> Result<Option<Self>> {
        let ModelSource::Language(language) = &settings.model else { return Ok(None) };
        let Some(text) = &language.sample else { return Ok(None) };
        let files = PackedWeights::files(language.packed, &language.path)?;
        let tokenizer = Tokenizer::of(&files)?;
        let template = ChatTemplate::of(&files, &tokenizer)?;
        let prompt = Reader { tokenizer: &tokenizer, template: template.as_ref() }.prompt(text)?;
        let most = files.architecture().positions.saturating_sub(1);
        if prompt.is_empty() || prompt.len() > most {
            let problem = format!("needs 1 to {most} tokens, but has {}", prompt.len());
            return Err(Error::setting("`sample` of `[model.language]`", problem, "write a sentence, or leave it out"));
        }
        Ok(Some(Self { language, files, tokenizer, prompt, terminal, written: Vec::new() }))
    }
}

impl Callback for Samples<'_> {
    fn on_epoch(&mut self, end: &mut EpochEnd<'_>) -> Result<Flow> {
        let adapter = Adapter::of(end.model, self.language.lora(), &self.language.path)?;
        let room = (self.prompt.len() + TOKENS).min(self.files.architecture().positions);
        let mut model = Cached::open(&self.files, Some(&adapter), room, Info::cpu())?;
        let sampling = Sampling { temperature: 0.0, top_k: None, top_p: 1.0 };
        let ends = self.tokenizer.ends().to_vec();
        let settings = Generation { max_tokens: TOKENS, sampling, seed: 0, ends, stops: Vec::new() };
        let decode = |ids: &[u32]| self.tokenizer.decode(ids);
        let text = generate::generate(&mut model, &decode, &self.prompt, &settings, &mut |_| Ok(()))?.text;
        let epoch = end.log.epoch;
        self.terminal.line(format_args!("sample after epoch {epoch}: {}", shown(&text.replace('\n', "⏎"))));
        self.written.push(Sample { epoch, text });
        Ok(Flow::Continue)
    }
}
