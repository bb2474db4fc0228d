/** Bundles the dashboard's JavaScript, styles and licences into the Python package. */

import { readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const outdir = "../farandole/notebook/static";

const { metafile } = await build({
  entryPoints: ["src/dashboard.tsx", "style/dashboard.css"],
  entryNames: "[name]",
  outdir,
  bundle: true,
  minify: true,
  metafile: true,
  format: "esm",
  target: "es2022",
  // JupyterLab does not share its React with widgets, and the kernel sends the code of each dashboard to the page. The
  // dashboard therefore uses Preact, which is much smaller than React.
  alias: { react: "preact/compat", "react-dom": "preact/compat" },
});

const inputs = Object.keys(metafile.outputs["../farandole/notebook/static/dashboard.js"].inputs);
const names = new Set(inputs.flatMap((path) => /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1] ?? []));
const packages = [...names].sort().map((name) => {
  const read = (file) => readFileSync(`node_modules/${name}/${file}`, "utf8");
  const { version, license } = JSON.parse(read("package.json"));
  return { name, versionInfo: version, licenseId: license, extractedText: read("LICENSE") };
});
writeFileSync(`${outdir}/third-party-licenses.json`, `${JSON.stringify({ packages }, null, 2)}\n`);
