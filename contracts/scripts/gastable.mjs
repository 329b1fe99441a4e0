// The table of docs/contracts.md: what an operation costs, its ceiling, and what it costs written plainly on OpenZeppelin.
//
// The figures come from snapshots/, which `npm run gas` writes and `npm test` checks.

import fs from "node:fs";
import path from "node:path";

import { CONTRACTS } from "./forge.mjs";

const DOCS = path.join(CONTRACTS, "..", "docs", "contracts.md");
const [BEGIN, END] = ["<!-- gas: written by `npm run gas` -->", "<!-- gas: end -->"];
const MANY = 100;

// What the reader calls it, the snapshot it is in and its name there, how many items it does, the ceiling of one in
// thousands, and the plain calls that do the same. There is no plain batch: each item is a transaction of its own.
const ROWS = [
  ["`mintReward`, new holder", "LTZ", "mint single, new holder", 1, 69, ["mint, new holder"]],
  ["`mintReward`, existing holder", "LTZ", "mint single, existing holder", 1, 52, ["mint, existing holder"]],
  ["`mintRewardBatch` of 100, each, new holders", "LTZ", "mint batch of 100, each, new holders", MANY, 30, ["mint, new holder"]],
  ["`mintRewardBatch` of 100, each, existing holders", "LTZ", "mint batch of 100, each, existing holders", MANY, 12.5, ["mint, existing holder"]],
  ["`mintRewardBatch` of 100, each, 2 rewards for each holder", "LTZ", "mint batch of 100, each, 2 rewards a holder", MANY, 8.5, ["mint, existing holder"]],
  ["`mintRewardBatch` of 100, each, 4 rewards for each holder", "LTZ", "mint batch of 100, each, 4 rewards a holder", MANY, 6.6, ["mint, existing holder"]],
  ["`mintRewardBatch` of 100, each, 10 rewards for each holder", "LTZ", "mint batch of 100, each, 10 rewards a holder", MANY, 5.5, ["mint, existing holder"]],
  ["`transferWithAuthorization`, new holder", "LTZ", "transferWithAuthorization, new holder", 1, 84, ["transferWithAuthorization, new holder"]],
  ["`transferWithAuthorization`, existing holder", "LTZ", "transferWithAuthorization, existing holder", 1, 67, ["transferWithAuthorization, existing holder"]],
  ["`claimFor`, a user's first", "PerkNFT", "claimFor, a user's first", 1, 126, ["claimFor, a user's first"]],
  ["`claimFor`, later", "PerkNFT", "claimFor, later", 1, 92, ["claimFor, later"]],
  ["`multicall[permitLTZ, claimFor]`, later", "PerkNFT", "multicall[permitLTZ, claimFor]", 1, 112, ["permit", "claimFor, later"]],
  ["`claimWithSig`, later", "PerkNFT", "claimWithSig, later", 1, 98, ["claimWithSig, later"]],
  ["`redeemCharge`, first of sixteen neighbours", "PerkNFT", "redeemCharge, first in its word", 1, 56, ["redeem"]],
  ["`redeemCharge`, later", "PerkNFT", "redeemCharge, later", 1, 38, ["redeem"]],
  ["`buyFor`, a reference apart", "PointsSale", "buyFor, first in its word", 1, 77, ["buyFor"]],
  ["`buyFor`, references counting up", "PointsSale", "buyFor, later", 1, 60, ["buyFor"]],
  ["`lockFor`", "BusinessEscrow", "lockFor, later", 1, 93, ["lockFor"]],
  ["`release`", "BusinessEscrow", "release", 1, 50, ["release"]],
];

function snapshot(group) {
  return JSON.parse(fs.readFileSync(path.join(CONTRACTS, "snapshots", `${group}.json`), "utf8"));
}

function thousands(gas) {
  return `${(gas / 1000).toFixed(1)}k`;
}

function row([label, group, name, items, ceiling, plain]) {
  const ours = Number(snapshot(group)[name]) / items;
  const theirs = plain.reduce((sum, each) => sum + Number(snapshot("Plain")[each]), 0);
  return `| ${label} | ${thousands(ours)} | ${ceiling}k | ${thousands(theirs)} |`;
}

function table() {
  const head = ["| operation | gas | ceiling | plain OpenZeppelin |", "|---|---|---|---|"];
  return [...head, ...ROWS.map(row)].join("\n");
}

function withTable(text) {
  const [before, rest] = text.split(BEGIN);
  const after = rest?.split(END)[1];
  if (after === undefined) throw new Error(`${DOCS} has no place for the table, between ${BEGIN} and ${END}`);
  return `${before}${BEGIN}\n${table()}\n${END}${after}`;
}

export function writeTable() {
  fs.writeFileSync(DOCS, withTable(fs.readFileSync(DOCS, "utf8")));
}

export function tableIsCurrent() {
  const text = fs.readFileSync(DOCS, "utf8");
  return withTable(text) === text;
}
