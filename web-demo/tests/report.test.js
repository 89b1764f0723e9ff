// Is the page that `manyhands report` writes accessible, narrow enough, and whole without a network?

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { faultsOf } from "./axe.js";
import { launch, visit } from "./browser.js";
import { manyhands } from "./command.js";

/** @import { Browser } from "playwright-core" */

/** @type {Browser} */
let browser;
const folder = mkdtempSync(path.join(tmpdir(), "manyhands-report-"));

/** Trains into a folder. @param {string} name @param {string[]} words */
function run(name, ...words) {
  manyhands("train", ...words, "--quiet", "--run", path.join(folder, name));
}

before(async () => {
  browser = await launch("no adapter");
  run("digits", "--epochs", "1", "--adapters", "cpu,cpu", "--split", "2:1");
  run("flowers", "examples/settings/table.toml", "--epochs", "3", "--adapters", "cpu");
  run("houses", "examples/settings/regression.toml", "--adapters", "cpu");
  manyhands("report", path.join(folder, "flowers"), path.join(folder, "houses"), "--output", path.join(folder, "comparison.html"));
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

for (const name of ["digits/report.html", "flowers/report.html", "houses/report.html", "comparison.html"]) {
  const address = pathToFileURL(path.join(folder, name)).href;

  test(`${name}: axe finds nothing, in both schemes, on a phone and on a screen`, async () => {
    for (const colorScheme of /** @type {const} */ (["light", "dark"])) {
      for (const width of [390, 1280]) {
        // What axe itself needs is no part of the page.
        const { page, leave } = await visit(browser, address, { colorScheme, bypassCSP: true, viewport: { width, height: 900 } });
        await page.evaluate(() => document.querySelectorAll("details").forEach((it) => { it.open = true; }));
        assert.deepEqual(await faultsOf(page), [], `${colorScheme} ${width}`);
        await leave();
      }
    }
  });

  test(`${name}: nothing is wider than the screen, and nothing is asked of a network`, async () => {
    const { page, said, leave } = await visit(browser, "about:blank");
    /** @type {string[]} */
    const asked = [];
    page.on("request", (request) => { if (!/^(file|data):/.test(request.url())) asked.push(request.url()); });
    for (const width of [320, 390, 768, 1280]) {
      await page.setViewportSize({ width, height: 800 });
      await page.goto(address);
      const needed = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(needed <= width, `${needed} of ${width} pixels`);
    }
    const broken = await page.evaluate(() => [...document.images].filter((image) => image.naturalWidth === 0).length);
    assert.deepEqual([asked, said, broken], [[], [], 0]);
    await leave();
  });
}

test("axe finds a planted fault: the check checks", async () => {
  const { page, leave } = await visit(browser, pathToFileURL(path.join(folder, "comparison.html")).href, { bypassCSP: true });
  await page.evaluate(() => document.querySelector("main")?.append(document.createElement("button")));
  assert.match(String(await faultsOf(page)), /button-name/);
  await leave();
});
