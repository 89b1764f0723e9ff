//! Pixels as a trained network reads them.

use serde_json::{Map, Value, json};

use super::{LayerConfig, Model};
use crate::error::{Error, Result};
use crate::schema::{ArrayRange, Format, Pixels, Schema};

/// Name of the layer that makes them.
const NAME: &str = "pixels";
/// Mean and standard deviation of `ImageNet`'s red, green and blue, from 0 to 1, and their means from 0 to 255: those of
/// `keras.applications`.
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const DEVIATION: [f32; 3] = [0.229, 0.224, 0.225];
const BYTE_MEAN: [f32; 3] = [123.68, 116.779, 103.939];
/// Largest factor of a first layer that expects bytes: 1 / 127.5 and 1 / 255 are smaller.
const BYTE_SCALE: f64 = 0.01;
/// Smallest mean of a first layer that expects bytes.
const BYTE_OFFSET: f32 = 2.0;

impl Model {
    /// Pixels that its input expects, if it is one image and they are known: its [`Schema`] names them or tells of training on images,
    /// or its first layer divides bytes.
    pub fn pixels(&self) -> Option<Pixels> {
        let is_image = matches!(&self.inputs[..], [input] if input.shape.axes().len() == 3);
        if !is_image {
            return None;
        }
        let Schema { pixels, format, .. } = &self.schema;
        let trained = match format {
            Format::Other => None,
            Format::Numpy { values } if values.first() == Some(&ArrayRange::Any) => None,
            _ => Some(Pixels::Unit),
        };
        pixels.or(trained).or_else(|| self.scales_bytes().then_some(Pixels::Bytes))
    }

    /// Whether a layer that reads the first input is a `Rescaling` or `Normalization` of numbers from 0 to 255.
    fn scales_bytes(&self) -> bool {
        let readers = self.nodes.iter().filter(|node| node.inputs.contains(&0));
        readers.map(|node| &self.layers[node.layer_idx]).any(|named| match named.layer.kind() {
            "Rescaling" => match &named.layer.config()["scale"] {
                Value::Array(each) => each.iter().all(is_of_bytes),
                one => is_of_bytes(one),
            },
            "Normalization" => {
                let mean = self.tensor(&format!("{}/mean", named.name)).unwrap_or_default();
                !mean.is_empty() && mean.iter().all(|mean| *mean > BYTE_OFFSET)
            }
            _ => false,
        })
    }

    /// This model behind a layer, `pixels`, that makes of pixels from 0 to 1 those that the model expects. Data sets give
    /// pixels from 0 to 1. The layer is frozen. For blue before green before red it is a `Dense` over the channels, else a
    /// `Rescaling`.
    ///
    /// ```
    /// use manyhands::schema::Pixels;
    /// use manyhands::{Sequential, layers::Flatten};
    /// # fn main() -> manyhands::Result<()> {
    /// let trunk = Sequential::new([2, 2, 3]).add(Flatten::default()).build(1)?;
    /// let model = trunk.with_pixels(Pixels::Caffe)?;
    /// assert_eq!(model.tensor("pixels/bias").unwrap(), [-103.939, -116.779, -123.68]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If it has several inputs, or one that is no image, or one without the three channels that the pixels have.
    pub fn with_pixels(&self, pixels: Pixels) -> Result<Self> {
        let mut config = self.config();
        let [input] = &self.inputs[..] else {
            return Err(refused(pixels, &format!("but the model has {} inputs", self.inputs.len())));
        };
        let (axes, is_coloured) = (input.shape.axes(), matches!(pixels, Pixels::Torch | Pixels::Caffe));
        if axes.len() != 3 || is_coloured && axes.last() != Some(&3) {
            let channels = if is_coloured { " of three channels" } else { "" };
            return Err(refused(pixels, &format!("needs an image{channels}, but the model reads {}", input.shape)));
        }
        if pixels == Pixels::Unit {
            return Ok(self.clone());
        }
        let free = |name: &String| config.layers.iter().all(|layer| layer.name.as_ref() != Some(name));
        let name = std::iter::successors(Some(NAME.to_owned()), |name| Some(format!("{name}_"))).find(free);
        let name = name.unwrap_or_else(|| NAME.to_owned());
        let own = input.name.clone();
        for read in config.layers.iter_mut().filter_map(|layer| layer.inputs.as_mut()).flatten() {
            if *read == own {
                read.clone_from(&name);
            }
        }
        config.layers.insert(0, front(pixels, name.clone(), own));
        let mut model = config.build_zeros()?;
        model.take_over(self, &Default::default())?;
        if pixels == Pixels::Caffe {
            model.swap_channels(&name);
        }
        (model.schema, model.evaluation) = (self.schema.clone(), self.evaluation.clone());
        Ok(model)
    }

    /// Fills the kernel and bias of a `Dense` from red, green and blue from 0 to 1.
    fn swap_channels(&mut self, name: &str) {
        if let Some(kernel) = self.tensor_mut(&format!("{name}/kernel")) {
            kernel.copy_from_slice(&[0.0, 0.0, 255.0, 0.0, 255.0, 0.0, 255.0, 0.0, 0.0]);
        }
        if let Some(bias) = self.tensor_mut(&format!("{name}/bias")) {
            bias.iter_mut().zip(BYTE_MEAN.iter().rev()).for_each(|(bias, mean)| *bias = -mean);
        }
    }
}

/// Whether a factor brings bytes down.
fn is_of_bytes(scale: &Value) -> bool {
    scale.as_f64().is_some_and(|scale| scale > 0.0 && scale <= BYTE_SCALE)
}

/// The layer in front of the others.
fn front(pixels: Pixels, name: String, input: String) -> LayerConfig {
    let rescaling = |scale: Value, offset: Value| ("Rescaling", json!({ "scale": scale, "offset": offset }));
    let (kind, settings) = match pixels {
        Pixels::Unit => rescaling(json!(1.0), json!(0.0)),
        Pixels::Centered => rescaling(json!(2.0), json!(-1.0)),
        Pixels::Bytes => rescaling(json!(255.0), json!(0.0)),
        Pixels::Torch => {
            let scale: Vec<f32> = DEVIATION.iter().map(|deviation| 1.0 / deviation).collect();
            let offset: Vec<f32> = MEAN.iter().zip(DEVIATION).map(|(mean, deviation)| -mean / deviation).collect();
            rescaling(json!(scale), json!(offset))
        }
        Pixels::Caffe => ("Dense", json!({ "units": 3 })),
    };
    let settings = match settings {
        Value::Object(settings) => settings,
        _ => Map::new(),
    };
    let (name, kind, inputs) = (Some(name), Some(kind.to_owned()), Some(vec![input]));
    LayerConfig { name, kind, inputs, settings, trainable: Some(false), ..LayerConfig::default() }
}

fn refused(pixels: Pixels, problem: &str) -> Error {
    Error::model(format!("`pixels = \"{pixels}\"`"), problem, "leave `pixels` out where the model reads no image")
}
