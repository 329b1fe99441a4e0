// The page of a logged-in visitor: the account, the check-in, and the refresh after each action.

import { Refusal, ask, remove, send } from "./api.js";
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

const loadPerks = () => perks.load(wallet.money(), redeemed);

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
  const { code } = form.elements;
  showFault(code, "");
  try {
    await send("link", { code: code.value.trim() });
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return showFault(code, error.message);
  }
  form.reset();
  await changedLink("Your wallet is linked.");
}

// Shows an error beside its field and returns the focus to the field.
function showFault(field, words) {
  element("link-fault").textContent = words;
  field.ariaInvalid = String(Boolean(words));
  if (words) field.focus();
}

async function unlink() {
  await remove("link");
  await changedLink("The link is ended: this site spends only what it gave you.");
}

// The element that had the focus is hidden now.
async function changedLink(words) {
  await load();
  element("unlinked").open = false;
  element("wallet-title").focus();
  tell(words);
}

onPress(element("check-in"), checkIn);
onPress(element("unlink"), unlink);
element("link").addEventListener("submit", (event) => {
  event.preventDefault();
  alone(event.submitter, () => link(event.target));
});
perks.showCodes();
orTell(load);
