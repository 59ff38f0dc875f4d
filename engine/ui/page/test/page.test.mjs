// The page in headless Chromium, on a real run of the quickstart that goes on meanwhile, and on samples that were made
// to do harm. Screenshots go to SCREENSHOTS, when that is set.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { appendFileSync, cpSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, test } from "node:test";
import AxeBuilder from "@axe-core/playwright";
import { chromium } from "playwright-core";

const recipe = resolve(process.env.RECIPE), shots = process.env.SCREENSHOTS;
const folder = mkdtempSync(join(tmpdir(), "recipe-ui-"));
const samples = join(folder, ".recipe/quickstart/samples/trajectories.builtin.default");
let browser, base, run, server;

function program(args) {
  const p = spawn(recipe, args, { cwd: folder, stdio: ["ignore", "pipe", "inherit"] });
  p.text = "";
  p.stdout.on("data", (d) => { p.text += d; });
  p.ended = new Promise((done) => p.on("exit", done));
  return p;
}

async function until(what, done) {
  for (let i = 0; i < 600; i++) {
    const v = await done();
    if (v) return v;
    await new Promise((r) => setTimeout(r, 100));
  }
  assert.fail(`waited 60 s for ${what}`);
}

before(async () => {
  writeFileSync(join(folder, "quickstart.hcl"), readFileSync("../../../recipes/quickstart.hcl", "utf8") + `
evaluation "held_out" {
  environment = environment.arithmetic.sums
  every       = 100
  tasks       = 100
}
`);
  run = program(["apply", "--auto-approve", "quickstart.hcl"]);
  await until("samples", () => { try { return readdirSync(samples).length; } catch { return false; } });
  server = program(["ui"]);
  base = (await until("the address", () => server.text.match(/http:\S+/)))[0];
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });
});

after(async () => {
  await browser?.close();
  server?.kill("SIGINT");
  if (run && run.exitCode === null) run.kill("SIGINT");
  await Promise.all([run?.ended, server?.ended]);
  rmSync(folder, { recursive: true, force: true });
});

// open shows a view; every message of the browser about an error fails the test.
async function open(path, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, ...options });
  const page = await context.newPage();
  page.problems = [];
  page.on("console", (m) => { if (m.type() === "error") page.problems.push(m.text()); });
  page.on("pageerror", (e) => page.problems.push(e.message));
  page.on("dialog", (d) => { page.problems.push(`dialog: ${d.message()}`); d.dismiss(); });
  await page.goto(base + path);
  return page;
}

// asked is what the server answers a browser that has opened the page.
async function asked(path) {
  const page = await open("");
  const answer = await (await page.request.get(new URL(path, page.url()).href)).json();
  await close(page);
  return answer;
}

async function close(page) {
  assert.deepEqual(page.problems, []);
  await page.context().close();
}

test("a run is followed while it happens", async () => {
  const page = await open("");
  await page.getByText(/step \d+ of 300/).first().waitFor();
  const step = async () => Number((await page.locator("progress").getAttribute("value")) ?? 0);
  const first = await step();
  await until("a later step", async () => (await step()) > first);
  await page.locator(".samples li").first().waitFor();
  assert.ok((await page.locator(".graph .block").count()) >= 5);
  await page.locator(".pill.completed").waitFor({ timeout: 120_000 });
  await close(page);
});

test("a block that does not answer is shown as silent", async () => {
  const page = await open("");
  await page.route(/api\/runs\/quickstart$/, async (route) => {
    const response = await route.fetch(), summary = await response.json();
    const block = summary.blocks.find((b) => b.kind === "trainer");
    block.silent_since = new Date(Date.parse(summary.now) - 75_000).toISOString();
    await route.fulfill({ response, json: summary });
  });
  await page.reload();
  await page.getByText(/trainer\.tiny\.policy: its process has not answered for 1 min 15 s\./).waitFor();
  await page.locator(".graph .block.silent").getByText(/no answer since/).waitFor();
  assert.equal(await page.locator(".graph .block.silent").count(), 1);
  await close(page);
});

