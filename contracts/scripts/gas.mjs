// Writes snapshots/ anew; the ceilings in test/*Gas.t.sol still hold.

import { forge } from "./forge.mjs";

process.exitCode = forge(["test", "--match-path", "test/*Gas.t.sol"]).code;
