// The page of a visitor who is logged in: who he is, his check-in, and what follows from each.

import { ask, send } from "./api.js";
import * as board from "./board.js";
import { SPENT, alone, element, ltz, onPress, orTell, tell } from "./page.js";
import * as perks from "./perks.js";
import * as streak from "./streak.js";
import * as wallet from "./wallet.js";

async function load() {
  const me = await ask("me");
  wallet.show(me);
  streak.show(me.streak, arriving);
  await loadPerks();
}

const loadPerks = () => perks.load(wallet.balance(), redeemed);

function arriving(change) {
  wallet.expect(change, settled);
}

function redeemed(perk) {
  arriving(-perk.cost);
  orTell(loadPerks);
}

function settled() {
  orTell(loadPerks);
  board.load();
}

async function checkIn() {
  const said = await send("checkin");
  streak.show(said.streak, arriving);
  element("check-in").textContent = "Checked in today";
  if (said.alreadyClaimed) tell("You have checked in today already. See you tomorrow!");
  else if (said.reward > 0) tell(`Checked in: ${ltz(said.reward)} for you.`);
  else tell("Checked in. Enjoy your visit!");
  arriving(said.reward);
  board.load();
  return SPENT;
}

async function link(form) {
  await send("link", { identityToken: form.elements.identityToken.value.trim() });
  form.reset();
  tell("Your wallet is linked: all that is in it is yours to spend here.");
  await load();
}

onPress(element("check-in"), checkIn);
element("link").addEventListener("submit", (event) => {
  event.preventDefault();
  alone(event.submitter, () => link(event.target));
});
perks.showCodes();
orTell(load);
