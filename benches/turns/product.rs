//! A bare matrix product: on a device with the fastest tile, with none, and on the CPU.

use std::sync::Arc;

use manyhands::adapters::Info;
use manyhands::extend::{Grid, Kernel};
use manyhands_engine::adapters::gpu::{Checks, Direct, Launch};
use manyhands_engine::kernels::Tile;
use manyhands_engine::kernels::dense::{self, Params};
use manyhands_engine::kernels::product::{Epilogue, matrix, matrix_mut, multiply};
use manyhands_engine::runtime::{Native, Runtime};

use crate::{Turn, Work};

/// One invocation a result, from global memory: what one writes first.
static NAIVE: Kernel = Kernel {
    stem: "naive_product",
    entry: "product",
    source: include_str!("naive_product.wgsl"),
    uses: &[],
    params: Params::FIELDS,
    inputs: &["a", "b"],
    outputs: &["c"],
    workgroup: 64,
    constants: &[],
    ..dense::FORWARD
};

/// The factors, and what the last element of the result must be.
struct Factors {
    rows: u32,
    a: Vec<f32>,
    b: Vec<f32>,
    last: f64,
}

impl Factors {
    fn new(rows: u32) -> Self {
        let n = usize::try_from(rows).unwrap();
        let (a, b) = (pattern(n * n, 7919, 251), pattern(n * n, 6007, 241));
        let last = (0..n).map(|k| f64::from(a[(n - 1) * n + k]) * f64::from(b[k * n + n - 1])).sum();
        Self { rows, a, b, last }
    }

    fn params(&self) -> Params {
        let n = self.rows;
        Params {
            m: n,
            n,
            k: n,
            a_offset: 0,
            a_stride: n,
            b_offset: 0,
            b_stride: n,
            y_offset: 0,
            y_stride: n,
            splits: 1,
        }
    }

    /// The last element of a result, which must be right.
    fn check(&self, result: &[f32]) -> f64 {
        let found = f64::from(result[self.a.len() - 1]);
        assert!((found - self.last).abs() < 1e-3 * self.last, "the last element is {found}, not {}", self.last);
        found
    }
}

/// Values between 0 and 1, the same in every program of the comparison.
fn pattern(len: usize, factor: usize, modulus: usize) -> Vec<f32> {
    let whole = |value: usize| f32::from(u16::try_from(value).unwrap());
    (0..len).map(|i| whole(i * factor % modulus) / whole(modulus)).collect()
}

/// On a device.
pub struct OnDevice {
    direct: Direct,
    kernel: &'static Kernel,
    tiles: Vec<Tile>,
    grid: Grid,
    params: Vec<u32>,
    inputs: Vec<Vec<f32>>,
    outputs: Vec<Vec<f32>>,
    factors: Factors,
    /// The last element that was read back.
    found: Option<f64>,
}

impl OnDevice {
    /// With the fastest of all tiles.
    pub fn tiled(info: &Info, rows: u32) -> Self {
        let factors = Factors::new(rows);
        let grid = factors.params().record().grid();
        let tiles = Tile::ALL.into_iter().filter(|tile| tile.is_able(grid, &[])).collect();
        // `bias` is bound, but not read.
        let inputs = vec![factors.a.clone(), factors.b.clone(), vec![0.0; 64]];
        Self::new(info, &dense::FORWARD, tiles, grid, factors, inputs)
    }

    /// With a kernel that has none.
    pub fn naive(info: &Info, rows: u32) -> Self {
        assert_eq!(rows % 8, 0, "the naive product takes a multiple of 8 rows");
        let factors = Factors::new(rows);
        let inputs = vec![factors.a.clone(), factors.b.clone()];
        Self::new(info, &NAIVE, vec![Tile::Registers], Grid::Elements((rows * rows).into()), factors, inputs)
    }

    fn new(
        info: &Info,
        kernel: &'static Kernel,
        tiles: Vec<Tile>,
        grid: Grid,
        factors: Factors,
        inputs: Vec<Vec<f32>>,
    ) -> Self {
        let direct = pollster::block_on(Direct::open(info, Checks::from_environment(), Arc::new(Native))).unwrap();
        let tiles = tiles.into_iter().filter(|tile| direct.is_able(*tile)).collect();
        let (params, outputs) = (factors.params().words(), vec![vec![0.0; factors.a.len()]]);
        Self { direct, kernel, tiles, grid, params, inputs, outputs, factors, found: None }
    }

    /// Milliseconds of one of several dispatches in a row.
    fn ms(&mut self, tile: Tile, repeats: u32) -> f64 {
        let (direct, launch) = self.launch(tile);
        pollster::block_on(direct.time(launch, repeats)).unwrap()
    }

    /// The last element of a result, which must be right.
    fn value(&mut self, tile: Tile) -> f64 {
        let (direct, launch) = self.launch(tile);
        let outputs = pollster::block_on(direct.run(launch)).unwrap();
        self.factors.check(&outputs[0])
    }

    fn launch(&mut self, tile: Tile) -> (&mut Direct, Launch<'_>) {
        let Self { direct, kernel, grid, params, inputs, outputs, .. } = self;
        let constants: &[(&str, f64)] = if kernel.constants.is_empty() { &[] } else { &[("USE_BIAS", 0.0)] };
        (direct, Launch { kernel, tile, params, constants, grid: *grid, inputs, outputs })
    }
}

impl Work for OnDevice {
    /// The first turn reads the result back and checks it.
    fn turn(&mut self, steps: u32) -> Turn {
        let tile = self.tiles[0];
        if let Some(value) = self.found {
            return Turn { ms: self.ms(tile, steps) * f64::from(steps), value };
        }
        let begin_ms = Native.now_ms();
        let value = self.value(tile);
        self.found = Some(value);
        Turn { ms: Native.now_ms() - begin_ms, value }
    }

    /// Puts the fastest tile first, once each has shown a right result.
    fn tune(&mut self) -> String {
        let mut timed: Vec<(f64, Tile)> = Vec::new();
        for tile in self.tiles.clone() {
            self.value(tile);
            timed.push((self.ms(tile, 3), tile));
        }
        timed.sort_by(|left, right| left.0.total_cmp(&right.0));
        self.tiles = timed.iter().map(|(_, tile)| *tile).collect();
        if self.tiles.len() > 1 { format!("{:?}", self.tiles[0]) } else { String::new() }
    }

    fn parameters(&self) -> usize {
        0
    }
}

/// On all cores of the CPU.
pub struct OnHost {
    factors: Factors,
    result: Vec<f32>,
}

impl OnHost {
    pub fn new(rows: u32) -> Self {
        let factors = Factors::new(rows);
        Self { result: vec![0.0; factors.a.len()], factors }
    }
}

impl Work for OnHost {
    fn turn(&mut self, steps: u32) -> Turn {
        let n = usize::try_from(self.factors.rows).unwrap();
        let begin_ms = Native.now_ms();
        for _ in 0..steps {
            let (a, b) = (matrix(&self.factors.a, n, n, n), matrix(&self.factors.b, n, n, n));
            multiply(a, b, matrix_mut(&mut self.result, n, n, n), Epilogue::NONE);
        }
        let ms = Native.now_ms() - begin_ms;
        Turn { ms, value: self.factors.check(&self.result) }
    }

    fn parameters(&self) -> usize {
        0
    }
}
