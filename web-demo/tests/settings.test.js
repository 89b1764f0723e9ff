// Does an address restore what it was made from, on this machine and on another? Needs nothing.

import assert from "node:assert/strict";
import { test } from "node:test";
import { defaults, format, parse } from "../www/settings.js";

/** @import { Data, Info, Told } from "../www/messages.js" */

/**
 * @param {Info["kind"][]} kinds
 * @param {Data} [data]
 * @returns {Told<"hello">}
 */
function hello(kinds, data = "digits") {
  const adapters = kinds.map((kind, index) => ({ index, name: kind, kind, backend: "", driver: "", vendor: 0, device: 0, bus_id: "", requested_as: [] }));
  const models = ["cnn", "small"].map((id) => ({ id, name: id, parameters: 1, has_batch_norm: true }));
  const task = { data, models, classes: [], side: 8, white: 16, outputs: 10, frequencies_loss: null };
  return { type: "hello", version: "", adapters, missing: null, task, most_adapters: 16, test_pixels: new Uint8Array(), test_labels: new Uint8Array() };
}

const TWO_CARDS = hello(["discrete_gpu", "integrated_gpu", "cpu"]);

test("a machine begins with all its GPUs and the processor", () => {
  assert.deepEqual(defaults(TWO_CARDS, 4).adapters, [0, 1, 2]);
  assert.equal(defaults(TWO_CARDS, 4).model, "cnn");
});

test("a machine without a GPU begins with the processor, twice if it has cores for that", () => {
  assert.deepEqual(defaults(hello(["cpu"]), 2).adapters, [0, 0]);
  assert.deepEqual(defaults(hello(["cpu"]), 1).adapters, [0]);
  assert.deepEqual(defaults(hello(["software", "cpu"]), 8).adapters, [1, 1]);
});

test("the defaults need no address", () => {
  assert.equal(format(defaults(TWO_CARDS, 4), TWO_CARDS, 4), "");
  assert.deepEqual(parse("", TWO_CARDS, 4), { settings: defaults(TWO_CARDS, 4), remarks: [] });
});

test("an address restores all settings", () => {
  const settings = {
    ...defaults(TWO_CARDS, 4), model: "small", adapters: [0, 0, 2, 1], throttles: [1, 4, 1, 1.5], batch_size: 50, split: /** @type {const} */ ("even"),
    batch_norm: /** @type {const} */ ("per_shard"), learning_rate: 0.0125, seed: 4294967295, epochs: 7, varied_from: 3, temperature: 1.1,
  };
  const address = format(settings, TWO_CARDS, 4);
  assert.match(address, /adapters=0,0,cpu,1&throttles=1,4,1,1.5/);
  assert.deepEqual(parse(`?${address}`, TWO_CARDS, 4), { settings, remarks: [] });
});

test("other data have settings that suit them, and the address names the data", () => {
  const text = hello(["cpu"], "text");
  const settings = defaults(text, 2);
  assert.deepEqual([settings.data, settings.batch_size], ["text", 32]);
  assert.equal(format(settings, text, 2), "data=text");
  assert.deepEqual(parse("?data=text&batch_size=64", text, 2), { settings: { ...settings, batch_size: 64 }, remarks: [] });
  // They could not be loaded: the run has others, which is said where they are chosen, and settings that suit those.
  const absent = parse("?data=text&model=gru&batch_size=16&learning_rate=0.01&varied_from=2&temperature=1&seed=3&split=even", TWO_CARDS, 4);
  assert.deepEqual(absent, { settings: { ...defaults(TWO_CARDS, 4), seed: 3, split: "even" }, remarks: [] });
});

test("an address from another machine keeps what is here, and says what is not", () => {
  const { settings, remarks } = parse("?adapters=0,3,cpu", hello(["virtual_gpu", "cpu"]), 4);
  assert.deepEqual(settings.adapters, [0, 1]);
  assert.deepEqual(remarks, ["The address names adapter 3, which is not here: ignored."]);
  assert.deepEqual(parse("?adapters=7", TWO_CARDS, 4).settings.adapters, [0, 1, 2]);
});

for (const wrong of [
  "batch_size=0", "batch_size=513", "batch_size=1.5", "batch_size=", "batch_size=a", "seed=-1", "seed=4294967296",
  "learning_rate=0", "learning_rate=NaN", "epochs=-1", "varied_from=-1", "throttles=0.5", "throttles=17", "throttles=1,1,1,2", "throttles=", "split=odd", "data=birds", "temperature=0", "batch_norm=", "model=vgg",
]) {
  test(`${wrong} is refused in words`, () => {
    const { settings, remarks } = parse(`?${wrong}`, TWO_CARDS, 4);
    assert.deepEqual(settings, defaults(TWO_CARDS, 4));
    assert.equal(remarks.length, 1);
    assert.match(remarks[0], new RegExp(`${wrong.split("=")[0]}.*it needs`));
  });
}