test("curves are drawn, zoomed, smoothed and filtered", async () => {
  const page = await open("#/quickstart/curves");
  const plot = page.locator(".plot").first();
  await page.locator("canvas").first().waitFor();
  const painted = () => page.evaluate(() => {
    const c = document.querySelector("canvas");
    return c.getContext("2d").getImageData(0, 0, c.width, c.height).data.filter((v, i) => i % 4 === 3 && v > 200).length;
  });
  await until("a curve", async () => (await painted()) > 500);
  const asked = page.waitForRequest(/series.*from=/);
  const box = await plot.boundingBox();
  await page.mouse.move(box.x + 150, box.y + 60);
  await page.mouse.down();
  await page.mouse.move(box.x + 260, box.y + 60, { steps: 5 });
  await page.mouse.up();
  await asked;
  await page.getByRole("button", { name: "Show all" }).click();
  const keyed = page.waitForRequest(/series.*from=/);
  await plot.focus();
  await page.keyboard.press("+");
  await keyed;
  await page.getByRole("searchbox").fill("entropy");
  await until("one chart", async () => (await page.locator(".chart").count()) === 1);
  assert.match(page.url(), /metric=entropy/);
  await close(page);
});

test("samples are filtered, opened and colored, and links are stable", async () => {
  const page = await open("#/quickstart/samples?state=mixed&first_step=200");
  await page.locator("tbody tr").first().waitFor();
  const steps = await page.locator("tbody tr td:nth-child(5)").allTextContents();
  assert.ok(steps.length > 10 && steps.every((s) => Number(s) >= 200), steps.join());
  await page.locator("tbody tr a").first().click();
  await page.locator(".tokens span").first().waitFor();
  await page.locator("tbody tr a").nth(3).click();
  await until("the fourth completion", () => page.url().includes("c=3"));
  await until("colors", () => page.locator(".tokens span").evaluateAll((l) => l.some((s) => s.style.background.includes("rgba"))));
  assert.ok((await page.locator(".tokens .masked").count()) > 0);
  await page.getByLabel("Color tokens by").selectOption("ratio");
  await page.locator(".tokens span:not(.masked)").first().hover();
  await page.getByText(/log-probability of the sampler -?\d/).waitFor();
  const again = await open(new URL(page.url()).hash);
  await again.getByRole("heading", { name: "Completion 3" }).waitFor();
  assert.equal(await again.getByLabel("Color tokens by").inputValue(), "ratio");
  await close(again);
  await close(page);
});

test("a prompt is shown at two versions side by side", async () => {
  const lines = readFileSync(join(samples, "00000001.jsonl"), "utf8").trim().split("\n").map((l) => JSON.parse(l)).filter((l) => l.type === "group");
  let id;
  for (const l of lines.slice(0, 40)) {
    const same = await asked(`api/runs/quickstart/samples/trajectories.builtin.default/${l.id}/same`);
    if (same.groups.some((g) => g.versions?.[0] !== l.versions?.[0])) { id = l.id; break; }
  }
  assert.ok(id, "no prompt came twice among the first 40");
  const page = await open(`#/quickstart/samples/trajectories.builtin.default/${id}`);
  const choice = page.getByLabel("Beside this group");
  await choice.focus();
  await page.keyboard.press("ArrowDown");
  await page.locator(".beside section").nth(1).waitFor();
  assert.match(page.url(), /with=\d+/);
  assert.ok((await page.locator(".beside section").first().locator("li").count()) > 1);
  if (shots) await page.screenshot({ path: join(shots, "same-prompt.png"), fullPage: true });
  await close(page);
});

// focused is the element that has the focus: what it is called, and whether that can be seen.
const focused = (page) => page.evaluate(() => {
  const e = document.activeElement, style = getComputedStyle(e), box = e.getBoundingClientRect();
  return {
    name: (e.getAttribute("aria-label") ?? e.labels?.[0]?.textContent ?? e.textContent).trim().slice(0, 40), tag: e.tagName,
    outlined: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1,
    shown: box.width > 1 && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
  };
});

