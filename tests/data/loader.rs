//! Does the loader give every row once, in an order that only the seed and the epoch decide?

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use manyhands::data::{
    Batch, BatchMut, Dataset, Fold, Format, HeldOut, InMemory, Loader, LoaderSettings, Position, Schema, Subset, fold,
    held_out, split,
};
use manyhands::{Error, Result, Shape};
use manyhands_engine::runtime::{Native, Runtime};
use ndarray::{Array1, Array2};

/// Rows whose input is their index, and whose target is ten times it.
fn counting(rows: usize) -> Arc<dyn Dataset> {
    let index = Array1::from_iter((0..rows).map(|row| row as f32));
    Arc::new(InMemory::new(index.clone(), index * 10.0).unwrap())
}

fn settings(batch_size: usize, shuffle: Option<u64>, workers: usize) -> LoaderSettings {
    LoaderSettings { batch_size, shuffle, workers, ..Default::default() }
}

/// The batches that are left of the epoch, as lists of rows.
fn rest(loader: &mut Loader) -> Vec<Vec<f32>> {
    let mut batches = Vec::new();
    while let Some(batch) = loader.next().unwrap() {
        assert_eq!(batch.inputs[0].len(), batch.rows);
        assert!(batch.inputs[0].iter().zip(batch.targets[0].iter()).all(|(x, y)| x * 10.0 == *y));
        batches.push(batch.inputs[0].to_vec());
    }
    batches
}

fn sorted(batches: &[Vec<f32>]) -> Vec<f32> {
    let mut rows = batches.concat();
    rows.sort_by(f32::total_cmp);
    rows
}

#[test]
fn every_row_comes_once_an_epoch_whatever_the_workers() {
    let expected: Vec<f32> = (0..103).map(|row| row as f32).collect();
    for workers in [0, 1, 3] {
        for prefetch in [1, 2, 64] {
            let mut loader =
                Loader::new(counting(103), LoaderSettings { prefetch, ..settings(10, Some(5), workers) }).unwrap();
            assert_eq!(loader.batches_per_epoch(), 11);
            let batches = rest(&mut loader);
            assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 3]);
            assert_eq!(sorted(&batches), expected);
            assert_eq!(loader.next().unwrap(), None, "an epoch stays ended");
        }
    }
}

#[test]
fn the_order_depends_on_seed_and_epoch_alone() {
    let order = |seed, epoch, workers| {
        let mut loader = Loader::new(counting(500), settings(32, Some(seed), workers)).unwrap();
        loader.start_epoch(epoch, 0);
        rest(&mut loader)
    };
    assert_eq!(order(1, 0, 0), order(1, 0, 3));
    assert_eq!(order(1, 7, 1), order(1, 7, 2));
    assert_ne!(order(1, 0, 0), order(1, 1, 0));
    assert_ne!(order(1, 0, 0), order(2, 0, 0));

    let mut loader = Loader::new(counting(500), settings(32, Some(1), 2)).unwrap();
    for epoch in [0, 4, 2, 0] {
        loader.start_epoch(epoch, 0);
        assert_eq!(rest(&mut loader), order(1, epoch, 0), "an epoch does not depend on those before it");
    }
}

#[test]
fn without_a_seed_the_order_is_the_datasets() {
    let mut loader = Loader::new(counting(5), settings(2, None, 2)).unwrap();
    for epoch in 0..2 {
        loader.start_epoch(epoch, 0);
        assert_eq!(rest(&mut loader), [vec![0., 1.], vec![2., 3.], vec![4.]]);
    }
}

#[test]
fn the_remainder_can_be_left_out() {
    let mut loader =
        Loader::new(counting(10), LoaderSettings { drop_remainder: true, ..settings(4, None, 2) }).unwrap();
    assert_eq!(loader.batches_per_epoch(), 2);
    assert_eq!(rest(&mut loader), [vec![0., 1., 2., 3.], vec![4., 5., 6., 7.]]);
}

#[test]
fn it_resumes_at_any_batch() {
    for workers in [0, 2] {
        let mut loader = Loader::new(counting(57), settings(5, Some(3), workers)).unwrap();
        loader.start_epoch(2, 0);
        let whole = rest(&mut loader);
        for first_batch in 0..=whole.len() {
            let mut resumed = Loader::new(counting(57), settings(5, Some(3), workers)).unwrap();
            resumed.start_epoch(2, first_batch);
            assert_eq!(resumed.position(), Position { epoch: 2, batch: first_batch });
            assert_eq!(rest(&mut resumed), whole[first_batch..]);
        }
    }
}

