//! Is a driver that does wrong noticed, and is nothing that is right called wrong: long dispatches, submissions that get lost,
//! pipelines that are kept, kernels that compute something else?

#![cfg(feature = "gpu")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test stands outside the engine: it blocks, prints what it found, and panics"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use litemap::LiteMap;
use manyhands::model::Objective;
use manyhands::{Loss, Optimizer, presets};
use manyhands_engine::adapters::gpu::{self, Cache, Options, Tuning, Verdict};
use manyhands_engine::adapters::{
    self, ActorId, Combining, Event, Fault, Handle, Info, Message, Request, Run, Ticket, UNFINISHED, WRONG_RESULTS,
};
use manyhands_engine::kernels::activation_functions::Activation;
use manyhands_engine::kernels::cases::Case;
use manyhands_engine::kernels::{self, Kernel, Tile, add, dense};
use manyhands_engine::plan::{
    Buffer, BufferId, Command, Dispatch, Grid, Length, Pass, Plan, Role, Scalars, View, Word,
};
use manyhands_engine::runtime::{Native, Runtime};

use crate::alone::alone;
use crate::needed;

/// No file, no tuning.
fn plain() -> Options {
    Options { tuning: Tuning::Off, cache: Cache::Off, ..Options::default() }
}

/// An adapter that is opened with some choices.
struct Rig {
    handle: Handle,
    events: async_channel::Receiver<Message>,
}

impl Rig {
    fn open(info: &Info, options: Options) -> Self {
        let (sender, events) = async_channel::unbounded();
        let handle = adapters::opener(options)(info, ActorId::default(), Arc::new(Native), sender).unwrap();
        Self { handle, events }
    }

    fn ask(&self, request: Request) -> Event {
        self.handle.requests.send_blocking(request).unwrap();
        let late = async {
            Native.sleep(120_000.0).await;
            panic!("no event within two minutes")
        };
        let next = async {
            loop {
                match self.events.recv().await.unwrap().event {
                    Event::Working => {}
                    event => break event,
                }
            }
        };
        pollster::block_on(futures_lite::future::or(next, late))
    }

    fn load(&self, plan: Plan) -> Result<(), Fault> {
        match self.ask(Request::Load { plan: Arc::new(plan), capacity: 1 }) {
            Event::Loaded { .. } => Ok(()),
            Event::Failed { fault, .. } => Err(fault),
            other => panic!("{other:?}"),
        }
    }

    /// The first output of a run over some inputs.
    fn predict(&self, step: u64, inputs: &[Vec<f32>]) -> Result<Vec<f32>, Fault> {
        let feeds = (0..).zip(inputs).map(|(idx, values)| (Role::Input(idx), values.clone().into())).collect();
        let (ticket, scalars) = (Ticket { step, attempt: 0, slot: 0 }, Scalars { rows: 1, ..Scalars::default() });
        match self.ask(Request::Run(Run { ticket, pass: Pass::Predict, scalars, feeds, combining: Combining::Host })) {
            Event::Done { mut outputs, .. } => Ok(outputs.swap_remove(0)),
            Event::Failed { fault, .. } => Err(fault),
            other => panic!("{other:?}"),
        }
    }
}