// tabTo presses Tab until the focus is on an element that fits; all on the way there can be seen.
async function tabTo(page, what, fits) {
  for (let i = 0; i < 120; i++) {
    await page.keyboard.press("Tab");
    const f = await focused(page);
    if (f.tag !== "BODY") assert.ok(f.outlined && f.shown, `the focus cannot be seen on ${JSON.stringify(f)}`);
    if (fits(f)) return f;
  }
  assert.fail(`Tab does not reach ${what}`);
}

test("the page is used with the keyboard alone", async () => {
  const page = await open("#/quickstart/overview");
  await page.locator(".samples li").first().waitFor();
  const order = [];
  for (let i = 0; i < 12; i++) {
    await page.keyboard.press("Tab");
    order.push((await focused(page)).name);
  }
  assert.deepEqual(order.slice(0, 11), ["Skip to content", "recipe: all runs", "Run", "Keys", "Overview", "Curves", "Evaluations", "Samples", "Timeline", "Logs", "Plan"]);
  await page.reload();
  await page.locator(".samples li").first().waitFor();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");

  await tabTo(page, "a chart", (f) => f.name.startsWith("Reward."));
  await page.keyboard.press("?");
  const help = page.getByRole("dialog", { name: "Keys" });
  await help.getByText("the next and the previous group").waitFor();
  assert.ok(await page.evaluate(() => document.querySelector("dialog").contains(document.activeElement)));
  await page.keyboard.press("3"); // the page below does not get it
  await page.keyboard.press("Escape");
  await help.waitFor({ state: "hidden" });
  assert.match((await focused(page)).name, /^Reward\./);
  assert.match(page.url(), /overview$/);
  const zoomed = page.waitForRequest(/series.*from=/);
  await page.keyboard.press("+");
  await zoomed;
  const whole = page.waitForRequest((r) => r.url().includes("series") && !r.url().includes("from="));
  await page.keyboard.press("Escape");
  await whole;

  for (const [key, view] of [["2", "curves"], ["4", "timeline"], ["5", "logs"], ["6", "config"], ["3", "samples"]]) {
    await page.keyboard.press(key);
    await page.waitForURL((u) => u.hash.endsWith("/" + view));
  }
  await page.locator("tbody tr").first().waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("1"); // a digit in a field is no key of the page
  await page.keyboard.press("Enter");
  await page.waitForURL(/samples\?text=1/);
  await tabTo(page, "a group", (f) => f.tag === "A" && f.name.includes("="));
  await page.keyboard.press("Enter");
  const group = async () => Number((await page.getByRole("heading", { name: /^Group/ }).innerText()).match(/\d+/)[0]);
  const first = await group();
  await page.keyboard.press("p");
  await until("the group before it", async () => (await group()) === first - 1);
  await page.keyboard.press("n");
  await until("the group again", async () => (await group()) === first);
  await page.locator(".tokens span").first().waitFor();
  await tabTo(page, "completion 2", (f) => f.tag === "A" && f.name === "2");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Completion 2" }).waitFor();
  await tabTo(page, "the colors", (f) => f.tag === "SELECT" && f.name.startsWith("Color tokens by"));
  await page.keyboard.press("ArrowDown");
  await page.waitForURL(/by=ratio/);
  await tabTo(page, "the tokens", (f) => f.tag === "SPAN");
  const status = page.locator(".token");
  await status.getByText(/^token \d+:/).waitFor();
  const before = await status.innerText();
  await page.keyboard.press("ArrowRight");
  await until("the next token", async () => (await status.innerText()) !== before);
  await close(page);
});

test("the timeline has activities and the machine, the graph says what blocks do, the plan has the lineage", async () => {
  const events = () => readdirSync(join(folder, ".recipe/quickstart/events")).map((f) => readFileSync(join(folder, ".recipe/quickstart/events", f), "utf8")).join("");
  const page = await open("#/quickstart/timeline");
  await page.getByText("Shares of the time shown").click();
  assert.match(events(), /"type":"machine"/); // the run took longer than an interval
  await page.locator("td", { hasText: /^trainer\.\S+ activity$/ }).waitFor();
  await page.locator(".chart", { hasText: "Memory of machines" }).locator("canvas").waitFor();
  await page.goto(base + "#/quickstart/config");
  await page.getByRole("heading", { name: "Lineage" }).waitFor();
  await page.getByText("Models, files and plugins of each block").click();
  await page.locator("details[open] pre.config", { hasText: "trainer.tiny" }).waitFor();
  await close(page);
});

