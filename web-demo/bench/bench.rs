//! Training steps in a page, one by one, for `bench.js` to time beside another library's.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use manyhands::adapters::{self, Info, Kind};
use manyhands::data::Batch;
use manyhands::model::Objective;
use manyhands::scheduler::{Scheduler, Step};
use manyhands::{CpuFallback, Error, Result};
use manyhands_bench::workloads::{self, Workload};
use wasm_bindgen::JsError;
use wasm_bindgen::prelude::wasm_bindgen;

/// A model on the page's WebGPU adapter.
struct Bench {
    scheduler: Scheduler,
    batch: Batch,
    step: u64,
}

thread_local! {
    static BENCH: RefCell<Option<Rc<RefCell<Bench>>>> = const { RefCell::new(None) };
}

/// Opens one of [`workloads`], over 28 × 28 × 1.
#[wasm_bindgen]
pub async fn bench_open(model: String) -> std::result::Result<(), JsError> {
    let bench = open(&model).await.map_err(|error| JsError::new(&error.to_string()))?;
    BENCH.with(|place| *place.borrow_mut() = Some(Rc::new(RefCell::new(bench))));
    Ok(())
}

async fn open(name: &str) -> Result<Bench> {
    let Workload { model, optimizer, loss, batch_size, .. } = workloads::by_name(name)?;
    let adapters: Vec<Info> =
        adapters::list_async().await.into_iter().filter(|info| info.kind != Kind::Cpu).take(1).collect();
    if adapters.is_empty() {
        return Err(Error::adapter("this browser", "has no WebGPU adapter", "switch it on"));
    }
    let objective = Objective::new(vec![loss], optimizer);
    let rig = Scheduler::builder(&model, &objective).adapters(adapters).capacity(batch_size);
    let scheduler = rig.cpu_fallback(CpuFallback::Refused).open().await?;
    Ok(Bench { scheduler, batch: batch(batch_size), step: 0 })
}

fn batch(rows: u32) -> Batch {
    let values = |len: u32, of: u32| (0..len).map(move |idx| f32::from(u8::try_from(idx * 7919 % of).unwrap_or(0)));
    let inputs: Vec<f32> = values(rows * 784, 251).map(|value| value / 251.0).collect();
    let targets: Vec<f32> = values(rows, 10).collect();
    Batch { rows: rows as usize, inputs: vec![inputs.into()], targets: vec![Arc::from(targets)], sample_weights: None }
}

/// One training step; gives the mean loss of its rows.
#[wasm_bindgen]
pub async fn bench_step() -> std::result::Result<f64, JsError> {
    let Some(bench) = BENCH.with(|place| place.borrow().clone()) else { return Err(JsError::new("nothing is open")) };
    #[allow(clippy::await_holding_refcell_ref, reason = "the page takes one step at a time")]
    let loss = async {
        let bench = &mut *bench.borrow_mut();
        let rows = u32::try_from(bench.batch.rows).map_or(1.0, |rows| 1.0 / f64::from(rows));
        #[allow(clippy::cast_possible_truncation, reason = "a scale is f32 everywhere")]
        let scale = rows as f32;
        let step = Step { step: bench.step, seed: 0, learning_rate: 1e-3, loss_scales: vec![scale], scaling: None };
        bench.step += 1;
        let report = bench.scheduler.train(&bench.batch, &step).await?;
        Ok::<f64, Error>(report.reports[0].iter().step_by(2).map(|loss| f64::from(*loss)).sum())
    };
    loss.await.map_err(|error| JsError::new(&error.to_string()))
}