#[test]
fn a_dropped_future_loses_no_batch() {
    let mut loader = Loader::new(counting(20), settings(5, None, 1)).unwrap();
    for _ in 0..3 {
        drop(loader.next_async());
        let mut next = Box::pin(loader.next_async());
        drop(pollster::block_on(futures_lite::future::poll_once(&mut next)));
    }
    let first = loader.position().batch;
    assert_eq!(rest(&mut loader).concat().len(), 20 - 5 * first);
}

/// Counts the rows read, and fails or panics at row 30 as often as asked.
struct Flaky {
    fetched: AtomicUsize,
    failures: AtomicUsize,
    panics: bool,
}

impl Flaky {
    fn new(failures: usize, panics: bool) -> Arc<Self> {
        Arc::new(Self { fetched: AtomicUsize::new(0), failures: AtomicUsize::new(failures), panics })
    }
}

impl Dataset for Flaky {
    fn len(&self) -> usize {
        1000
    }

    fn input_shapes(&self) -> Vec<Shape> {
        vec![Shape::new([])]
    }

    fn target_shapes(&self) -> Vec<Shape> {
        Vec::new()
    }

    fn fetch(&self, rows: &[usize], batch: &mut BatchMut<'_>) -> Result<()> {
        let fail = |left: usize| left.checked_sub(1);
        if rows.contains(&30) && self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fail).is_ok() {
            assert!(!self.panics, "row 30");
            return Err(Error::data("row 30", "can't be read", "try again"));
        }
        self.fetched.fetch_add(rows.len(), Ordering::SeqCst);
        for (to, &row) in batch.input(0).iter_mut().zip(rows) {
            *to = row as f32;
        }
        Ok(())
    }
}

#[test]
fn a_failed_batch_is_an_error_at_its_place_and_can_be_tried_again() {
    for (workers, panics) in [(0, false), (1, false), (3, false), (1, true), (3, true)] {
        let mut loader = Loader::new(Flaky::new(1, panics), settings(10, None, workers)).unwrap();
        for _ in 0..3 {
            loader.next().unwrap().unwrap();
        }
        let error = loader.next().unwrap_err().to_string();
        assert!(error.starts_with(if panics { "the dataset stopped a worker" } else { "row 30 can't be read" }));
        assert_eq!(loader.position().batch, 3);
        let batch = loader.next().unwrap().unwrap();
        assert_eq!(batch.inputs[0][0], 30.0);
    }
}

/// Waits until another thread has come so far, with a limit.
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        pollster::block_on(Native.sleep(1.0));
    }
    panic!("{what}: not within a minute");
}

#[test]
fn as_much_is_read_ahead_as_asked_and_no_more() {
    let dataset = Flaky::new(0, false);
    let mut loader = Loader::new(dataset.clone(), LoaderSettings { prefetch: 3, ..settings(10, None, 2) }).unwrap();
    for taken in 1..=100 {
        loader.next().unwrap().unwrap();
        let (ahead, fetched) = ((taken + 3).min(100) * 10, || dataset.fetched.load(Ordering::SeqCst));
        wait_for("reading ahead", || fetched() >= ahead);
        assert_eq!(fetched(), ahead, "after {taken} batches");
    }
}

#[test]
fn many_loaders_may_be_dropped_at_work() {
    let data = counting(1000);
    for _ in 0..50 {
        let mut loader = Loader::new(data.clone(), settings(1, Some(0), 2)).unwrap();
        let batch = loader.next().unwrap().unwrap();
        assert_eq!((batch.rows, loader.position()), (1, Position { epoch: 0, batch: 1 }));
        loader.start_epoch(1, 0);
        drop(loader);
        wait_for("the end of the workers' jobs", || Arc::strong_count(&data) == 1);
    }
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let message = |rows, settings| Loader::new(counting(rows), settings).err().unwrap().to_string();
    assert_eq!(
        message(10, settings(0, None, 0)),
        "`batch_size` needs at least 1, but is 0\n  help: 32 is a good first choice"
    );
    assert_eq!(
        message(10, LoaderSettings { drop_remainder: true, ..settings(11, None, 0) }),
        "`drop_remainder` needs 11 rows for a batch, but the dataset has 10\n  \
         help: lower `batch_size`, or keep the remainder"
    );
    assert_eq!(
        message(10, LoaderSettings { prefetch: 0, ..settings(2, None, 2) }),
        "`prefetch` needs at least 1 with 2 workers, but is 0\n  \
         help: use 4, or `workers = 0` to decode when asked"
    );
    let empty = Arc::new(Subset::new(counting(3), Vec::new()).unwrap());
    assert_eq!(
        Loader::new(empty, settings(2, None, 0)).err().unwrap().to_string(),
        "the dataset needs at least one row, but has none\n  help: give it rows"
    );
}