test("every view is accessible and fits, in both color schemes and on a phone", async () => {
  const group = JSON.parse(readFileSync(join(samples, "00000001.jsonl"), "utf8").split("\n")[0]).id;
  const views = ["overview", "curves", "evaluations", "samples", `samples/trajectories.builtin.default/${group}`, "timeline", "logs", "config"];
  const found = [];
  for (const [colorScheme, width] of [["light", 1280], ["dark", 390]]) for (const view of views) {
    const page = await open(`#/quickstart/${view}`, { colorScheme, viewport: { width, height: 860 } });
    await page.locator("main > *").nth(1).waitFor();
    await page.waitForLoadState("load");
    const { violations } = await new AxeBuilder({ page }).analyze();
    for (const v of violations) if (["serious", "critical"].includes(v.impact)) {
      found.push(`${view}, ${colorScheme}, ${width} px: ${v.id}: ${v.nodes[0].html} ${v.nodes[0].failureSummary}`);
    }
    const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    if (over > 1) found.push(`${view}, ${colorScheme}: ${over} px wider than ${width} px`);
    if (shots) {
      mkdirSync(shots, { recursive: true });
      await page.waitForFunction(() => document.querySelectorAll(".chart").length === 0 || document.querySelector(".chart canvas"));
      await page.screenshot({ path: join(shots, `${view.split("/").slice(0, 2).join("-")}-${colorScheme}-${width}.png`) });
    }
    await close(page);
  }
  assert.deepEqual(found, []);
});

test("evaluations have a curve with its interval, and the tasks that flipped", async () => {
  const page = await open("#/quickstart/evaluations");
  const section = page.getByRole("region", { name: "Evaluation held_out" });
  await section.locator("canvas").waitFor();
  await until("four results", async () => (await section.getByRole("region", { name: "Results of held_out" }).locator("tbody tr").count()) === 4);
  const blue = await section.locator("canvas").evaluate((c) => { // the band is drawn: many points of a light blue
    const { data } = c.getContext("2d").getImageData(0, 0, c.width, c.height);
    let n = 0;
    for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 20 && data[i + 3] < 90 && data[i + 2] > data[i] + 50) n++;
    return n / (c.width * c.height);
  });
  assert.ok(blue > 0.01, `the band covers ${blue} of the chart`);
  await section.getByText(/^Solved by the later one alone: \d+/).waitFor();
  await section.getByLabel("Compare the first result with that of step").selectOption("100");
  await page.getByText("Task by task: step 0 and step 100").waitFor();
  assert.match(page.url(), /name=held_out&step=100/);
  await page.goto(base + "#/quickstart/curves");
  await page.locator(".chart", { hasText: "Held-out tasks" }).locator("canvas").waitFor();
  await close(page);
});

test("several runs are compared", async () => {
  for (const name of ["second", "third"]) cpSync(join(folder, ".recipe/quickstart"), join(folder, ".recipe", name), { recursive: true });
  const page = await open("#/quickstart/curves?metric=reward");
  const legend = page.locator(".chart .legend").first();
  await page.getByLabel(/^Compare with/).selectOption("second");
  await page.getByLabel(/^Compare with/).selectOption("third");
  for (const name of ["quickstart", "second", "third"]) await legend.getByText(`${name} trainer policy`).waitFor();
  assert.match(page.url(), /with=second%2Cthird/);
  if (shots) await page.screenshot({ path: join(shots, "compared.png") });
  await page.getByRole("button", { name: "Do not compare with second" }).click();
  await until("two runs", async () => !(await legend.innerText()).includes("second"));
  await close(page);
});

