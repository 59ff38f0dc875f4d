// Pictures of a run's page as it is now: node test/pictures.mjs ADDRESS RUN FOLDER VIEW…
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [address, run, folder, ...views] = process.argv.slice(2);
// filled is what a view has once the server has answered.
const filled = { overview: ".graph .block", curves: ".chart canvas", samples: "tbody tr", timeline: "main details", logs: "main li", evaluations: ".chart canvas" };
mkdirSync(folder, { recursive: true });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });
for (const [colorScheme, width, height] of [["light", 1280, 800], ["dark", 1280, 800], ["light", 390, 844]]) {
  const page = await browser.newPage({ viewport: { width, height }, colorScheme });
  for (const view of views) {
    await page.goto(`${address}#/${run}/${view}`);
    await page.locator("main > :not(:empty)").nth(1).waitFor();
    await page.locator(filled[view] ?? "main").first().waitFor({ state: "attached" });
    await page.waitForTimeout(1500); // for the other answers: events of a live run keep coming
    await page.screenshot({ path: join(folder, `${view}-${colorScheme}-${width}.png`) });
  }
  await page.close();
}
await browser.close();
