//! A bare matrix product, f32.

use burn::tensor::{Device, Tensor, TensorData};

use crate::turns::Work;

/// `a b` of square matrices.
pub struct Product {
    a: Tensor<2>,
    b: Tensor<2>,
    c: Option<Tensor<2>>,
    /// Expected last element.
    last: f64,
    device: Device,
}

impl Product {
    /// Of this many rows.
    pub fn new(rows: usize, device: &Device) -> Self {
        let matrix = |values: Vec<f32>| Tensor::<2>::from_data(TensorData::new(values, [rows, rows]), device);
        let (a, b) = (a(rows), b(rows));
        let last = last(rows, &a, &b);
        Self { a: matrix(a), b: matrix(b), c: None, last, device: device.clone() }
    }
}

/// The last element of the product, in f64.
fn last(rows: usize, a: &[f32], b: &[f32]) -> f64 {
    let last = rows - 1;
    (0..rows).map(|k| f64::from(a[last * rows + k]) * f64::from(b[k * rows + last])).sum()
}

/// Values between 0 and 1, the same in every program of the comparison.
#[allow(clippy::cast_precision_loss, reason = "both are below 251")]
fn a(rows: usize) -> Vec<f32> {
    (0..rows * rows).map(|i| (i * 7919 % 251) as f32 / 251.0).collect()
}

#[allow(clippy::cast_precision_loss, reason = "both are below 241")]
fn b(rows: usize) -> Vec<f32> {
    (0..rows * rows).map(|i| (i * 6007 % 241) as f32 / 241.0).collect()
}

impl Work for Product {
    fn step(&mut self) {
        self.c = Some(self.a.clone().matmul(self.b.clone()));
    }

    fn finish(&mut self) -> f64 {
        let c = self.c.take().expect("a turn has steps");
        let [rows, columns] = c.dims();
        let last = f64::from(c.slice([rows - 1..rows, columns - 1..columns]).into_scalar::<f32>());
        self.device.sync().expect("the device ends its work");
        assert!((last - self.last).abs() < 1e-3 * self.last, "the last element is {last}, not {}", self.last);
        last
    }

    fn parameters(&self) -> usize {
        0
    }
}