test("all runs are in one table, and open from there", async () => {
  for (const [colorScheme, width] of [["light", 1280], ["dark", 390]]) {
    const page = await open("#/", { colorScheme, viewport: { width, height: 860 } });
    await until("three runs", async () => (await page.locator("tbody tr").count()) === 3);
    assert.match(await page.locator("tbody tr", { hasText: "second" }).innerText(), /second\s+completed\s+300 of 300\s+300/);
    const { violations } = await new AxeBuilder({ page }).analyze();
    assert.deepEqual(violations.filter((v) => ["serious", "critical"].includes(v.impact)).map((v) => v.help), []);
    await page.getByRole("link", { name: "second" }).click();
    await page.waitForURL(/#\/second\/overview$/);
    // For a moment the table of all runs is still there.
    await until("one run", async () => (await page.locator(".pill.completed").count()) === 1);
    await close(page);
  }
});

test("the curves of a run have what its blocks measure", async () => {
  const page = await open("#/quickstart/curves");
  await page.locator("canvas").first().waitFor();
  const titles = await page.locator(".chart strong").allTextContents();
  for (const wanted of ["Reward", "Loss", "KL divergence", "Throughput", "Entropy", "Gradient norm", "Length", "Staleness", "Seconds a step", "Weight sync", "Sampler and trainer apart"]) {
    assert.ok(titles.some((t) => t.startsWith(wanted)), `${wanted} is not among ${titles.join(", ")}`);
  }
  await close(page);
});

test("the log of a block is filtered, and the plan says what was created", async () => {
  const page = await open("#/quickstart/logs");
  const lines = page.locator(".log li");
  await lines.first().waitFor();
  const all = await lines.count();
  await page.getByLabel("Block").selectOption("trainer.tiny.policy");
  await until("fewer lines", async () => (await lines.count()) < all && (await lines.count()) > 0);
  assert.ok((await lines.locator("b").allTextContents()).every((t) => t.includes("trainer")));
  await page.getByLabel("Contains").fill("completed");
  await until("its lines alone", async () => {
    const texts = await lines.allTextContents();
    return texts.length > 0 && texts.every((t) => t.includes("completed"));
  });
  assert.match(page.url(), /grep=completed/);
  await page.goto(base + "#/quickstart/config");
  await page.getByText("trainer.tiny.policy").first().waitFor();
  assert.match(await page.locator("main").innerText(), /create/);
  await close(page);
});

// zstdFrame is a zstd frame of blocks that are not compressed (RFC 8878).
function zstdFrame(body) {
  const parts = [Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58])]; // magic, no options, a window of 2 MiB
  for (let at = 0; at === 0 || at < body.length; at += 1 << 17) {
    const block = body.subarray(at, at + (1 << 17)), head = Buffer.alloc(3);
    head.writeUIntLE((block.length << 3) | (at + (1 << 17) >= body.length ? 1 : 0), 0, 3);
    parts.push(head, block);
  }
  return Buffer.concat(parts);
}

