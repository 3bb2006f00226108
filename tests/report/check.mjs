// check.mjs BROWSER PAGE…: what must hold of every page, in both colour schemes, on a desk and on a phone.
//
// - axe-core finds nothing serious or critical, with everything unfolded.
// - The page itself never scrolls sideways.
// - It asks for nothing from the network, and no script fails.
// - Without a script, all tables and plots are there, and the controls that need one are not shown.
// - With one, a table is sorted by a click on its head, and the filter hides allocators and workloads.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const [program, ...files] = process.argv.slice(2);
const VIEWS = [
  { width: 1280, height: 900, colorScheme: "light" },
  { width: 1280, height: 900, colorScheme: "dark" },
  { width: 390, height: 844, colorScheme: "light" },
  { width: 390, height: 844, colorScheme: "dark" },
];

const open = async (browser, file, { width, height, colorScheme }, javaScriptEnabled = true) => {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme, javaScriptEnabled });
  const page = await context.newPage();
  const troubles = [];
  page.on("pageerror", (error) => troubles.push(`a script failed: ${error.message}`));
  page.on("request", (request) => {
    if (!request.url().startsWith("file:")) troubles.push(`the page asks for ${request.url()}`);
  });
  await page.goto(pathToFileURL(file).href);
  return { page, troubles, close: () => context.close() };
};

const accessible = async (browser, file, view) => {
  const { page, troubles, close } = await open(browser, file, view);
  await page.evaluate(() => document.querySelectorAll("details").forEach((each) => (each.open = true)));
  await page.evaluate(axe);
  const { violations, passes } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations", "passes"] }));
  const bad = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
  for (const { id, impact, help, nodes } of bad) {
    console.error(`${impact}: ${id}: ${help}: ${nodes.length} times, first: ${nodes[0].html.slice(0, 160)}`);
  }
  const sideways = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  assert.equal(bad.length, 0, "axe-core has serious or critical findings");
  assert.ok(sideways <= 0, `the page scrolls sideways by ${sideways} pixels`);
  assert.deepEqual(troubles, []);
  const minor = violations.map(({ id, impact }) => `${id} (${impact})`);
  console.log(`  ${view.width} ${view.colorScheme}: ${passes.length} rules passed, lesser findings: ${minor.join(", ") || "none"}`);
  await close();
};

const count = (page) => page.evaluate(() => ({
  tables: document.querySelectorAll("table").length,
  rows: document.querySelectorAll("tbody tr").length,
  plots: document.querySelectorAll("figure svg").length,
}));

const withoutScripts = async (browser, file) => {
  const plain = await open(browser, file, VIEWS[2], false);
  const scripted = await open(browser, file, VIEWS[2]);
  const found = await count(plain.page);
  assert.deepEqual(found, await count(scripted.page), "a script adds or removes content");
  assert.ok(found.plots >= 1 && found.tables >= 1 && found.rows >= 2, `too little: ${JSON.stringify(found)}`);
  assert.equal(await plain.page.locator("thead button").count(), 0, "heads that do nothing");
  const controls = plain.page.locator("input, button");
  for (let index = 0; index < (await controls.count()); index += 1) {
    assert.ok(!(await controls.nth(index).isVisible()), "a control that does nothing is shown");
  }
  const folded = plain.page.locator("details").first();
  await folded.locator("summary").click();
  assert.ok(await folded.evaluate((each) => each.open), "what is folded cannot be unfolded");
  console.log(`  without scripts: ${found.plots} plots, ${found.tables} tables, ${found.rows} rows`);
  await Promise.all([plain.close(), scripted.close()]);
};

const sorts = async (page) => {
  const table = page.locator("table.sortable").first();
  const names = () => table.locator("tbody tr").evaluateAll((rows) => rows.map((row) => row.cells[0].textContent));
  const head = table.locator("thead button").first();
  const before = await names();
  await head.focus();
  await page.keyboard.press("Enter");
  const descending = await names();
  await page.keyboard.press("Enter");
  const ascending = await names();
  assert.deepEqual([...ascending].reverse(), descending);
  assert.deepEqual([...ascending].sort(), [...before].sort(), "sorting loses rows");
  assert.equal(await table.locator("th[aria-sort=ascending]").count(), 1);
};

const filters = async (page) => {
  if ((await page.locator("#filter").count()) === 0) return;
  const box = page.locator("#filter input[type=checkbox]").last();
  const name = await box.getAttribute("value");
  const shown = () => page.locator("main [data-allocator]").evaluateAll(
    (all, name) => all.filter((each) => each.dataset.allocator === name && each.style.display !== "none").length, name);
  const before = await shown();
  assert.ok(before > 3, `the page has little of ${name}`);
  await box.uncheck();
  assert.equal(await shown(), 0, `${name} is still there`);
  await box.check();
  assert.equal(await shown(), before);
  const sections = page.locator("section[data-workload]");
  const first = await sections.first().getAttribute("data-workload");
  await page.locator("#filter input[type=search]").fill(first);
  const visible = await sections.evaluateAll((all) => all.filter((each) => each.style.display !== "none").map((each) => each.dataset.workload));
  assert.ok(visible.includes(first) && visible.every((each) => each.includes(first)), `shown: ${visible}`);
};

const browser = await chromium.launch({ executablePath: program, args: ["--no-sandbox"] });
try {
  for (const file of files) {
    console.log(file);
    for (const view of VIEWS) await accessible(browser, file, view);
    await withoutScripts(browser, file);
    const { page, troubles, close } = await open(browser, file, VIEWS[0]);
    await sorts(page);
    await filters(page);
    assert.deepEqual(troubles, []);
    await close();
    console.log("  sorting and filter work");
  }
} finally {
  await browser.close();
}
