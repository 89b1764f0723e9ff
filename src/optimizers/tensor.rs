//! A parameter in an update that needs the whole tensor.

/// A parameter in the update of a rule without a kernel: one that needs more of a gradient than its own element.
#[derive(Debug)]
pub struct WholeTensor<'a> {
    /// Its name, such as `dense/kernel`.
    pub name: &'a str,
    /// Its shape in its layer.
    pub shape: &'a [usize],
    /// Its gradient, summed over the batch and clipped.
    pub gradient: &'a [f32],
    /// Its values, which the update changes.
    pub parameter: &'a mut [f32],
    /// Its states, in the order of [`state_names`](super::UpdateRule::state_names), each as long as the parameter.
    pub states: Vec<&'a mut [f32]>,
    /// The learning rate, and behind it the [`step_numbers`](super::UpdateRule::step_numbers).
    pub numbers: &'a [f32],
}

impl WholeTensor<'_> {
    /// Takes decoupled weight decay off the parameter.
    pub fn decay(&mut self, weight_decay: f32) {
        let part = weight_decay * self.numbers[0];
        if part != 0.0 {
            self.parameter.iter_mut().for_each(|value| *value -= *value * part);
        }
    }
}
