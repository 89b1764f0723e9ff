// Do links from before the lab had an address of its own still lead to it? The engine is a stand-in here.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { defaults } from "../www/settings.js";
import { open } from "./stand-in.js";

/** @import { Told } from "../www/messages.js" */

for (const rest of ["#try-even", "?data=text&seed=3", "?throttles=1,4#try-plug"]) {
  test(`/${rest} leads on to the lab, with all that it says`, async () => {
    // Without its script the lab does not act on its address.
    const { page, leave } = await open("gpus", {}, { "/page.js": "" });
    const lab = page.url();
    await page.goto(new URL(`../${rest}`, lab).href);
    await page.waitForURL(lab + rest);
    await leave();
  });
}

test("all settings of an address are known where it leads on", () => {
  const [, list] = readFileSync(new URL("../www/moved.js", import.meta.url), "utf8").match(/OF_LAB = (\[[^\]]+\])/) ?? [];
  const cpu = /** @type {any} */ ({ index: 0, kind: "cpu" });
  const hello = /** @type {Told<"hello">} */ ({ adapters: [cpu], task: { data: "digits", models: [{ id: "cnn" }] } });
  assert.deepEqual(JSON.parse(list).sort(), Object.keys(defaults(hello, 2)).sort());
});
