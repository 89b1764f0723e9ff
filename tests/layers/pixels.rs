//! Does a trained network get the pixels that it expects, and does it say which?
//!
//! Golden values are those of `preprocess_input` of `keras.applications` for two pixels, of the bytes 12, 130, 255 and 0, 64, 200.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use manyhands::layers::{Flatten, Normalization, Rescaling};
use manyhands::schema::{Format, Pixels, Schema};
use manyhands::{Model, Sequential};
use manyhands_engine::plan::Pass;

use crate::bench::Bench;
use crate::close::assert_close;

fn network() -> Model {
    Sequential::new([1, 2, 3]).add_named("pixels", Flatten::default()).build(1).unwrap()
}

#[test]
fn pixels_are_those_of_keras() {
    let golden: [(Pixels, [f32; 6]); 5] = [
        (Pixels::Unit, [12.0, 130.0, 255.0, 0.0, 64.0, 200.0].map(|byte| byte / 255.0)),
        (Pixels::Centered, [-0.905_882_36, 0.019_607_902, 1.0, -1.0, -0.498_039_2, 0.568_627_5]),
        (Pixels::Bytes, [12.0, 130.0, 255.0, 0.0, 64.0, 200.0]),
        (Pixels::Torch, [-1.912_406_9, 0.240_196_2, 2.64, -2.117_904, -0.915_266, 1.681_394_5]),
        (Pixels::Caffe, [151.061, 13.221, -111.68, 96.061, -52.779, -123.68]),
    ];
    for (pixels, golden) in golden {
        let mut bench = Bench::of_normals(network().with_pixels(pixels).unwrap(), 1);
        bench.batch.inputs[0] = [12.0, 130.0, 255.0, 0.0, 64.0, 200.0].map(|byte| byte / 255.0).into();
        assert_close(&pixels.to_string(), &bench.outputs(Pass::Predict).remove(0), &golden, 1e-4);
    }
}

#[test]
fn a_network_says_which_pixels_it_expects() {
    let mut model = network();
    assert_eq!(model.pixels(), None);
    model.set_schema(Schema { format: Format::Cifar10, ..Schema::default() });
    assert_eq!(model.pixels(), Some(Pixels::Unit));
    model.set_schema(Schema { pixels: Some(Pixels::Caffe), ..Schema::default() });
    let bytes = model.to_bytes().unwrap();
    assert_eq!(Model::from_bytes(&bytes, "file", &[]).unwrap().pixels(), Some(Pixels::Caffe));
    let divides = |scale: f32| {
        let first = Rescaling { scale: scale.into(), offset: (-1.0).into() };
        Sequential::new([1, 2, 3]).add(first).build(1).unwrap().pixels()
    };
    assert_eq!([divides(1.0 / 127.5), divides(2.0)], [Some(Pixels::Bytes), None]);
    let given =
        |mean: f32| Normalization { mean: Some(mean.into()), variance: Some(1.0.into()), ..Normalization::default() };
    let standardizes = |mean: f32| Sequential::new([1, 2, 3]).add(given(mean)).build(1).unwrap().pixels();
    assert_eq!([standardizes(120.0), standardizes(0.5)], [Some(Pixels::Bytes), None]);
}

#[test]
fn what_reads_no_image_is_refused() {
    let gray = Sequential::new([2, 2, 1]).add(Flatten::default()).build(1).unwrap();
    let refused = |model: &Model, pixels| model.with_pixels(pixels).unwrap_err().to_string();
    assert!(gray.with_pixels(Pixels::Centered).is_ok());
    assert!(
        refused(&gray, Pixels::Torch)
            .contains("`pixels = \"torch\"` needs an image of three channels, but the model reads [batch, 2, 2, 1]")
    );
    let row = Sequential::new([4]).add(Flatten::default()).build(1).unwrap();
    assert!(refused(&row, Pixels::Bytes).contains("needs an image, but the model reads [batch, 4]"));
}
