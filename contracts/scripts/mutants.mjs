// Shows that the tests bite: each mutant breaks one duty of LTZ, and a test must fail for it.
//
// The gas tests do not count, since every change of the code changes the gas.

import fs from "node:fs";
import os from "node:os";
import path from "node:path";

import { CONTRACTS, forge } from "./forge.mjs";

const SOURCE = path.join("src", "LTZ.sol");

// What it breaks, what the source says, what the mutant says.
const MUTANTS = [
  ["the role of a single mint", "bytes32 ref) external onlyRole(MINTER_ROLE) {", "bytes32 ref) external {"],
  ["the role of a batch", "external onlyRole(MINTER_ROLE) returns", "external returns"],
  ["the role that sets a limit", "external onlyRole(DEFAULT_ADMIN_ROLE) {", "external {"],
  ["the refusal of a used reference", "if (!_use(ref)) revert RefAlreadyUsed(ref);", "_use(ref);"],
  ["the write of the bitmap", "if (fresh) _usedRefs[word] = bits | bit;", ""],
  ["the other bits of a word", "_usedRefs[word] = bits | bit;", "_usedRefs[word] = bit;"],
  ["what counts as used", "fresh = bits & bit == 0;", "fresh = bits == 0;"],
  ["the width of a seq", "uint64(uint256(ref))", "uint56(uint256(ref))"],
  ["uuids out of the bitmap", "uint256 seq = uint64(uint256(ref));", "uint256 seq = uint256(ref);"],
  ["the word of a seq", "(seq >> 8, 1", "(seq >> 9, 1"],
  ["the skipping in a batch", "if (_use(reward.ref)) {", "_use(reward.ref); if (true) {"],
  ["the word about a skipped reward", "emit RewardSkipped(reward.to, reward.ref, reward.amount);", ""],
  ["the count of a batch", "++minted;", ""],
  ["the limit of a single mint", "_spend(_msgSender(), amount);", ""],
  ["the limit of a batch", "_spend(_msgSender(), total);", ""],
  ["the sum of a batch", "total += reward.amount;", "total = reward.amount;"],
  ["the comparison with the limit", "if (units > available)", "if (units > available + 1)"],
  ["what is spent", "bucket.available = uint88(available - units);", "bucket.available = uint88(available);"],
  ["the rounding of what is spent", "Math.ceilDiv(amount, LIMIT_UNIT)", "amount / LIMIT_UNIT"],
  ["the time of the last refill", "bucket.updatedAt = uint40(block.timestamp);", ""],
  ["the write of the bucket", "_buckets[minter] = bucket;", ""],
  ["the brim of the bucket", "Math.min(bucket.capacity, bucket.available + refill)", "bucket.available + refill"],
  ["the full bucket after a window", "if (elapsed >= bucket.window)", "if (elapsed > bucket.window)"],
  ["the memory of what was spent", "Math.saturatingSub(units, spent)", "units"],
  ["the refusal of a limit too high", "units > type(uint88).max || ", ""],
  ["the refusal of a limit without window", " || (units != 0 && window == 0)", ""],
  ["the refusal of nothing", "if (amount == 0) revert ZeroAmount();", ""],
  ["the balance", "_mint(to, amount);", ""],
  ["the word about a reward", "emit RewardMinted(to, ref, amount);", ""],
  ["the guardian's power", "role == MINTER_ROLE && hasRole", "role == GUARDIAN_ROLE && hasRole"],
  ["the bounds of the guardian's power", "role == MINTER_ROLE && hasRole", "hasRole"],
  ["who is a guardian", "role == MINTER_ROLE && hasRole(GUARDIAN_ROLE, _msgSender())", "role == MINTER_ROLE"],
];

function mutated(original, [what, from, to]) {
  if (original.split(from).length !== 2) throw new Error(`${SOURCE} does not say once: ${from} (${what})`);
  return original.replace(from, () => to);
}

function workshop() {
  const root = fs.mkdtempSync(path.join(os.tmpdir(), "ltz-mutants-"));
  for (const name of ["src", "test", "bin", "foundry.toml"]) {
    fs.cpSync(path.join(CONTRACTS, name), path.join(root, name), { recursive: true });
  }
  fs.symlinkSync(path.join(CONTRACTS, "node_modules"), path.join(root, "node_modules"));
  return root;
}

/** A mutant that does not compile proves nothing; only a failed test counts. */
function isKilled(root) {
  // The lint may be offended by a mutant, which is not the question here.
  const args = ["test", "--no-match-path", "test/*Gas.t.sol", "--fail-fast", "--deny", "never"];
  const { code, printed } = forge(args, { root, quiet: true });
  if (code !== 0 && !printed.includes("[FAIL")) throw new Error(`forge ran no test:\n${printed}`);
  return code !== 0;
}

const root = workshop();
try {
  const original = fs.readFileSync(path.join(CONTRACTS, SOURCE), "utf8");
  if (isKilled(root)) throw new Error("the tests fail without any mutant: run `npm test`");
  const survivors = MUTANTS.filter((mutant) => {
    fs.writeFileSync(path.join(root, SOURCE), mutated(original, mutant));
    const killed = isKilled(root);
    console.log(`${killed ? "killed  " : "SURVIVED"}  ${mutant[0]}`);
    return !killed;
  });
  console.log(`${MUTANTS.length - survivors.length} of ${MUTANTS.length} mutants killed`);
  process.exitCode = survivors.length === 0 ? 0 : 1;
} finally {
  fs.rmSync(root, { recursive: true });
}
