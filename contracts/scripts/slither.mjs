// Has slither read the four contracts, and compares what it finds with what slither.md accepts; exits with 1 when they differ.
//
// `make slither` installs slither and names its folder in ENVIRONMENT.

import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";

import { binary, CONTRACTS, environment } from "./forge.mjs";
import { acceptedIn, complaints, findingsOf } from "./triage.mjs";
import { workshop } from "./workshop.mjs";

// `pragma` lists every source of OpenZeppelin's with the versions it allows. Ours name one, and forge compiles all with it.
const NOT_ASKED = ["pragma"];

const REPORT = "findings.json";

const ARGS = [
  ...[".", "--json", REPORT, "--exclude-location", "--fail-none", "--exclude", NOT_ASKED.join(",")],
  // A comment in a source must not hide what this page is to tell.
  "--show-ignored-findings",
];

function toolsFor(root) {
  const { PATH } = environment();
  // slither reads the syntax tree; without the optimizer it is there in half the time.
  return environment({ FOUNDRY_OPTIMIZER: "false", PATH: [path.dirname(binary(root)), PATH].join(path.delimiter) });
}

function report(root) {
  if (!process.env.ENVIRONMENT) throw new Error("ENVIRONMENT names no folder with slither: run `make slither`");
  const done = spawnSync(path.join(process.env.ENVIRONMENT, "slither"), ARGS, {
    cwd: root,
    env: toolsFor(root),
    encoding: "utf8",
    maxBuffer: 256 * 1024 * 1024,
  });
  if (done.error) throw done.error;
  if (done.status !== 0) throw new Error(`slither did not come to an end:\n${done.stdout}${done.stderr}`);
  return JSON.parse(fs.readFileSync(path.join(root, REPORT), "utf8")).results.detectors ?? [];
}

const accepted = acceptedIn(fs.readFileSync(path.join(CONTRACTS, "slither.md"), "utf8"));
const root = workshop("src");
try {
  const found = findingsOf(report(root));
  const wrong = complaints(found, accepted);
  for (const each of wrong) console.error(`slither: ${each}`);
  if (wrong.length > 0) console.error("slither: fix it, or say in contracts/slither.md why it is accepted");
  else console.log(`slither: ${found.length} findings, all of them accepted in contracts/slither.md`);
  process.exitCode = wrong.length > 0 ? 1 : 0;
} finally {
  fs.rmSync(root, { recursive: true });
}