/// A kernel that a plan runs once.
struct Called {
    kernel: &'static Kernel,
    constants: Vec<(&'static str, f64)>,
    params: Vec<u32>,
    grid: Grid,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
}

impl Called {
    fn of(kernel: &'static Kernel, case: &Case) -> Self {
        Self {
            kernel,
            constants: case.constants.clone(),
            params: case.params.clone(),
            grid: case.grid,
            inputs: case.inputs.iter().map(|fill| fill.len().max(1)).collect(),
            outputs: case.outputs.iter().map(|fill| fill.len().max(1)).collect(),
        }
    }
}

/// A plan that predicts by kernels, each with buffers of its own.
fn plan(calls: impl IntoIterator<Item = Called>) -> Plan {
    let (mut plan, mut commands) = (Plan::default(), Vec::new());
    let (mut n_inputs, mut n_outputs) = (0, 0);
    for Called { kernel, constants, params, grid, inputs, outputs } in calls {
        let mut views = |lens: Vec<usize>, role: fn(u32) -> Role, count: &mut u32| -> Vec<View> {
            let add = |len| {
                let (buffer, len) = (BufferId(u32::try_from(plan.buffers.len()).unwrap()), Length::per_row(len));
                plan.buffers.push(Buffer { name: format!("{kernel:?} {}", buffer.0), role: role(*count), len });
                *count += 1;
                View { buffer, offset: 0, len }
            };
            lens.into_iter().map(add).collect()
        };
        commands.push(Command::Dispatch(Dispatch {
            kernel,
            node: "node".into(),
            constants,
            params: params.into_iter().map(Word::U32).collect(),
            inputs: views(inputs, Role::Input, &mut n_inputs),
            outputs: views(outputs, Role::Output, &mut n_outputs),
            grid,
        }));
    }
    plan.passes = LiteMap::from_iter([(Pass::Predict, commands)]);
    plan
}

fn values(len: usize, seed: u64) -> Vec<f32> {
    kernels::cases::InputFill::Normal(len).values(seed)
}

/// `y = x w + bias` of square matrices.
fn product(side: u32) -> (Plan, [Vec<f32>; 3]) {
    let params = dense::Params {
        m: side,
        n: side,
        k: side,
        a_offset: 0,
        a_stride: side,
        b_offset: 0,
        b_stride: side,
        y_offset: 0,
        y_stride: side,
        splits: 1,
    };
    let (grid, all) = (params.record().grid(), (side * side) as usize);
    let inputs = vec![all, all, side as usize];
    let data = [values(all, 1), values(all, 2), values(side as usize, 3)];
    let params = params.words();
    (plan([Called { kernel: &dense::FORWARD, constants: Vec::new(), params, grid, inputs, outputs: vec![all] }]), data)
}

#[test]
fn a_long_dispatch_runs_in_parts_to_the_same_bits() {
    let _alone = alone();
    for info in needed::gpus() {
        println!("on {} ({})", info.name, info.backend);
        let (plan, inputs) = product(384);
        let whole = Rig::open(&info, plain());
        whole.load(plan.clone()).unwrap();
        let expected = whole.predict(1, &inputs).unwrap();
        // Ten seconds of work where a dispatch should take a tenth: by as much as both are shorter here, the bound is lower.
        let parted = Rig::open(&info, Options { dispatch_ms: Some(1e-3), ..plain() });
        parted.load(plan).unwrap();
        let mut n_submissions = Vec::new();
        for step in [1, 2, 3] {
            let before = gpu::submissions_made();
            let got = parted.predict(step, &inputs).unwrap();
            n_submissions.push(gpu::submissions_made() - before);
            assert!(got.iter().map(|y| y.to_bits()).eq(expected.iter().map(|y| y.to_bits())), "step {step}");
        }
        println!("submissions of three runs: {n_submissions:?}");
        assert!(n_submissions.iter().all(|count| *count >= 9), "{n_submissions:?}");
    }
}

/// Workgroups behind the end of a folded part would add the beginning of the next part twice.
#[test]
fn a_sum_in_place_over_a_folded_grid_is_added_once() {
    let _alone = alone();
    // As many as a binding of 128 MiB holds.
    const LEN: u32 = 2 * 65_535 * 256 + 7;
    let (kernel, lens) = (&add::ACCUMULATE, vec![LEN as usize]);
    let grid = Grid::Elements(Word::U32(LEN.div_ceil(4)));
    let call = || Called {
        kernel,
        constants: Vec::new(),
        params: vec![LEN],
        grid,
        inputs: lens.clone(),
        outputs: lens.clone(),
    };
    let x: Vec<f32> = (0..LEN).map(|i| (i % 17) as f32 - 8.0).collect();
    for info in needed::gpus() {
        println!("on {} ({})", info.name, info.backend);
        // By its bytes about a second of work.
        let rig = Rig::open(&info, Options { dispatch_ms: Some(150.0), ..plain() });
        rig.load(plan([call()])).unwrap();
        for step in [1_u16, 2] {
            let before = gpu::submissions_made();
            let sum = rig.predict(step.into(), std::slice::from_ref(&x)).unwrap();
            println!("{} submissions", gpu::submissions_made() - before);
            let wrong = sum.iter().zip(&x).position(|(sum, x)| *sum != f32::from(step) * x);
            assert_eq!(wrong, None, "step {step}");
        }
    }
}

#[test]
fn a_submission_that_a_driver_drops_is_noticed() {
    let _alone = alone();
    for info in needed::gpus() {
        let (plan, inputs) = product(384);
        let run = |left_out: Option<u64>| {
            let rig = Rig::open(&info, Options { left_out, dispatch_ms: Some(20.0), ..plain() });
            let before = gpu::submissions_made();
            rig.load(plan.clone()).unwrap();
            let loaded = gpu::submissions_made();
            let first = rig.predict(1, &inputs);
            let counts = [loaded - before, gpu::submissions_made() - loaded];
            (counts, first.and_then(|first| Ok([first, rig.predict(2, &inputs)?])))
        };
        // The verdicts are known from then on.
        run(None).1.unwrap();
        let ([of_load, of_run], expected) = run(None);
        println!("on {} ({}): {of_load} submissions, then {of_run} for a run", info.name, info.backend);
        assert!(of_run >= 5, "inputs, several parts, and copies: {of_run}");
        let mut n_lost = 0;
        for left_out in of_load + 1..=of_load + of_run {
            match run(u64::try_from(left_out).ok()).1 {
                Err(Fault::Lost(text)) => {
                    assert!(text.contains(UNFINISHED), "{text}");
                    n_lost += 1;
                }
                // A submission may be empty.
                other => assert!(other == expected, "submission {left_out} was left out, and nobody noticed"),
            }
        }
        assert!(n_lost + 1 >= of_run, "{n_lost} of {of_run}");
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
        .unwrap_or_default();
    files.sort();
    files
}

#[test]
fn compiled_pipelines_are_kept_and_a_damaged_file_is_harmless() {
    let _alone = alone();
    for info in needed::gpus().into_iter().filter(|info| info.backend == "vulkan") {
        println!("on {} ({})", info.name, info.backend);
        let folder = tempfile::tempdir().unwrap();
        let options = Options { cache: Cache::In(folder.path().into()), ..plain() };
        let (plan, inputs) = product(64);
        let start = || {
            let rig = Rig::open(&info, options.clone());
            rig.load(plan.clone()).unwrap();
            rig.predict(1, &inputs).unwrap()
        };
        let expected = start();
        let [file] = &files(&folder.path().join("pipelines"))[..] else { panic!("one file is expected") };
        let kept = std::fs::read(file).unwrap();
        let written = std::fs::metadata(file).unwrap().modified().unwrap();
        assert!(kept.len() > 8, "{} bytes", kept.len());
        assert_eq!(start(), expected);
        assert_eq!(std::fs::metadata(file).unwrap().modified().unwrap(), written, "nothing new was compiled");
        let spoilt = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = kept.clone();
            change(&mut bytes);
            bytes
        };
        let cut = spoilt(&|bytes| bytes.truncate(bytes.len() / 2));
        let flipped = spoilt(&|bytes| bytes.iter_mut().skip(8).for_each(|byte| *byte ^= 0x55));
        for bytes in [cut, flipped, b"no pipelines".to_vec(), Vec::new()] {
            std::fs::write(file, &bytes).unwrap();
            assert_eq!(start(), expected);
            assert_eq!(std::fs::read(file).unwrap().len(), kept.len(), "the file is whole again");
        }
    }
}

fn values_of(case: &Case) -> usize {
    case.inputs.iter().chain(&case.outputs).map(|fill| fill.len()).sum()
}

/// The largest small case of each set of constants of a kernel, the largest of all first.
fn one_of_each(kernel: &'static Kernel) -> Vec<Case> {
    let mut sets: Vec<Case> = Vec::new();
    for case in (kernel.cases)() {
        let is_small = values_of(&case) < 1 << 13;
        match sets.iter_mut().find(|known| known.constants == case.constants) {
            Some(known) if is_small && values_of(known) < values_of(&case) => *known = case,
            None if is_small => sets.push(case),
            _ => {}
        }
    }
    sets.sort_by_key(|case| std::cmp::Reverse(values_of(case)));
    sets
}

#[test]
fn no_kernel_is_called_wrong_by_a_driver_that_is_right() {
    let _alone = alone();
    for info in needed::gpus() {
        let calls = kernels::all()
            .flat_map(|kernel| one_of_each(kernel).into_iter().take(2).map(move |case| Called::of(kernel, &case)));
        let rig = Rig::open(&info, plain());
        let begin_ms = Native.now_ms();
        rig.load(plan(calls)).unwrap();
        let ms = Native.now_ms() - begin_ms;
        let verdicts = gpu::verdicts(&info);
        let of = |wanted: fn(&Verdict) -> bool| -> Vec<&String> {
            verdicts.iter().filter(|(_, verdict)| wanted(verdict)).map(|(name, _)| name).collect()
        };
        let (right, untried) = (of(|it| *it == Verdict::Right), of(|it| *it == Verdict::Untried));
        println!("on {} ({}): {} right in {ms:.0} ms with compiling", info.name, info.backend, right.len());
        assert!(right.len() >= kernels::all().count(), "{}", right.len());
        // Other tests load kernels of their own, which have no cases.
        let is_of_a_test = |name: &&String| name.contains("mutant") || name.starts_with("test.");
        assert!(untried.iter().all(is_of_a_test), "{untried:?}");
    }
}

#[test]
fn verdicts_are_kept() {
    let _alone = alone();
    for info in needed::gpus() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { cache: Cache::In(folder.path().into()), ..plain() };
        let (plan, _) = product(64);
        Rig::open(&info, options.clone()).load(plan.clone()).unwrap();
        let [file] = &files(&folder.path().join("verdicts"))[..] else { panic!("one file is expected") };
        let text = std::fs::read_to_string(file).unwrap();
        println!("on {}: {text}", info.name);
        assert!(text.contains("dense.forward") && text.contains("\"right\""), "{text}");
        // What is known is not tried again: the first load submits nothing.
        let again = Rig::open(&info, options);
        let before = gpu::submissions_made();
        again.load(plan).unwrap();
        assert_eq!(gpu::submissions_made(), before);
    }
}

