//! Changes of colour.

/// Multiplies the distance of each pixel from the mean of its channel.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "images have fewer than 2^52 pixels, and a mean is as large as they are"
)]
pub fn contrast(image: &mut [f32], channels: usize, factor: f32, [low, high]: [f32; 2]) {
    let pixels = (image.len() / channels.max(1)) as f64;
    for channel in 0..channels {
        let values = image.iter().skip(channel).step_by(channels);
        let mean = (values.map(|value| f64::from(*value)).sum::<f64>() / pixels) as f32;
        for value in image.iter_mut().skip(channel).step_by(channels) {
            *value = ((*value - mean) * factor + mean).clamp(low, high);
        }
    }
}

/// Adds a number to each value.
pub fn brightness(image: &mut [f32], delta: f32, [low, high]: [f32; 2]) {
    image.iter_mut().for_each(|value| *value = (*value + delta).clamp(low, high));
}

/// Multiplies the saturation of pixels of three channels, from 0 to 1: hue and value of HSV stay.
pub fn saturation(image: &mut [f32], factor: f32) {
    for pixel in image.chunks_exact_mut(3) {
        let value = pixel.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let least = pixel.iter().copied().fold(f32::INFINITY, f32::min);
        // (value - channel) / value grows with the saturation, in proportion, for each channel.
        if value > 0.0 && least < value {
            let old = (value - least) / value;
            let part = (old * factor).clamp(0.0, 1.0) / old;
            pixel.iter_mut().for_each(|channel| *channel = value - (value - *channel) * part);
        }
    }
}
