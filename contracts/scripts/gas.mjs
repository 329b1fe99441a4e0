// Writes snapshots/ and the table of docs/contracts.md anew; the ceilings in test/*Gas.t.sol still hold.

import { forge } from "./forge.mjs";
import { writeTable } from "./gastable.mjs";

const { code } = forge(["test", "--match-path", "test/*Gas.t.sol"]);
if (code === 0) writeTable();
process.exitCode = code;
