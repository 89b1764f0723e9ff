// Losses of the first training steps on one CPU adapter, with the page's own settings, by the engine itself. Written by
// `UPDATE=1 cargo test --package manyhands-web-demo reference`, and checked by the same test without `UPDATE`.

export const SETTINGS = { model: "cnn", batch_size: 64, learning_rate: 0.002, seed: 0 };
/** @type {number[]} From step 1 on. */
export const LOSSES = [];
