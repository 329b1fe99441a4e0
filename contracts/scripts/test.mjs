// Everything that must hold of the contracts; exits with 1 and says which check failed.

import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";

import { CONTRACTS, forge } from "./forge.mjs";
import { tableIsCurrent } from "./gastable.mjs";

const SCRIPTS = path.join(CONTRACTS, "scripts");
const COMPILED = path.join(CONTRACTS, "..", "ltzd", "chain", "compiled");

/** The snapshot is compared too: another gas figure is a failure until `npm run gas` writes it. */
function testsPass() {
  return forge(["test", "-vv"], { env: { FORGE_SNAPSHOT_CHECK: "true" } }).code === 0;
}

function sourcesAreFormatted() {
  return forge(["fmt", "--check"]).code === 0;
}

function aFailingTestIsSeenToFail() {
  const { code, printed } = forge(["test"], { env: { FOUNDRY_PROFILE: "negative" }, quiet: true });
  // A compiler error also gives a code, and would prove nothing.
  return code !== 0 && printed.includes("[FAIL: on purpose] test_that_fails_on_purpose()");
}

/** What the tests ran is what the package ships, though forge and build.mjs compile it apart. */
function testedBytecodeIsTheShippedOne() {
  return fs.readdirSync(COMPILED).filter((file) => file.endsWith(".json")).every((file) => {
    const shipped = JSON.parse(fs.readFileSync(path.join(COMPILED, file), "utf8"));
    const built = path.join(CONTRACTS, "out", `${shipped.contractName}.sol`, file);
    return JSON.parse(fs.readFileSync(built, "utf8")).bytecode.object === shipped.bytecode;
  });
}

/** Else `npm run gas` was forgotten. */
function theDocumentedGasIsTheMeasuredOne() {
  return tableIsCurrent();
}

function ourOwnScriptsAreTested() {
  const files = fs.readdirSync(SCRIPTS).filter((file) => file.endsWith(".test.mjs"));
  return spawnSync(process.execPath, ["--test", ...files], { cwd: SCRIPTS, stdio: "inherit" }).status === 0;
}

const CHECKS = [
  testsPass,
  sourcesAreFormatted,
  aFailingTestIsSeenToFail,
  testedBytecodeIsTheShippedOne,
  theDocumentedGasIsTheMeasuredOne,
  ourOwnScriptsAreTested,
];

// In order, since a later check stands on an earlier one: nothing is compared that was not built.
const failed = CHECKS.find((check) => !check());
if (failed) {
  console.error(`contracts: failed: ${failed.name}`);
  process.exitCode = 1;
} else {
  console.log(`contracts: ${CHECKS.length} checks passed`);
}
