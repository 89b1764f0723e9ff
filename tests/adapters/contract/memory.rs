//! Memory that is counted before it is taken.

use manyhands::layers::{BatchNormalization, Conv2D, Dense, Flatten, Lstm};
use manyhands::model::Objective;
use manyhands::{Loss, Model, Optimizer, Sequential};
use manyhands_engine::adapters::memory;
use manyhands_engine::plan::{Accumulation, GradientCompression};

use super::*;

fn models() -> [Model; 3] {
    let images = Sequential::new([8, 8, 3]).add(Conv2D::new(70, [3, 3]).same()).add(BatchNormalization::new());
    let wide = Sequential::new([300]).add(Dense::new(900)).add(Dense::new(2));
    let steps = Sequential::new([12, 5]).add(Lstm::new(33)).add(Dense::new(2));
    [images.add(Flatten::default()).add(Dense::new(2)), wide, steps].map(|model| model.build(1).unwrap())
}

fn plans() -> Vec<Plan> {
    let forms = [GradientCompression::None, GradientCompression::Fp16];
    let forms = forms.into_iter().flat_map(|form| [(form, Accumulation::Host), (form, Accumulation::Adapter)]);
    let mut plans = Vec::new();
    for (gradient_compression, accumulation) in forms {
        let objective = Objective::new(vec![Loss::MEAN_SQUARED_ERROR], Optimizer::adam(1e-3));
        let objective = Objective { gradient_compression, accumulation, ..objective };
        plans.extend(models().iter().map(|model| model.plan(&objective).unwrap()));
    }
    plans.extend(models().iter().map(Model::inference_plan));
    plans.extend([plan(), ahead::plan()]);
    plans
}

#[test]
fn what_a_plan_takes_is_counted_exactly_before_it_is_loaded() {
    on_every_adapter(|rig| {
        let kind = if rig.is_gpu() { rig.handle.info.kind } else { Kind::Cpu };
        for plan in plans() {
            for capacity in [1, 7, 64, 1000] {
                let counted = memory::bytes(&plan, capacity, kind);
                let Event::Loaded { bytes } = rig.load(plan.clone(), capacity) else { panic!("not loaded") };
                assert_eq!(bytes, counted, "{capacity} rows on {}", rig.handle.info.name);
            }
        }
    });
}

#[test]
fn a_plan_over_the_limit_is_refused_before_anything_is_created() {
    on_every_adapter(|rig| {
        let kind = if rig.is_gpu() { rig.handle.info.kind } else { Kind::Cpu };
        let needed = memory::bytes(&plan(), 64, kind);
        rig.ask(Request::Limit(needed - 1));
        // Opening a device makes objects, too: behind this it is open.
        rig.load(plan(), 1);
        let before = gpu::objects_created();
        let Event::Failed { ticket: None, fault: Fault::OutOfMemory(text) } = rig.load(plan(), 64) else {
            panic!("not refused")
        };
        assert!(
            text.starts_with("64 rows at once need ") && text.contains(", 1 byte more than its limit of "),
            "{text}"
        );
        // GPUs are tested one at a time, the others beside them.
        assert!(!rig.is_gpu() || gpu::objects_created() == before);
        assert!(matches!(rig.load(plan(), 32), Event::Loaded { bytes } if bytes < needed));
        rig.ask(Request::Limit(needed));
        assert!(matches!(rig.load(plan(), 64), Event::Loaded { bytes } if bytes == needed));
        rig.train(&input(64), &[0.0; 3], 1);
    });
}