test("an evaluation's completions are shown with everything beside the score", async () => {
  cpSync(join(folder, ".recipe/quickstart"), join(folder, ".recipe/judged"), { recursive: true, filter: (f) => !/samples.evaluation[^/]*$/.test(f) });
  const record = join(folder, ".recipe/judged/samples/evaluation.20260102T030405Z.sums"), bodies = [], lines = [];
  mkdirSync(record, { recursive: true });
  const said = (text) => [{ role: "user", content: "1+1=" }, { role: "assistant", content: text }];
  let offset = 0;
  [[1, 1], [0, 0]].forEach((scores, i) => {
    const overrides = [{ metrics: { "reward/exact": 0.25, "reward/brief": 0.75 }, finish_reason: "length" }, { failed: "the judge is away" }];
    const frame = zstdFrame(Buffer.from(JSON.stringify({ tokens: [[1, 2], [1, 3]], masks: [[-100, 2], [-100, 3]], scores, overrides, group_overrides: { expected: "the number two" }, messages: [said("2"), said("3")] })));
    bodies.push(frame);
    lines.push(JSON.stringify({ v: 1, type: "group", id: i + 1, time: new Date().toISOString(), environment: "sums (held out)", sequences: 2, tokens: 4, scores, offset, bytes: frame.length }) + "\n");
    offset += frame.length;
  });
  writeFileSync(join(record, "00000001.zst"), Buffer.concat(bodies));
  writeFileSync(join(record, "00000001.jsonl"), lines.join(""));
  const page = await open("#/judged/samples?state=evaluation");
  await until("two groups", async () => (await page.locator("tbody tr").count()) === 2);
  const heights = (row) => page.locator("tbody tr").nth(row).locator(".bars i").evaluateAll((l) => l.map((i) => i.offsetHeight));
  const [zeros, ones] = [await heights(0), await heights(1)];
  assert.ok(Math.min(...ones) > 2 * Math.max(...zeros), `bars of 1 are ${ones} high, of 0 ${zeros}`);
  await page.goto(base + "#/judged/samples");
  await page.getByRole("link", { name: "of evaluations" }).click();
  await until("the two groups again", async () => (await page.locator("tbody tr").count()) === 2);
  await page.locator("tbody tr a").nth(1).click();
  await page.getByText("Expected answer: the number two").waitFor();
  assert.deepEqual((await page.locator("thead th").allTextContents()).slice(1, 4), ["Score", "reward/brief", "reward/exact"]);
  const cells = await page.locator("tbody tr").first().locator("td").allTextContents();
  assert.deepEqual([cells[1], cells[2], cells[3], cells[6]], ["1", "0.750", "0.250", "length"]);
  assert.match(await page.locator("tbody tr").nth(1).innerText(), /Failed:\s+the judge is away/);
  if (shots) await page.screenshot({ path: join(shots, "evaluation.png"), fullPage: true });
  await close(page);
});

test("labels of axes are not cut, and the legend is readable in the dark", async () => {
  const dir = join(folder, ".recipe/wide");
  cpSync(join(folder, ".recipe/quickstart/run.json"), join(dir, "run.json"));
  mkdirSync(join(dir, "events"), { recursive: true });
  const events = [JSON.stringify({ v: 1, seq: 1, time: new Date().toISOString(), type: "run_started" })];
  for (let i = 1; i <= 30; i++) events.push(JSON.stringify({ v: 1, seq: i + 1, time: new Date().toISOString(), type: "metrics", address: "trainer.tiny.policy", step: i, metrics: { reward: 123456789012345 * (1 + i / 20), loss: -0.0000012 * i } }));
  events.push(JSON.stringify({ v: 1, seq: 32, time: new Date().toISOString(), type: "machine", metrics: { cpu: 1, memory_bytes: 25e9, memory_used_bytes: 1e9 } }));
  writeFileSync(join(dir, "events/00000000000000000001.jsonl"), events.join("\n") + "\n");
  const page = await open("#/wide/curves?all=1", { colorScheme: "dark" });
  await page.locator("canvas").first().waitFor();
  // No label is drawn left of the canvas.
  const cut = () => page.evaluate(() => [...document.querySelectorAll(".chart canvas")].map((c) => {
    const data = c.getContext("2d").getImageData(0, 0, 2, c.height).data;
    return data.some((v, i) => i % 4 === 3 && v > 60);
  }));
  await until("two charts", async () => (await page.locator(".chart canvas").count()) >= 2);
  await new Promise((r) => setTimeout(r, 500));
  assert.ok(!(await cut()).includes(true), `labels are cut: ${await cut()}`);
  if (shots) await page.screenshot({ path: join(shots, "wide.png") });
  // One value alone: its axis shows a minute, not years.
  await page.addInitScript(() => {
    const write = CanvasRenderingContext2D.prototype.fillText;
    globalThis.written = [];
    CanvasRenderingContext2D.prototype.fillText = function (text, ...at) { globalThis.written.push(text); return write.call(this, text, ...at); };
  });
  await page.goto(base + "#/wide/timeline");
  await page.reload();
  const written = () => page.evaluate(() => globalThis.written);
  await until("the axis of the machine", async () => (await written()).includes("20 G"));
  assert.ok(!(await written()).some((t) => /^(May|Nov)$/.test(t)), `${await written()}`);
  await page.goto(base + "#/quickstart/timeline");
  await page.locator(".legend .swatch").first().waitFor();
  const edges = await page.locator(".legend .swatch").evaluateAll((l) => l.map((s) => getComputedStyle(s).boxShadow));
  assert.ok(edges.every((e) => e !== "none"), edges.join());
  // The legend names what is drawn: every phase that a block was in, and nothing else.
  const { lanes } = await asked("api/runs/quickstart/timeline?points=800");
  const drawn = new Set(lanes.flatMap((l) => l.spans.map((p) => p.what)));
  assert.ok(drawn.has("starting") && !drawn.has("failed"), [...drawn].join());
  const named = await page.locator("p.controls .legend > span").allTextContents();
  assert.deepEqual(named.toSorted(), [...drawn].sort());
  await page.getByText(/light ones checkpoints/).waitFor();
  if (shots) await page.screenshot({ path: join(shots, "timeline-dark.png") });
  await close(page);
  rmSync(dir, { recursive: true, force: true });
});

