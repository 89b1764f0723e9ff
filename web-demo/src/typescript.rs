//! Writes `www/messages.d.ts`, the types of the messages for the page, and reads the engine's values as the types of `types.rs`.

use std::collections::BTreeMap;
use std::path::Path;
use std::{env, fs};

use manyhands::adapters::{self, Kind};
use manyhands::logs::{AdapterLog, EpochLog as EngineEpoch, LoneStep, StepLog as EngineStep, Values};
use manyhands::placer::rig::simulate_pipelines;
use manyhands::presets;
use manyhands::simulator::{self, RigConfig};
use manyhands_bench::scaling::{self, ScalingKind};
use manyhands_engine::adapters::cpu;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ts_rs::{Config, TS, TypeVisitor};

use crate::logs::{MemberPlace, Stepped};
use crate::messages::{Event, Listed, PageRequest};
use crate::stages::Pipelined;
use crate::types::{
    Activity, AdapterSpec, EpochLog, HostSpec, Incident, IncidentKind, Info, Part, Predicted, Slowdown, StageSpec,
    StagedReport, StepLog,
};

const HEAD: &str = r#"// Made from web-demo/src/messages.rs, which says what each message is for, and in which order they come:
//
//     UPDATE=1 cargo test --package manyhands-web-demo typescript

/** An event by its type. */
export type Told<T extends Event["type"]> = Extract<Event, { type: T }>;
"#;

/// Declarations of types, and of those that they name, by their names.
#[derive(Default)]
struct Declarations(BTreeMap<String, String>);

impl Declarations {
    fn config() -> Config {
        Config::new().with_large_int("number")
    }

    fn text(&self) -> String {
        self.0.values().fold(HEAD.to_owned(), |text, declaration| text + "\n" + declaration)
    }
}

impl TypeVisitor for Declarations {
    fn visit<T: TS + 'static + ?Sized>(&mut self) {
        // What has no file is a type of TypeScript's own.
        if T::output_path().is_none() {
            return;
        }
        let docs = short(&T::docs().unwrap_or_default());
        let text = format!("{docs}export {}\n", laid_out(&T::decl(&Self::config())));
        let before = self.0.insert(T::ident(&Self::config()), text.clone());
        assert!(before.is_none_or(|before| before == text), "two types are called {}", T::ident(&Self::config()));
        T::visit_dependencies(self);
    }
}

/// Comments of one line where they have one.
fn short(text: &str) -> String {
    text.replace("/**\n * ", "/** ").replace("\n */\n", " */\n")
}

/// A declaration with a field or a variant on each line.
fn laid_out(declaration: &str) -> String {
    let broken =
        declaration.replace(", }", ",\n}").replace(" | {", "\n| {").replace(", \n", ",\n").replace("{ \n", "{\n");
    let is_outer = |line: &str| line.starts_with(['|', '}']) || line.starts_with("type ");
    let lines = short(&broken)
        .lines()
        .map(|line| if is_outer(line) { line.into() } else { format!("  {line}") })
        .collect::<Vec<_>>();
    lines.join("\n")
}

#[test]
fn types_of_the_page_are_those_of_the_messages() {
    let mut declarations = Declarations::default();
    declarations.visit::<PageRequest>();
    declarations.visit::<Event>();
    let text = declarations.text();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("www/messages.d.ts");
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == text,
        "{} is out of date\n  help: UPDATE=1 cargo test --package manyhands-web-demo typescript",
        path.display()
    );
}

/// Reads what the engine writes as one of the page's types.
fn check<T: DeserializeOwned + Serialize>(of_engine: impl Serialize) {
    let of_engine = serde_json::to_value(of_engine).unwrap();
    let read: T = serde_json::from_value(of_engine.clone()).unwrap();
    let Value::Object(read) = serde_json::to_value(read).unwrap() else { panic!("{of_engine} is no object") };
    assert!(read.iter().all(|(name, value)| of_engine[name] == *value), "{read:?} is not {of_engine}");
}