/// A kernel with another text, as if a driver had compiled its own to that.
fn mutant(kernel: &'static Kernel, text: String, uses: &'static [kernels::Library]) -> &'static Kernel {
    Box::leak(Box::new(Kernel { source: Box::leak(format!("{text}\n// mutant\n").into_boxed_str()), uses, ..*kernel }))
}

/// The range of the body of an entry point.
fn body(text: &str, entry: &str) -> Option<std::ops::Range<usize>> {
    let at = text.find(&format!("fn {entry}("))?;
    let begin = at + text[at..].find("{\n")? + 2;
    Some(begin..begin + text[begin..].find("\n}")?)
}

/// A change of the body of a kernel's entry point, or of the whole text where the body only calls.
fn changed(kernel: &Kernel, text: &str, change: impl Fn(&str) -> String) -> Option<String> {
    let body = body(text, kernel.entry)?;
    let own = change(&text[body.clone()]);
    let is_own = own != text[body.clone()];
    let whole = if is_own { format!("{}{own}{}", &text[..body.start], &text[body.end..]) } else { change(text) };
    (whole != text).then_some(whole)
}

/// Without the first store to the last output where that concerns its first element.
fn without_a_store(kernel: &Kernel, text: &str) -> String {
    let output = kernel.outputs.last().map_or(String::new(), |output| format!("{output}["));
    let stores = |line: &str| line.starts_with(&output) && line.contains("= ") && line.ends_with(';');
    let Some(store) = text.lines().map(str::trim).find(|line| stores(line)) else { return text.to_owned() };
    let index = &store[output.len()..store.find("] ").unwrap()];
    text.replacen(store, &format!("if u32({index}) != 0u {{ {store} }}"), 1)
}

