// Runs the native forge: not the package @foundry-rs/forge, which exits with 0 whatever happened.

import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

export const CONTRACTS = path.join(path.dirname(fileURLToPath(import.meta.url)), "..");

/** Where forge is. */
export function binary(root) {
  const file = path.join(root, "node_modules", ".bin", "forge");
  if (fs.existsSync(file)) return file;
  throw new Error("forge is not installed: run `npm ci --ignore-scripts` in contracts/ (it exists for Linux on x86-64 only)");
}

/** What forge, or a program that starts it, runs in. */
export function environment(extra = {}) {
  // bin/solc starts `node` by name, and our own may not be on PATH.
  const searched = [path.dirname(process.execPath), process.env.PATH].join(path.delimiter);
  // A setting from outside would test something else than what is committed.
  const inherited = Object.entries(process.env).filter(([name]) => !/^(FOUNDRY|DAPP|FORGE)_/.test(name));
  return { ...Object.fromEntries(inherited), PATH: searched, ...extra };
}

/** Answers the exit code and, when `quiet`, what forge printed. Without one of both, forge never ran. */
export function forge(args, { root = CONTRACTS, env = {}, quiet = false } = {}) {
  const done = spawnSync(binary(CONTRACTS), args, {
    cwd: root,
    env: environment(env),
    encoding: "utf8",
    stdio: quiet ? "pipe" : "inherit",
  });
  if (done.error) throw done.error;
  return { code: done.status ?? 128, printed: `${done.stdout ?? ""}${done.stderr ?? ""}` };
}
