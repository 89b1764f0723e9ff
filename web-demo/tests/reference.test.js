// Are differences from the reference those of the steps that it holds for? Needs nothing.

import assert from "node:assert/strict";
import { test } from "node:test";
import { EPOCHS, REFERENCES } from "../www/reference-losses.js";
import { Reference } from "../www/reference.js";

/** @import { Settings } from "../www/messages.js" */

const [{ settings: SETTINGS, losses: LOSSES }, { settings: OF_TEXT, losses: LOSSES_OF_TEXT }] = REFERENCES;
/** @type {Omit<Settings, "model" | "batch_size" | "learning_rate" | "seed">} */
const REST = { data: "digits", temperature: 0.6, throttles: [], adapters: [0, 0], split: "learned", batch_norm: "whole_batch", epochs: 0, varied_from: EPOCHS + 1 };
/** @type {Settings} */
const DEFAULTS = { ...SETTINGS, ...REST };

/** @param {Partial<Settings>} [settings] */
function begun(settings = {}) {
  const reference = new Reference();
  reference.begin({ ...DEFAULTS, ...settings });
  return reference;
}

test("the largest difference is kept, and said beside that of the last step", () => {
  const reference = begun({ split: "even", batch_norm: "per_shard", adapters: [0, 0, 0] });
  reference.take(1, LOSSES[0] + 0.02);
  reference.take(2, LOSSES[1] - 0.00001);
  assert.ok(Math.abs((reference.most ?? NaN) - 0.02) < 1e-9);
  assert.match(reference.says, /Largest difference: 0\.020; at step 2: 1\.0e-5\.$/);
});

for (const [changed, name] of /** @type {[Partial<Settings>, string][]} */ ([
  [{ seed: 1 }, "seed"], [{ data: "fashion" }, "kind of data"], [{ batch_size: 32 }, "batch size"], [{ model: "small" }, "network"], [{ learning_rate: 0.01 }, "learning rate"],
  [{ varied_from: EPOCHS }, "choice of varied epochs"],
])) {
  test(`for another ${name} there is no reference, and that is said`, () => {
    const reference = begun(changed);
    reference.take(1, 9);
    assert.equal(reference.at(1), null);
    assert.equal(reference.most, null, "nothing was compared");
    assert.equal(reference.says, `No reference was recorded for this ${name}.`);
  });
}

test("a text has a reference of its own", () => {
  const text = begun({ ...OF_TEXT, data: "text", varied_from: 1 });
  assert.equal(text.at(2), LOSSES_OF_TEXT[1]);
  const other = begun({ ...OF_TEXT, data: "text", model: "wide_gru" });
  assert.equal(other.says, "No reference was recorded for this network.");
});

test("a change in mid-run ends it, but not one of the split or of batch-norm", () => {
  const reference = begun();
  reference.take(1, LOSSES[0]);
  reference.change({ split: "even" }, 1);
  reference.change({ batch_norm: "per_shard" }, 1);
  reference.take(2, LOSSES[1]);
  reference.change({ batch_size: 32 }, 2);
  reference.take(3, 9);
  assert.equal(reference.at(3), null);
  assert.equal(reference.most, 0);
  assert.match(reference.says, /It ends at step 2, where the batch size was changed\.$/);
  reference.begin(DEFAULTS);
  assert.equal(reference.at(3), LOSSES[2]);
});

test("it ends with what was recorded", () => {
  const reference = begun();
  reference.take(LOSSES.length, LOSSES[LOSSES.length - 1]);
  reference.take(LOSSES.length + 1, 9);
  assert.equal(reference.most, 0);
  assert.match(reference.says, new RegExp(`It was recorded up to step ${LOSSES.length}\\.$`));
});
