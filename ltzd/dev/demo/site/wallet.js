// The wallet: its balance, this site's allowance, and the link.
//
// Polls the balance while LTZ is pending.

import { ask } from "./api.js";
import { amount, element, ltz, pause } from "./page.js";

const LOOK_EVERY_MILLISECONDS = 700;
const LONGEST_WATCH_MILLISECONDS = 90_000;

const day = new Intl.DateTimeFormat("en", { dateStyle: "long" });

let shown = 0;
let spendable = 0;
let isLinked = false;
let expected = null;
let watchEnds = 0;
let isWatching = false;

const isThere = () => expected === null || Math.abs(shown - expected) < 0.005;

export const money = () => ({ balance: shown, spendable, isLinked });

export function show(me) {
  shown = me.balance;
  spendable = me.spendable;
  isLinked = me.linked;
  element("spendable").textContent = ltz(spendable);
  element("linked").hidden = !isLinked;
  element("unlinked").hidden = isLinked;
  if (me.link) element("link-terms").textContent = terms(me.link);
  element("balance").textContent = amount(shown);
  element("address").textContent = me.walletAddress;
  showPending();
}

function terms({ dailyAllowance, allowanceLeft, expiresAt }) {
  const end = day.format(new Date(expiresAt));
  const allowance = `Of the ${ltz(dailyAllowance)} a day from the rest of your wallet`;
  return `Linked until ${end}. ${allowance}, ${ltz(allowanceLeft)} are left today.`;
}

// Expects a change of the balance by a coming block; calls `settled` once it has happened.
export function expect(change, settled) {
  if (change === 0) return;
  expected = (expected ?? shown) + change;
  watchEnds = performance.now() + LONGEST_WATCH_MILLISECONDS;
  showPending();
  if (!isWatching) watch(settled);
}

async function watch(settled) {
  isWatching = true;
  while (!isThere() && performance.now() < watchEnds) {
    await pause(LOOK_EVERY_MILLISECONDS);
    await ask("me").then(show, () => {}); // The next look may succeed.
  }
  isWatching = false;
  expected = null;
  showPending();
  settled();
}

function showPending() {
  const change = expected === null ? 0 : expected - shown;
  const words = change > 0 ? `${ltz(change)} on the way` : `${ltz(-change)} being spent`;
  element("pending").hidden = isThere();
  element("pending").textContent = isThere() ? "" : words;
}
