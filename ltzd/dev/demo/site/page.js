// Shared by all parts of the page: elements, text formats, and the message line.

import { Refusal } from "./api.js";

export const element = (id) => document.getElementById(id);

export const copyOf = (template) => element(template).content.firstElementChild.cloneNode(true);

// Shows the items in this order. An item that is in its place is not moved, which would take its focus.
export function arrange(list, items) {
  for (const item of [...list.children]) if (!items.includes(item)) item.remove();
  items.forEach((item, place) => {
    if (list.children[place] !== item) list.insertBefore(item, list.children[place] ?? null);
  });
}

export const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

const amounts = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

export const amount = (number) => amounts.format(number);
export const ltz = (number) => `${amount(number)} LTZ`;
export const days = (number) => `${amount(number)} ${number === 1 ? "day" : "days"}`;

const GOOD_NEWS_MILLISECONDS = 15_000;
let fading;

// A success message disappears by itself; an error stays until it is dismissed.
export function tell(words, isBad = false) {
  clearTimeout(fading);
  if (words && !isBad) fading = setTimeout(tell, GOOD_NEWS_MILLISECONDS, "");
  element("news-text").textContent = words;
  element("news").className = `news${words ? " shown" : ""}${isBad ? " bad" : ""}`;
  element("news-close").hidden = !words;
}

element("news-close").addEventListener("click", () => tell(""));

// The result of work after which the button is not needed again.
export const SPENT = "spent";

// Runs the work at a press and ignores presses meanwhile. The button is not `disabled`, which would
// take its focus.
export function onPress(button, work) {
  button.addEventListener("click", () => alone(button, work));
}

export async function alone(button, work) {
  if (button.ariaDisabled === "true") return;
  button.ariaDisabled = button.ariaBusy = "true";
  let isSpent = false;
  try {
    isSpent = (await orTell(work)) === SPENT;
  } finally {
    button.ariaBusy = "false";
    button.ariaDisabled = String(isSpent);
  }
}

// Shows the API's own message of a refusal.
export async function orTell(work) {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    tell(error.message, true);
  }
}