test("hostile samples do nothing and are shown", async () => {
  const bodies = [], lines = [];
  const long = "word ".repeat(2 << 20); // 10 MB
  const texts = ["<script>alert(1)</script><img src=x onerror=alert(2)>", "\u001b[2J\u001b]0;title\u0007", "\u202etxet\u2066", long, "javascript:alert(3)"];
  let offset = 0;
  texts.forEach((text, i) => {
    const body = JSON.stringify({ tokens: [[1, 2]], masks: [[-100, 2]], scores: [1], messages: [[{ role: text.slice(0, 50), content: text }, { role: "assistant", content: text }]] });
    const frame = zstdFrame(Buffer.from(body));
    bodies.push(frame);
    lines.push(JSON.stringify({ v: 1, type: "group", id: 900000 + i, time: new Date().toISOString(), environment: text.slice(0, 60), sequences: 1, tokens: 2, scores: [1], offset, bytes: frame.length }) + "\n");
    offset += frame.length;
  });
  writeFileSync(join(samples, "00000099.zst"), Buffer.concat(bodies));
  appendFileSync(join(samples, "00000099.jsonl"), lines.join(""));
  const list = await open("#/quickstart/samples");
  await list.getByLabel("Environment").selectOption(texts[0].slice(0, 60)); // the run may still record newer groups
  await list.locator("td .text", { hasText: "<script>alert(1)</script>" }).first().waitFor();
  await close(list);
  for (let i = 0; i < texts.length; i++) {
    const page = await open(`#/quickstart/samples/trajectories.builtin.default/${900000 + i}`);
    await page.locator(".conversation pre").first().waitFor();
    assert.equal(await page.locator("main script, main img").count(), 0);
    const shown = await page.locator("main").innerText();
    assert.ok(!/[\u001b\u202e\u2066]/.test(shown), "control characters reach the page");
    assert.ok(shown.length < 1_000_000);
    await close(page);
  }
});

// large makes a run of 1,000,000 points, in ten curves, and 100,000 groups.
function large() {
  const dir = join(folder, ".recipe/large"), record = join(dir, "samples/trajectories.builtin.default");
  cpSync(join(folder, ".recipe/quickstart/run.json"), join(dir, "run.json"));
  mkdirSync(join(dir, "events"), { recursive: true });
  mkdirSync(record, { recursive: true });
  const began = Date.now() - 100_000_000, time = (i) => new Date(began + i * 1000).toISOString();
  const events = [JSON.stringify({ v: 1, seq: 1, time: time(0), type: "run_started" })];
  for (let i = 1; i <= 100_000; i++) {
    const metrics = { reward: i === 54_321 ? 9 : Math.sin(i / 5000) / 2 };
    for (let k = 1; k < 10; k++) metrics[`curve_${k}`] = (i * k) % 1000;
    events.push(JSON.stringify({ v: 1, seq: i + 1, time: time(i), type: "metrics", address: "trainer.tiny.policy", step: i, metrics }));
  }
  writeFileSync(join(dir, "events/00000000000000000001.jsonl"), events.join("\n") + "\n");
  const bodies = [], lines = [];
  let offset = 0;
  for (let i = 1; i <= 100_000; i++) {
    const side = (answer) => [{ role: "user", content: `${i}+1=` }, { role: "assistant", content: answer }];
    const body = zstdFrame(Buffer.from(JSON.stringify({ tokens: [[1, 2], [1, 3]], masks: [[-100, 2], [-100, 3]], scores: [1, 0], messages: [side(String(i + 1)), side("0")] })));
    bodies.push(body);
    lines.push(JSON.stringify({ v: 1, type: "group", id: i, time: time(i), environment: "sums", sequences: 2, tokens: 4, scores: [1, 0], offset, bytes: body.length }));
    offset += body.length;
  }
  writeFileSync(join(record, "00000001.zst"), Buffer.concat(bodies));
  writeFileSync(join(record, "00000001.jsonl"), lines.join("\n") + "\n");
}