#[test]
fn settings_are_read_from_toml_strictly() {
    let read: LoaderSettings = toml::from_str("batch_size = 8\nshuffle = 3").unwrap();
    assert_eq!(read, settings(8, Some(3), LoaderSettings::default().workers));
    assert!((1..=8).contains(&read.workers));
    assert!(toml::from_str::<LoaderSettings>("batchsize = 8").is_err());
}

/// The numbers of a part's rows.
fn rows(part: &Subset) -> Vec<f32> {
    Batch::fetch(part, &(0..part.len()).collect::<Vec<_>>()).unwrap().inputs[0].to_vec()
}

#[test]
fn a_split_is_two_parts_of_the_rows() {
    let (train, validation) = split(counting(101), 0.2, 9).unwrap();
    assert_eq!((train.len(), validation.len()), (81, 20));
    let mut all = [rows(&train), rows(&validation)].concat();
    assert_ne!(rows(&validation), (81..101).map(|row| row as f32).collect::<Vec<_>>());
    all.sort_by(f32::total_cmp);
    assert_eq!(all, (0..101).map(|row| row as f32).collect::<Vec<_>>());

    let (again, _) = split(counting(101), 0.2, 9).unwrap();
    let (other, _) = split(counting(101), 0.2, 10).unwrap();
    assert_eq!(rows(&train), rows(&again));
    assert_ne!(rows(&train), rows(&other));
    for fraction in [0.0, 1.0, 0.001, -0.5, f64::NAN] {
        let error = split(counting(101), fraction, 9).err().unwrap().to_string();
        assert!(error.starts_with("the split needs at least one row on each side"), "{error}");
    }
}

/// The number of rows of each label.
fn counts(part: &Subset) -> Vec<usize> {
    let labels = Batch::fetch(part, &(0..part.len()).collect::<Vec<_>>()).unwrap().targets[0].to_vec();
    (0..4).map(|class| labels.iter().filter(|label| **label == class as f32).count()).collect()
}

#[test]
fn a_split_takes_the_same_part_of_each_class() {
    // 70 rows of class 0, 20 of 1, 9 of 2, one of 3, in no order.
    let label = |row: usize| match row * 37 % 100 {
        0..70 => 0.0,
        70..90 => 1.0,
        90..99 => 2.0,
        _ => 3.0,
    };
    let labels = Array1::from_iter((0..100).map(label));
    let inputs = Array1::from_iter((0..100).map(|row| row as f32));
    let data: Arc<dyn Dataset> = Arc::new(InMemory::new(inputs.clone(), labels.clone()).unwrap());
    for seed in 0..20 {
        let (train, validation) = split(data.clone(), 0.2, seed).unwrap();
        // The rest of 20 rows, one, goes to the largest remainder: 9 · 0.2 = 1.8.
        assert_eq!((counts(&train), counts(&validation)), (vec![56, 16, 7, 1], vec![14, 4, 2, 0]));
        let held = train.schema().held_out.unwrap();
        assert!(held.stratified);
        let rows = |part: &Subset| Batch::fetch(part, &(0..part.len()).collect::<Vec<_>>()).unwrap();
        assert_eq!(rows(&held_out(data.clone(), held).unwrap()), rows(&validation));
    }
    // A file of an older version held rows out whatever their class.
    let (train, _) = split(data.clone(), 0.2, 3).unwrap();
    let old = HeldOut { stratified: false, ..train.schema().held_out.unwrap() };
    let drawn: Vec<Vec<usize>> =
        (0..20).map(|seed| counts(&held_out(data.clone(), HeldOut { seed, ..old }).unwrap())).collect();
    assert!(drawn.iter().any(|counts| *counts != [14, 4, 2, 0]), "{drawn:?}");
    // One number for each class, as loss of one-hot targets take it, and numbers that are no classes.
    let one_hot = Array2::from_shape_fn((100, 4), |(row, class)| f32::from(u8::from(labels[row] == class as f32)));
    let names = Schema::with_classes(Format::Other, ["a", "b", "c", "d"]);
    let one_hot: Arc<dyn Dataset> = Arc::new(InMemory::new(inputs.clone(), one_hot).unwrap().with_schema(names));
    assert!(split(one_hot, 0.2, 1).unwrap().0.schema().held_out.unwrap().stratified);
    let numbers: Arc<dyn Dataset> = Arc::new(InMemory::new(inputs.clone(), labels * 0.3).unwrap());
    assert!(!split(numbers, 0.2, 1).unwrap().0.schema().held_out.unwrap().stratified);
}

