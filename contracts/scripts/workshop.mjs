// A copy of the contracts to work on, so that neither sources nor what was built from them change under anybody.

import fs from "node:fs";
import os from "node:os";
import path from "node:path";

import { CONTRACTS } from "./forge.mjs";

/** Answers its directory, with these of our folders in it. Whoever asked deletes it. */
export function workshop(...folders) {
  const root = fs.mkdtempSync(path.join(os.tmpdir(), "ltz-contracts-"));
  for (const name of [...folders, "bin", "foundry.toml"]) {
    fs.cpSync(path.join(CONTRACTS, name), path.join(root, name), { recursive: true });
  }
  fs.symlinkSync(path.join(CONTRACTS, "node_modules"), path.join(root, "node_modules"));
  return root;
}
