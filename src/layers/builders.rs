//! The methods that set one setting each: layers that have a setting of the same name have the same method.

/// Methods of a layer, in its `impl`: `builders!(same, strides, activation, no_bias);`.
macro_rules! builders {
    ($($name:ident),+) => { $(builders!(@ $name);)+ };
    (@ same) => {
        /// Pads with zeros, so that a window of stride 1 gives an output of the size of the input.
        #[must_use]
        pub fn same(mut self) -> Self {
            self.padding = Padding::Same;
            self
        }
    };
    (@ strides) => {
        /// Sets the steps of the window, down and across.
        #[must_use]
        pub fn strides(mut self, strides: [usize; 2]) -> Self {
            self.strides = strides;
            self
        }
    };
    (@ dilation_rate) => {
        /// Sets the pixels from one weight of the window to the next, down and across.
        #[must_use]
        pub fn dilation_rate(mut self, dilation_rate: [usize; 2]) -> Self {
            self.dilation_rate = dilation_rate;
            self
        }
    };
    (@ activation) => {
        /// Applies an activation to the sum.
        #[must_use]
        pub fn activation(mut self, activation: Activation) -> Self {
            self.activation = activation;
            self
        }
    };
    (@ no_bias) => {
        /// Leaves the bias out: before a batch normalization it would have no effect.
        #[must_use]
        pub fn no_bias(mut self) -> Self {
            self.use_bias = false;
            self
        }
    };
    (@ causal) => {
        /// No position sees a later one.
        #[must_use]
        pub fn causal(mut self) -> Self {
            self.use_causal_mask = true;
            self
        }
    };
    (@ documents) => {
        /// Takes the number of each position's document as the mask: a query sees only keys of its own document.
        #[must_use]
        pub fn documents(mut self) -> Self {
            self.documents = true;
            self
        }
    };
    (@ dropout) => {
        /// Drops a part of the probabilities in training.
        #[must_use]
        pub fn dropout(mut self, rate: f32) -> Self {
            self.dropout = rate;
            self
        }
    };
    (@ kernel_initializer) => {
        /// Sets the initial values of the kernel.
        #[must_use]
        pub fn kernel_initializer(mut self, initializer: Initializer) -> Self {
            self.kernel_initializer = initializer;
            self
        }
    };
}

pub(super) use builders;