test("what is being typed stays when the list of samples is drawn anew", async () => {
  const page = await open("#/quickstart/samples");
  await page.locator("tbody tr").first().waitFor();
  await page.getByLabel("Text").fill("half a wo");
  await page.evaluate(() => { location.hash = "#/quickstart/samples?state=mixed"; });
  await until("the other list", async () => (await page.getByRole("combobox", { name: "Groups" }).inputValue()) === "mixed");
  assert.equal(await page.getByLabel("Text").inputValue(), "half a wo");
  await close(page);
});

test("a run of 1,000,000 points and 100,000 groups is shown in pieces", async (t) => {
  large();
  const page = await open("#/large/curves?all=1");
  const sizes = [];
  page.on("response", async (r) => { if (/series|samples/.test(r.url())) sizes.push((await r.body().catch(() => "")).length); });
  await page.evaluate(() => { window.longest = 0; new PerformanceObserver((l) => l.getEntries().forEach((e) => { window.longest = Math.max(window.longest, e.duration); })).observe({ type: "longtask", buffered: true }); });
  await until("ten curves", async () => (await page.locator(".chart canvas").count()) >= 10);
  const reward = page.locator(".chart", { hasText: "Reward" }).first().locator(".plot");
  await reward.focus();
  for (const key of ["+", "+", "ArrowLeft", "+", "ArrowRight", "-", "Escape"]) {
    const answered = page.waitForResponse((r) => r.url().includes("/series"));
    await page.keyboard.press(key);
    await answered;
  }
  const series = await asked("api/runs/large/series?name=trainer.tiny.policy+reward&points=1000");
  const { x, y, n } = Object.values(series)[0];
  assert.ok(n === 100_000 && x.length <= 1000 && Math.max(...y) === 9, `${x.length} points of ${n}, the greatest is ${Math.max(...y)}`);

  await page.goto(base + "#/large/samples");
  await page.locator("tbody tr", { hasText: "100000+1=" }).waitFor();
  assert.equal(await page.locator("tbody tr").count(), 50);
  assert.match(await page.locator("main").innerText(), /100,?000/);
  await page.getByLabel("Text").fill("99950+1=");
  await page.keyboard.press("Enter");
  await page.locator("tbody tr a", { hasText: "99950+1=" }).click();
  await page.getByRole("heading", { name: "Group 99950" }).waitFor();
  const most = Math.max(...sizes), longest = await page.evaluate(() => window.longest);
  assert.ok(sizes.length > 10 && most < 1 << 20, `${sizes.length} answers of up to ${most} bytes`);
  t.diagnostic(`the page was busy for ${longest} ms at most; the largest answer had ${most} bytes`);
  await close(page);
});

test("the page runs nothing that it did not bring", async () => {
  const page = await open("#/quickstart/overview");
  await page.locator("main h2").first().waitFor();
  const blocked = await page.evaluate(async () => {
    const violations = [];
    document.addEventListener("securitypolicyviolation", (e) => violations.push(e.effectiveDirective));
    const s = document.createElement("script");
    try { s.textContent = "window.ran = true"; document.body.append(s); } catch { violations.push("trusted-types"); }
    await fetch("https://example.invalid/").catch(() => {});
    await new Promise((r) => setTimeout(r, 200));
    return { violations, ran: "ran" in window };
  });
  assert.ok(!blocked.ran && blocked.violations.includes("connect-src"), JSON.stringify(blocked));
  await page.context().close();
});