/// The rules of scikit-learn's `KFold` and `StratifiedKFold`.
#[test]
fn each_row_is_in_one_fold_and_each_class_in_all() {
    // 70 rows of class 0, 20 of 1, 9 of 2, 4 of 3, in no order.
    let label = |row: usize| match row * 37 % 103 {
        0..70 => 0.0,
        70..90 => 1.0,
        90..99 => 2.0,
        _ => 3.0,
    };
    let inputs = Array1::from_iter((0..103).map(|row| row as f32));
    let classes = InMemory::new(inputs.clone(), Array1::from_iter((0..103).map(label))).unwrap();
    let numbers = InMemory::new(inputs, Array1::from_iter((0..103).map(|row| row as f32 / 7.0))).unwrap();
    let differ_by_one = |counts: Vec<usize>| counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1;
    for (data, has_classes) in [(classes, true), (numbers, false)] {
        let data: Arc<dyn Dataset> = Arc::new(data);
        for (of, seed) in [(2, 0), (5, 0), (5, 1), (10, 3), (103, 0)] {
            let parts: Vec<(Subset, Subset)> =
                (1..=of).map(|number| fold(data.clone(), Fold { number, of, seed }).unwrap()).collect();
            let mut all: Vec<f32> = parts.iter().flat_map(|(_, fold)| rows(fold)).collect();
            all.sort_by(f32::total_cmp);
            assert_eq!(all, (0..103).map(|row| row as f32).collect::<Vec<_>>(), "{of} folds");
            assert!(differ_by_one(parts.iter().map(|(_, fold)| fold.len()).collect()));
            for class in (0..4).filter(|_| has_classes) {
                assert!(differ_by_one(parts.iter().map(|(_, fold)| counts(fold)[class]).collect()), "class {class}");
            }
            for (number, (rest, held)) in (1..).zip(&parts) {
                assert!(rows(rest).iter().all(|row| !rows(held).contains(row)) && rest.len() + held.len() == 103);
                let of_fold = rest.schema().held_out.unwrap();
                assert_eq!((of_fold.fold, of_fold.stratified), (Some(Fold { number, of, seed }), has_classes));
                assert_eq!(rows(&held_out(data.clone(), of_fold).unwrap()), rows(held));
            }
        }
        let of = |seed| rows(&fold(data.clone(), Fold { number: 1, of: 5, seed }).unwrap().1);
        assert!(of(4) == of(4) && of(4) != of(5));
        // A part of the others is found again, too.
        let (rest, held) = fold(data.clone(), Fold { number: 4, of: 5, seed: 2 }).unwrap();
        let (train, validation) = split(Arc::new(rest), 0.25, 9).unwrap();
        let again = held_out(data.clone(), train.schema().held_out.unwrap()).unwrap();
        assert_eq!((rows(&again), train.len() + validation.len() + held.len()), (rows(&validation), 103));
        for (number, of) in [(1, 1), (1, 104), (0, 5), (6, 5)] {
            let error = fold(data.clone(), Fold { number, of, seed: 0 }).err().unwrap().to_string();
            assert!(error.starts_with(&format!("fold {number} of {of} needs from 2 folds to as many as")), "{error}");
        }
    }
}

