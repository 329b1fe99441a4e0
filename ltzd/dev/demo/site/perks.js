// The perks, and the codes of redemptions.

import { Refusal, ask, send } from "./api.js";
import { arrange, copyOf, element, ltz, onPress, pause, tell } from "./page.js";

const LONGEST_WAIT_MILLISECONDS = 90_000;
const ICONS = ["drinks", "classes", "goods"];
const KEPT = `redemptions of ${document.body.dataset.username}`;

const cards = new Map();

// `awaited` has the perks that were redeemed in this tab and have given no code yet. Their price may be
// paid already, and only another press brings the code.
const { codes, awaited } = kept();

let shownMoney;

export async function load(money, redeemed) {
  shownMoney = money;
  const { perks } = await ask("perks");
  element("no-perks").hidden = perks.length > 0;
  arrange(
    element("perks"),
    perks.map((perk) => {
      if (!cards.has(perk.id)) cards.set(perk.id, newCard(perk, redeemed));
      return cards.get(perk.id).card;
    }),
  );
  perks.forEach((perk) => Object.assign(cards.get(perk.id), { perk }));
  afford(money);
}

// Enables the perks that the member can afford.
function afford(money) {
  for (const { card, button, perk } of cards.values()) {
    const reason = perk.id in awaited ? "" : obstacle(perk, money);
    card.querySelector(".price").textContent = perk.cost === 0 ? "Free" : ltz(perk.cost);
    card.querySelector(".reason").textContent = reason;
    button.disabled = Boolean(reason);
  }
}

function obstacle({ available, cost }, { balance, spendable, isLinked }) {
  if (!available) return "Not available right now";
  if (cost <= spendable) return "";
  if (cost > balance) return `${ltz(cost - balance)} to go`;
  return isLinked ? "More than the link lets you spend today" : "Link your wallet to use what else is in it";
}

function newCard(perk, redeemed) {
  const card = copyOf("perk");
  const button = card.querySelector("button");
  card.querySelector("h3").textContent = perk.name;
  card.querySelector(".category").textContent = perk.category;
  const icon = ICONS.includes(perk.category) ? perk.category : "goods";
  card.querySelector("use").setAttribute("href", `#icon-${icon}`);
  button.ariaLabel = `Redeem ${perk.name}`;
  onPress(button, () => redeem(perk.id, redeemed));
  return { card, button, perk };
}

async function redeem(perkId, redeemed) {
  awaited[perkId] = true;
  keep();
  const { confirmationCode, perk } = await atShownPrice(perkId, redeemed);
  if (confirmationCode === null) return tell("This takes longer than usual. Press again to see your code.");
  tell("");
  const isNew = keepCode(perk, confirmationCode);
  element("code-title").textContent = perk.name;
  element("code-text").textContent = confirmationCode;
  element("code").showModal();
  if (isNew) redeemed(perk);
}

// A perk with a higher price than shown is not redeemed: the page shows the new price.
async function atShownPrice(perkId, redeemed) {
  const { cost } = cards.get(perkId).perk;
  try {
    return await redemption(perkId, cost);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    await load(shownMoney, redeemed).catch(() => {}); // The refusal is the message to show.
    if (cards.get(perkId).perk.cost <= cost) throw error;
    throw new Refusal(`${error.message} Press Redeem again to take it at that price.`);
  }
}

// The code exists once a block has the redemption; a retry before that is the same redemption.
async function redemption(perkId, maxCost) {
  const ends = performance.now() + LONGEST_WAIT_MILLISECONDS;
  for (;;) {
    const said = await send("redeem", { perkId, maxCost: Math.ceil(maxCost) }); // Whole LTZ.
    if (said.confirmationCode !== null || performance.now() > ends) return said;
    tell("One moment: your order is in, and the next block confirms it.");
    await pause(1000);
  }
}

// A retry within a minute returns the same code, which is neither stored nor paid again.
function keepCode({ id, name }, code) {
  const isNew = !codes.some((each) => each.code === code);
  if (isNew) codes.unshift({ name, code });
  delete awaited[id];
  keep();
  showCodes();
  return isNew;
}

function kept() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT)) ?? { codes: [], awaited: {} };
  } catch {
    return { codes: [], awaited: {} }; // This browser stores nothing.
  }
}

function keep() {
  try {
    sessionStorage.setItem(KEPT, JSON.stringify({ codes, awaited }));
  } catch {
    // Without storage the codes stay until the member leaves the page.
  }
}

export function showCodes() {
  element("codes").hidden = codes.length === 0;
  element("code-list").replaceChildren(
    ...codes.map(({ name, code }) => {
      const entry = copyOf("code-entry");
      entry.querySelector("dt").textContent = name;
      entry.querySelector("dd").textContent = code;
      return entry;
    }),
  );
}
