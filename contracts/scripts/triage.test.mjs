import assert from "node:assert/strict";
import { test } from "node:test";

import { acceptedIn, complaints, findingsOf } from "./triage.mjs";

const OURS = { source_mapping: { filename_relative: "src/LTZ.sol", lines: [80, 81] } };
const THEIRS = { source_mapping: { filename_relative: "node_modules/@openzeppelin/contracts/Any.sol", lines: [7] } };
const DIVISION = { detector: "divide", text: "src/LTZ.sol: LTZ.f() divides", line: 80 };
const TIME = { detector: "timestamp", text: "src/LTZ.sol: LTZ.g() compares", line: 90 };
const PAGE = `# Findings

    not a finding

## divide

    src/LTZ.sol: LTZ.f() divides

Rounded down on purpose.

## timestamp

    src/LTZ.sol: LTZ.g() compares
    src/LTZ.sol: LTZ.h() compares

Seconds do not matter.
`;

test("a finding names the file, and no line that another change would move", () => {
  const report = [{ check: "divide", description: "LTZ.f() divides:\n\t- a / b\n", elements: [OURS] }];
  assert.deepEqual(findingsOf(report), [{ detector: "divide", text: "src/LTZ.sol: LTZ.f() divides: - a / b", line: 80 }]);
});

test("a finding that touches our sources anywhere is ours, any other is not", () => {
  const finding = (...elements) => ({ check: "any", description: "any", elements });
  assert.equal(findingsOf([finding(THEIRS, OURS)])[0].text, "src/LTZ.sol: any");
  assert.deepEqual(findingsOf([finding(THEIRS), finding()]), []);
});

test("a reason serves the findings right above it", () => {
  assert.deepEqual(acceptedIn(PAGE).map(({ detector, text }) => `${detector} ${text.split(" ")[1]}`), [
    "divide LTZ.f()",
    "timestamp LTZ.g()",
    "timestamp LTZ.h()",
  ]);
});

test("a finding without a reason is not accepted", () => {
  assert.throws(() => acceptedIn(PAGE.replace("Seconds do not matter.", "")), /why this is accepted:\n.*LTZ\.g/);
  assert.throws(() => acceptedIn(PAGE.replace("Rounded down on purpose.", "")), /why this is accepted:\n.*LTZ\.f/);
});

test("nothing is said when what was found is what was accepted, in any order", () => {
  assert.deepEqual(complaints([TIME, DIVISION], [DIVISION, TIME]), []);
});

test("a finding that nobody accepted is named", () => {
  assert.deepEqual(complaints([DIVISION, TIME], [DIVISION]), [
    "a new finding of timestamp, at line 90:\n    src/LTZ.sol: LTZ.g() compares",
  ]);
});

test("an accepted finding of another detector does not count", () => {
  assert.equal(complaints([TIME], [{ ...TIME, detector: "divide" }]).length, 2);
});

test("a second finding with the same words is a new one", () => {
  assert.equal(complaints([TIME, TIME], [TIME]).length, 1);
});

test("an accepted finding that is gone is named", () => {
  assert.match(complaints([DIVISION], [DIVISION, TIME])[0], /no longer found:\n.*LTZ\.g/);
});
