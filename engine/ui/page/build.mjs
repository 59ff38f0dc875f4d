// Builds the page into ../built, which is committed: recipe is built without npm. The digest of the sources lets a test
// see that the two belong together.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { cpSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";

const out = "../built";
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
await build({
  entryPoints: { app: "src/main.tsx", style: "src/style.css" },
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  outdir: out,
  legalComments: "inline",
});
cpSync("src/index.html", `${out}/index.html`);
// Their licenses ask for their notices in copies.
writeFileSync(`${out}/licenses.txt`, ["preact", "uplot"].map((name) =>
  `${name}\n\n${readFileSync(`node_modules/${name}/LICENSE`, "utf8")}`).join("\n"));

const hash = createHash("sha256");
for (const path of ["build.mjs", "package.json", "package-lock.json", ...readdirSync("src").sort().map((f) => `src/${f}`)]) {
  hash.update(`${path}\n`).update(readFileSync(path)).update("\n");
}
writeFileSync(`${out}/sources.sha256`, hash.digest("hex") + "\n");
