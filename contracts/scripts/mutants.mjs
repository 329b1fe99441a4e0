// Shows that the tests bite: each mutant breaks one duty of a contract, and a test must fail for it.
//
// Writes mutants.md. The gas tests do not count, since every change of the code changes the gas. A name, as in
// `npm run mutants -- PerkNFT.sol`, tries one source only and leaves the others' rows as they are.

import fs from "node:fs";
import path from "node:path";

import { CONTRACTS, forge } from "./forge.mjs";
import { TABLE } from "./mutanttable.mjs";
import { workshop } from "./workshop.mjs";

const REPORT = path.join(CONTRACTS, "mutants.md");

function mutated(source, original, [what, from, to]) {
  if (original.split(from).length !== 2) throw new Error(`${source} does not say once: ${from} (${what})`);
  return original.replace(from, () => to);
}

function withoutGasTests(root) {
  for (const name of fs.readdirSync(path.join(root, "test"))) {
    if (name.endsWith("Gas.t.sol")) fs.rmSync(path.join(root, "test", name));
  }
  return root;
}

/** A mutant that does not compile proves nothing; only a failed test counts. */
function isKilled(root, tests) {
  // The lint may be offended by a mutant, which is not the question here. The rest saves half the time.
  const args = ["test", "--match-path", tests, "--fail-fast", "--deny", "never"];
  const env = {
    FOUNDRY_OPTIMIZER: "false",
    FOUNDRY_FUZZ_RUNS: "64",
    FOUNDRY_INVARIANT_RUNS: "8",
    FOUNDRY_INVARIANT_SHRINK_RUN_LIMIT: "0",
  };
  const { code, printed } = forge(args, { root, env, quiet: true });
  if (code !== 0 && !printed.includes("[FAIL")) throw new Error(`forge ran no test:\n${printed}`);
  return code !== 0;
}

function tryAll(root, { source, tests, mutants }) {
  const file = path.join(root, "src", source);
  const original = fs.readFileSync(file, "utf8");
  // Before the first is tried, since each takes its time.
  const texts = mutants.map((mutant) => mutated(source, original, mutant));
  if (isKilled(root, tests)) throw new Error(`${tests} fail without any mutant: run \`npm test\``);
  const results = mutants.map(([what], index) => {
    fs.writeFileSync(file, texts[index]);
    const killed = isKilled(root, tests);
    console.log(`${killed ? "killed  " : "SURVIVED"}  ${source}: ${what}`);
    return { source, what, killed };
  });
  fs.writeFileSync(file, original);
  return results;
}

function rowsOf(source, results) {
  const fresh = results.filter((each) => each.source === source);
  if (fresh.length > 0) {
    return fresh.map(({ what, killed }) => `| ${source} | ${what} | ${killed ? "killed" : "**survived**"} |`);
  }
  return fs.readFileSync(REPORT, "utf8").split("\n").filter((line) => line.startsWith(`| ${source} |`));
}

function report(results) {
  const rows = TABLE.flatMap(({ source }) => rowsOf(source, results));
  const killed = rows.filter((row) => row.endsWith("| killed |")).length;
  const lines = [
    "# Mutants",
    "",
    "Written by `npm run mutants`, which breaks one duty of a contract at a time and expects a test to fail; the changes",
    "themselves are in `scripts/mutanttable.mjs`.",
    "",
    `${killed} of ${rows.length} killed.`,
    "",
    "| source | what the mutant breaks | |",
    "|---|---|---|",
    ...rows,
  ];
  fs.writeFileSync(REPORT, `${lines.join("\n")}\n`);
}

const only = process.argv[2];
const chosen = TABLE.filter(({ source }) => only === undefined || source === only);
const root = withoutGasTests(workshop("src", "test"));
try {
  const results = chosen.flatMap((each) => tryAll(root, each));
  const killed = results.filter((each) => each.killed).length;
  console.log(`${killed} of ${results.length} mutants killed`);
  report(results);
  process.exitCode = results.length > 0 && killed === results.length ? 0 : 1;
} finally {
  fs.rmSync(root, { recursive: true });
}