/// The errors of compilers that are put into each kernel.
fn mutants(kernel: &'static Kernel) -> Vec<(&'static str, &'static Kernel)> {
    let whole = kernel.wgsl(Tile::Registers);
    // Products have a text for each tile: an error stands in their own part.
    let (text, uses) = if kernel.is_tiled() { (kernel.source.to_owned(), kernel.uses) } else { (whole, &[][..]) };
    let of = |change: &dyn Fn(&str) -> String| changed(kernel, &text, change);
    let nothing = body(&text, kernel.entry).map(|body| {
        let (before, behind) = text.split_at(body.start);
        format!("{before}    if is_idle() {{ return; }}\n{behind}\nfn is_idle() -> bool {{ return true; }}")
    });
    let size = |invocations: u32| format!("@workgroup_size({invocations})");
    let lanes = text.find(&format!("fn {}(", kernel.entry)).map(|entry| {
        let (before, behind) = text.split_at(entry);
        let (first, last) = before.rsplit_once("@compute").unwrap_or((before, ""));
        format!("{first}@compute{}{behind}", last.replace(&size(kernel.workgroup), &size(kernel.workgroup / 2)))
    });
    let gathers = body(&text, kernel.entry).is_some_and(|body| text[body].contains("lanes_"));
    let barrier = gathers.then(|| text.replace("workgroupBarrier();", ""));
    let stale = |text: &str| {
        kernel.inputs.iter().fold(text.to_owned(), |text, input| {
            [" ", "("].iter().fold(text, |text, before| {
                text.replace(&format!("{before}{input}["), &format!("{before}0.0 * {input}["))
            })
        })
    };
    let tanh = text.replace("select(select(far, -far, x < 0.0)", "1e-4 + select(select(far, -far, x < 0.0)");
    let made = [
        ("does nothing", nothing),
        ("a skipped store", of(&|text| without_a_store(kernel, text))),
        ("half the lanes", lanes.filter(|_| !kernel.is_tiled())),
        ("a dropped barrier", barrier),
        ("a stale buffer", of(&stale)),
        ("a tanh off by 1e-4", kernel.entry.starts_with("forward").then_some(tanh)),
    ];
    let made = made.into_iter().filter_map(|(what, changed)| Some((what, changed.filter(|changed| *changed != text)?)));
    made.map(|(what, changed)| (what, mutant(kernel, changed, uses))).collect()
}