#[test]
fn a_shard_is_a_range_of_rows() {
    let inputs = Array2::from_shape_fn((5, 3), |(row, column)| (row * 3 + column) as f32);
    let data = InMemory::new(inputs, Array1::from_iter([0., 1., 2., 3., 4.]))
        .unwrap()
        .with_sample_weights(Array1::from_iter([1., 2., 3., 4., 5.]))
        .unwrap();
    let batch = Batch::fetch(&data, &[4, 2, 0]).unwrap();
    assert_eq!(batch.inputs[0][..], [12., 13., 14., 6., 7., 8., 0., 1., 2.]);
    let shard = batch.shard(1..3);
    assert_eq!(shard.rows, 2);
    assert_eq!(shard.inputs[0][..], [6., 7., 8., 0., 1., 2.]);
    assert_eq!(shard.targets[0][..], [2., 0.]);
    assert_eq!(shard.sample_weights.unwrap()[..], [3., 1.]);
    assert_eq!(batch.shard(1..1).inputs[0].len(), 0);
    assert!(Arc::ptr_eq(&batch.shard(0..3).inputs[0], &batch.inputs[0]), "the whole batch is not copied");
    assert_eq!(
        Batch::fetch(&data, &[5]).unwrap_err().to_string(),
        "the dataset has 5 rows, but row 5 was asked for\n  help: rows count from 0"
    );
}

/// Counts the batches that it is asked to write over the values of another.
struct Observed {
    written_over: AtomicUsize,
}

impl Dataset for Observed {
    fn len(&self) -> usize {
        45
    }

    fn input_shapes(&self) -> Vec<Shape> {
        vec![Shape::new([3])]
    }

    fn target_shapes(&self) -> Vec<Shape> {
        vec![Shape::new([])]
    }

    fn fetch(&self, rows: &[usize], batch: &mut BatchMut<'_>) -> Result<()> {
        let is_zero = |values: &[f32]| values.iter().all(|value| *value == 0.0);
        let is_new = is_zero(batch.input(0)) && is_zero(batch.target(0));
        self.written_over.fetch_add(usize::from(!is_new), Ordering::SeqCst);
        // No value is 0, as those of new buffers are.
        batch.input(0).chunks_exact_mut(3).zip(rows).for_each(|(to, row)| to.fill(*row as f32 + 1.0));
        batch.target(0).iter_mut().zip(rows).for_each(|(to, row)| *to = -1.0 - *row as f32);
        Ok(())
    }
}

#[test]
fn a_batch_takes_the_memory_of_one_that_was_dropped_and_none_of_its_values() {
    let dataset = Arc::new(Observed { written_over: AtomicUsize::new(0) });
    let mut loader = Loader::new(dataset.clone(), settings(10, None, 0)).unwrap();
    let counted = || dataset.written_over.swap(0, Ordering::SeqCst);
    let needed = |first: usize, rows: usize| Batch::fetch(dataset.as_ref(), &(first..first + rows).collect::<Vec<_>>());
    for epoch in 0..2 {
        loader.start_epoch(epoch, 0);
        let mut first = 0;
        while let Some(batch) = loader.next().unwrap() {
            assert_eq!(batch, needed(first, batch.rows).unwrap());
            first += batch.rows;
        }
        // The first of the epoch is new, and so is the last, which is smaller.
        assert_eq!((first, counted()), (45, 3), "epoch {epoch}");
    }
    loader.start_epoch(2, 0);
    let held: Vec<Batch> = std::iter::from_fn(|| loader.next().unwrap()).collect();
    assert_eq!(counted(), 0, "batches that are held stay");
    for (batch, first) in held.iter().zip((0..).step_by(10)) {
        assert_eq!(*batch, needed(first, batch.rows).unwrap());
    }
}

#[test]
fn held_batches_keep_their_values_while_threads_fill_others() {
    let dataset = Arc::new(Observed { written_over: AtomicUsize::new(0) });
    let mut loader = Loader::new(dataset.clone(), settings(1, None, 3)).unwrap();
    for epoch in 0..20 {
        loader.start_epoch(epoch, 0);
        let mut held = Vec::new();
        for row in 0..45 {
            let batch = loader.next().unwrap().unwrap();
            // Every third is held to the end of the epoch; the others are dropped.
            if row % 3 == 0 {
                held.push((row, batch));
            }
        }
        assert_eq!(loader.next().unwrap(), None);
        for (row, batch) in held {
            assert_eq!(batch.inputs[0][..], [row as f32 + 1.0; 3]);
            assert_eq!(batch.targets[0][..], [-1.0 - row as f32]);
        }
    }
    assert!(dataset.written_over.load(Ordering::SeqCst) > 0);
}