#[test]
fn types_of_the_page_read_what_the_engine_writes() {
    for kind in [Kind::DiscreteGpu, Kind::IntegratedGpu, Kind::VirtualGpu, Kind::Cpu, Kind::Software] {
        let info = adapters::Info { kind, ..cpu::info() };
        check::<Info>(Listed { info, requested_as: vec!["fallback"] });
    }
    let mut values = Values::default();
    ["loss", "accuracy", "val_loss", "val_accuracy"].iter().for_each(|name| values.set(name, 0.5));
    let [learning_rate, gradient_norm] = [0.1, 2.0];
    let worked = AdapterLog {
        adapter: 0,
        name: "a".into(),
        rows: 3,
        ms: 1.0,
        upload_ms: 0.0,
        compute_ms: 1.0,
        readback_ms: 0.0,
        wait_ms: 0.0,
        end_wait_ms: 0.0,
    };
    let step = EngineStep {
        step: 1,
        epoch: 1,
        batch: 1,
        batches: 2,
        rows: 3,
        values: values.clone(),
        running: Values::default(),
        learning_rate,
        gradient_norm,
        is_applied: true,
        loss_scale: None,
        ms: 4.0,
        data_ms: 0.5,
        reduce_ms: 0.5,
        update_ms: 0.5,
        processes_ms: 0.0,
        samples_per_s: 1.0,
        adapters: vec![worked],
        processes: Vec::new(),
    };
    let alone = LoneStep { adapter: 0, values: values.clone(), gradient_norm };
    check::<StepLog>(Stepped::of(step, &[Some(MemberPlace { at: 0, id: 0 })], 5.0, Some(alone)));
    check::<EpochLog>(EngineEpoch { epoch: 1, step: 2, values, learning_rate, seconds: 1.0, samples_per_s: 1.0 });
    for scaling in [ScalingKind::Alone, ScalingKind::Strong, ScalingKind::Weak] {
        check::<Part>(scaling::ScalingPart { scaling, n_adapters: 1, done: 2, total: 3 });
    }
}

#[test]
fn the_engine_reads_a_rig_of_these_types_and_its_report_is_read_as_them() {
    let spec = |name: &str| AdapterSpec {
        name: Some(name.into()),
        per_row_ms: Some(0.1),
        slowdowns: Some(vec![Slowdown { from_ms: 0.0, to_ms: 1.0, factor: 2.0 }]),
        memory_gb: Some(2.0),
        ..AdapterSpec::default()
    };
    let adapters = ["a", "b"].map(|name| serde_json::to_value(spec(name)).unwrap()).to_vec();
    let adapters: Vec<simulator::AdapterSpec> = serde_json::from_value(adapters.into()).unwrap();
    for what in [IncidentKind::Lost, IncidentKind::Slowed(2.0)] {
        let told = serde_json::to_value(Incident { step: 3, adapter: 1, what }).unwrap();
        let read: simulator::Incident = serde_json::from_value(told.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), told);
    }
    let host = serde_json::from_value(serde_json::to_value(HostSpec { copy_gb_s: 10.0 }).unwrap()).unwrap();
    let rig = RigConfig { batch_size: 64, host, adapters, micro_batches: Some(2), ..RigConfig::default() };
    let (report, pipelines) = simulate_pipelines(&rig, &presets::find("mlp").unwrap().build(0).unwrap()).unwrap();
    check::<Predicted>(report);
    let shown = serde_json::to_value(Pipelined::from(&pipelines[0])).unwrap();
    check::<StagedReport>(&shown["staged"]);
    shown["placement"].as_array().unwrap().iter().for_each(check::<StageSpec>);
    for brick in shown["bricks"].as_array().unwrap() {
        serde_json::from_value::<Activity>(brick["what"].clone()).unwrap();
    }
}