/// Whether an error can show with these constants: a row of one invocation has no barrier, and not every function is a tanh.
fn may_show(what: &str, case: &Case) -> bool {
    match what {
        "a dropped barrier" => !case.constants.contains(&("LANES", 1.0)),
        "half the lanes" => values_of(case) > 1,
        "a tanh off by 1e-4" => case.constants.contains(&("ACTIVATION", Activation::Tanh.code())),
        _ => true,
    }
}

/// Sets of constants with which a kernel is tried.
const SETS: usize = 6;

#[test]
fn kernels_that_a_driver_compiles_wrong_are_caught_before_a_step() {
    let _alone = alone();
    let infos = needed::gpus();
    let Some(info) = infos.iter().find(|info| info.name.contains("llvmpipe")).or(infos.first()) else { return };
    let mut counts: BTreeMap<&str, [u32; 2]> = BTreeMap::new();
    let (mut missed, mut rig) = (Vec::new(), Rig::open(info, plain()));
    for kernel in kernels::all() {
        let sets = one_of_each(kernel);
        for (what, mutant) in mutants(kernel) {
            let mut sets = sets.iter().filter(|case| may_show(what, case)).take(SETS).peekable();
            if sets.peek().is_none() {
                continue;
            }
            let mut is_built = true;
            let is_caught = sets.any(|case| match rig.load(plan([Called::of(mutant, case)])) {
                Err(Fault::Lost(text)) => {
                    assert!(text.starts_with(WRONG_RESULTS), "{kernel:?}, {what}: {text}");
                    assert!(text.contains(&format!("{kernel:?}")) && text.contains(&info.driver), "{text}");
                    rig = Rig::open(info, plain());
                    true
                }
                // A number that is whole takes no factor.
                Err(Fault::Unsupported(text)) if text.contains("can't be built") => {
                    is_built = false;
                    false
                }
                Err(other) => panic!("{kernel:?}, {what}: {other:?}"),
                Ok(()) => false,
            });
            if !is_built {
                continue;
            }
            counts.entry(what).or_default()[usize::from(!is_caught)] += 1;
            if !is_caught {
                missed.push(format!("{kernel:?}: {what}"));
            }
        }
    }
    println!("on {}: caught and missed {counts:?}; missed {missed:#?}", info.name);
    let [caught, n_missed] = counts.values().fold([0; 2], |sum, count| [sum[0] + count[0], sum[1] + count[1]]);
    assert_eq!(counts.len(), 6, "each kind of error was tried");
    assert!(caught >= 99 * n_missed && caught > 300, "{caught} caught, missed {missed:?}");
}

/// Models of each kind, small enough to be made at once, and their inputs.
const MODELS: [(&str, &[usize]); 8] = [
    ("mlp", &[28, 28, 1]),
    ("cnn", &[28, 28, 1]),
    ("resnet50", &[32, 32, 3]),
    ("mobilenet_v2", &[32, 32, 3]),
    ("efficientnet_b0", &[32, 32, 3]),
    ("convnext_tiny", &[32, 32, 3]),
    ("char_lstm", &[16]),
    ("gpt_mini", &[16]),
];

#[test]
fn the_kernels_of_known_models_have_cases() {
    let (mut pipelines, mut without): (BTreeSet<String>, BTreeSet<String>) = Default::default();
    for (name, input) in MODELS {
        let model = presets::find(name).unwrap().build_for(input, 10, 1).unwrap();
        let loss = Loss::SPARSE_CATEGORICAL_CROSSENTROPY;
        let plan = model.plan(&Objective::new(vec![loss], Optimizer::adam(1e-3))).unwrap();
        for command in plan.passes.values().flatten() {
            let Command::Dispatch(Dispatch { kernel, constants, .. }) = command else { continue };
            let pipeline = format!("{kernel:?} {constants:?}");
            if pipelines.insert(pipeline.clone()) && gpu::cases_for(kernel, constants).is_empty() {
                without.insert(pipeline);
            }
        }
    }
    println!("{} pipelines, without a case: {without:#?}", pipelines.len());
    assert!(without.len() * 20 <= pipelines.len(), "{} of {}", without.len(), pipelines.len());
}
