// The blocks of a member: fills in what ltzd knows of the member, and answers the buttons.
(() => {
  "use strict";

  const { words, fill, amount, send, renewed, redeem, isOpen, onWork, arrange, reason } = window.ltzdLoyalty;
  const blocks = (name) => [...document.querySelectorAll(`[data-ltzd-block="${name}"][data-member]`)];
  const part = (block, name) => block.querySelector(`[data-part="${name}"]`);
  const teller = (block) => (text) => (part(block, "news").textContent = text);
  const streaks = blocks("streak");
  const wallets = blocks("points");
  const offers = blocks("perks");

  async function load() {
    const me = await send("me");
    for (const block of wallets) {
      part(block, "balance").textContent = amount(me.balance);
      part(block, "spendable").textContent = amount(me.spendable);
    }
    for (const block of streaks) showStreak(block, me.streak);
    for (const block of offers) showPrices(block, me.spendable);
  }

  function showStreak(block, { currentStreak, nextMilestone, unclaimedMilestones }) {
    part(block, "days").textContent = String(currentStreak);
    const next = part(block, "next");
    next.hidden = !nextMilestone;
    if (nextMilestone) next.textContent = fill(words.next, nextMilestone.days, amount(nextMilestone.bonus));
    showMilestones(block, unclaimedMilestones);
  }

  // A milestone keeps its button while it can be claimed, so that a focused button keeps the focus.
  function showMilestones(block, milestones) {
    const list = part(block, "milestones");
    const had = new Map([...list.children].map((item) => [Number(item.dataset.days), item]));
    arrange(list, milestones.map(({ days, bonus }) => had.get(days) || newMilestone(block, days, bonus)));
    list.hidden = !milestones.length;
  }

  function newMilestone(block, days, bonus) {
    const item = part(block, "milestone").content.firstElementChild.cloneNode(true);
    const button = item.querySelector("button");
    item.dataset.days = String(days);
    item.querySelector("span").textContent = fill(words.reached, days, amount(bonus));
    button.setAttribute("aria-label", fill(words.claim, days));
    onWork(button, "click", teller(block), async () => {
      const { bonusLtz } = await send("claim-milestone", "POST", { milestoneDays: days });
      await renewed(load);
      part(block, "check-in").focus();
      return fill(words.claimed, amount(bonusLtz));
    });
    return item;
  }

  const costOf = (item) => Number(item.dataset.cost);

  function showPrices(block, spendable) {
    for (const item of block.querySelectorAll("li[data-perk]")) {
      const button = item.querySelector("button");
      button.hidden = false;
      const isAffordable = item.dataset.available === "true" && costOf(item) <= spendable;
      button.disabled = !isOpen(item.dataset.perk, isAffordable);
    }
  }

  async function reloadPerks(block) {
    const { perks } = await send("perks");
    for (const item of block.querySelectorAll("li[data-perk]")) {
      const perk = perks.find(({ id }) => id === item.dataset.perk);
      item.dataset.available = String(Boolean(perk && perk.available));
      if (!perk) continue;
      item.dataset.cost = String(perk.cost);
      part(item, "price").textContent = perk.cost === 0 ? words.free : amount(perk.cost);
    }
    await load();
    return perks;
  }

  for (const block of streaks) {
    onWork(part(block, "check-in"), "click", teller(block), async () => {
      const { reward, alreadyClaimed } = await send("checkin", "POST");
      await renewed(load);
      return alreadyClaimed ? words.again : fill(words.earned, amount(reward));
    });
  }
  for (const block of offers) {
    for (const item of block.querySelectorAll("li[data-perk]")) {
      const perk = () => ({ id: item.dataset.perk, cost: costOf(item) });
      onWork(item.querySelector("button"), "click", teller(block), () => redeem(perk(), () => reloadPerks(block)));
    }
  }

  const all = [...streaks, ...wallets, ...offers];
  if (all.length) {
    load().catch((error) => {
      for (const block of all) teller(block)(reason(error));
    });
  }
})();
