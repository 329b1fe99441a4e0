// Compiles the contracts into ltzd/chain/compiled/, or with --verify compares what is there, byte for byte.
//
// Reads its settings from the compiler section below, which foundry.toml repeats for forge; scripts/test.mjs checks that
// both give the same bytecode. Needs only the `solc` package, no forge, so that it runs wherever Node does.

import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";

const solc = createRequire(import.meta.url)("solc");
const HERE = path.dirname(fileURLToPath(import.meta.url));
const COMPILED = path.join(HERE, "..", "ltzd", "chain", "compiled");
const CONTRACTS = ["LTZ", "PerkNFT", "PointsSale", "BusinessEscrow"];

const SETTINGS = {
  evmVersion: "cancun",
  optimizer: { enabled: true, runs: 10_000 },
  // Nothing in the bytecode may depend on where or when it was compiled.
  metadata: { appendCBOR: false, bytecodeHash: "none" },
  outputSelection: { "*": { "*": ["abi", "evm.bytecode.object"] } },
};

function findImport(name) {
  const base = name.startsWith("@") ? path.join(HERE, "node_modules") : HERE;
  try {
    return { contents: fs.readFileSync(path.join(base, name), "utf8") };
  } catch (error) {
    return { error: error.message };
  }
}

function compile() {
  const sources = Object.fromEntries(
    CONTRACTS.map((name) => [`src/${name}.sol`, { content: findImport(`src/${name}.sol`).contents }]),
  );
  const input = { language: "Solidity", sources, settings: SETTINGS };
  const output = JSON.parse(solc.compile(JSON.stringify(input), { import: findImport }));
  const complaints = output.errors ?? [];
  if (complaints.length > 0) throw new Error(complaints.map((each) => each.formattedMessage).join("\n"));
  return output.contracts;
}

function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.keys(value).sort().map((key) => [key, sorted(value[key])]));
}

function asFile(name, compiled) {
  const record = {
    abi: compiled.abi,
    bytecode: `0x${compiled.evm.bytecode.object}`,
    contractName: name,
    evmVersion: SETTINGS.evmVersion,
    optimizerRuns: SETTINGS.optimizer.runs,
    solc: solc.version().split("+")[0],
  };
  return `${JSON.stringify(sorted(record), null, 1)}\n`;
}

function committed(file) {
  return fs.existsSync(file) ? fs.readFileSync(file, "utf8") : null;
}

const verifying = process.argv.includes("--verify");
const contracts = compile();
for (const name of CONTRACTS) {
  const file = path.join(COMPILED, `${name}.json`);
  const text = asFile(name, contracts[`src/${name}.sol`][name]);
  if (!verifying) {
    fs.mkdirSync(COMPILED, { recursive: true });
    fs.writeFileSync(file, text);
    console.log(`wrote ${path.relative(path.join(HERE, ".."), file)}`);
  } else if (committed(file) === text) {
    console.log(`${name}.json is what its source compiles to`);
  } else {
    console.error(`${name}.json differs from what its source compiles to: run \`make contracts\` and commit the result`);
    process.exitCode = 1;
  }
}
