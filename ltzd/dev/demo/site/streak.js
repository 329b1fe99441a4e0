// The streak: a moon that fills up until the next milestone, and the bonuses to claim.

import { send } from "./api.js";
import { amount, copyOf, days, element, ltz, onPress, tell } from "./page.js";

const RADIUS = 50;

export function show(streak, claimed) {
  const next = streak.nextMilestone;
  const part = next ? Math.min(streak.currentStreak / next.days, 1) : 1;
  element("streak-days").textContent = amount(streak.currentStreak);
  element("streak-unit").textContent = streak.currentStreak === 1 ? "day in a row" : "days in a row";
  element("multiplier").textContent = `×${amount(streak.multiplier)} LTZ per visit`;
  element("multiplier").hidden = streak.multiplier === 1;
  element("moon-light").setAttribute("d", moonlight(part));
  element("progress").value = part;
  element("next-milestone").textContent = next ? ahead(streak, next) : "You have reached every milestone.";
  showMilestones(streak.unclaimedMilestones, claimed);
}

function ahead(streak, next) {
  const left = next.days - streak.currentStreak;
  const bonus = `your ${next.days}-day bonus of ${ltz(next.bonus)}`;
  if (streak.currentStreak === 0) return `Check in ${days(next.days)} in a row for ${bonus}.`;
  return `${amount(left)} more ${left === 1 ? "day" : "days"} to ${bonus}.`;
}

// The lit part of a waxing moon.
function moonlight(part) {
  const terminator = RADIUS * Math.abs(1 - 2 * part);
  const side = part > 0.5 ? 1 : 0;
  return `M0 -${RADIUS}A${RADIUS} ${RADIUS} 0 0 1 0 ${RADIUS}A${terminator} ${RADIUS} 0 0 ${side} 0 -${RADIUS}`;
}

function showMilestones(unclaimed, claimed) {
  element("milestones").replaceChildren(
    ...unclaimed.map((milestone) => {
      const item = copyOf("milestone");
      const button = item.querySelector("button");
      item.querySelector(".words").textContent = `${ltz(milestone.bonus)} for ${days(milestone.days)} in a row`;
      button.ariaLabel = `Claim ${ltz(milestone.bonus)} for ${days(milestone.days)} in a row`;
      onPress(button, () => claim(milestone, item, claimed));
      return item;
    }),
  );
}

async function claim(milestone, item, claimed) {
  const { bonusLtz } = await send("claim-milestone", { milestoneDays: milestone.days });
  item.remove();
  element("streak-title").focus();
  tell(`${ltz(bonusLtz)} for ${days(milestone.days)} in a row. Well done!`);
  claimed(bonusLtz);
}
