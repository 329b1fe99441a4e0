// The site's loyalty routes, for the scripts of the shortcodes and blocks; page.php sets the page's data.
(() => {
  "use strict";

  const { root, renewal, me, member, words } = window.ltzdLoyaltyPage;
  let { nonce } = window.ltzdLoyaltyPage;
  const language = known(document.documentElement.lang);
  const amounts = new Intl.NumberFormat(language, { maximumFractionDigits: 2 });

  // Intl throws at a language that is no BCP 47 tag, as WordPress's own pt-PT-ao90 and some themes' pt_PT are.
  function known(language) {
    for (let parts = language.split(/[-_]/); parts.length > 0; parts.pop()) {
      try {
        return Intl.getCanonicalLocales(parts.join("-"))[0];
      } catch {
        continue;
      }
    }
    return "en";
  }

  class Refusal extends Error {
    constructor(message, code) {
      super(message);
      this.code = code;
    }
  }

  const fill = (text, ...values) => text.replace(/%(?:([1-9])\$)?[ds]/g, (_, at = 1) => values[at - 1]);
  const amount = (ltz) => fill(words.amount, amounts.format(ltz));

  // Returns the content of a success; throws a Refusal otherwise.
  async function send(path, method = "GET", body = undefined) {
    let [answer, content] = await ask(path, method, body);
    if (content.code === "rest_cookie_invalid_nonce" && (await renew())) {
      [answer, content] = await ask(path, method, body);
    }
    nonce = answer.headers.get("X-WP-Nonce") || nonce;
    if (answer.ok && content.success) return content;
    throw new Refusal(content.message || words.silence, content.code);
  }

  async function ask(path, method, body) {
    const headers = { "X-WP-Nonce": nonce };
    if (body) headers["Content-Type"] = "application/json";
    try {
      const request = { method, headers, body: body && JSON.stringify(body), credentials: "same-origin" };
      const answer = await fetch(root + path, request);
      return [answer, await answer.json()];
    } catch {
      throw new Refusal(words.silence);
    }
  }

  // A cached page may hold a nonce of yesterday. WordPress gives a new one to the member who is logged in by
  // now: another member must neither pay nor get what is pressed on this page.
  async function renew() {
    try {
      const fresh = (await read(renewal)).trim();
      if (!/^[0-9a-f]{10}$/.test(fresh)) return false;
      const { id } = JSON.parse(await read(me, { "X-WP-Nonce": fresh }));
      if (id !== member) throw new Refusal(words.other);
      nonce = fresh;
      return true;
    } catch (error) {
      if (error instanceof Refusal) throw error;
      return false;
    }
  }

  async function read(url, headers = {}) {
    const answer = await fetch(url, { headers, credentials: "same-origin" });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    return answer.text();
  }

  // Shows the member's new state after a success or a refusal, which is the news even if this fails.
  async function renewed(reload) {
    try {
      return await reload();
    } catch (error) {
      console.warn("ltzd-loyalty:", error);
      return undefined;
    }
  }

  // The member's redemptions in this tab: `codes`, newest first, and `awaited`, the perks that have given no
  // code yet. Their price may be paid already, and only another press brings the code, so their buttons work
  // though the member cannot afford a second one.
  const KEPT = `ltzd-loyalty-${member}`;
  const { codes, awaited } = kept();
  const isOpen = (id, isAffordable) => isAffordable || id in awaited;

  function kept() {
    try {
      return JSON.parse(sessionStorage.getItem(KEPT)) || { codes: [], awaited: {} };
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
    showCodes();
  }

  // A repeated request has the same code.
  function keepCode({ id, name }, code) {
    delete awaited[id];
    if (!codes.some((each) => each.code === code)) codes.unshift({ name, code });
    keep();
  }

  function showCodes() {
    for (const part of document.querySelectorAll('[data-part="codes"]')) {
      part.hidden = !codes.length;
      part.querySelector("ul").replaceChildren(...codes.map(({ name, code }) => line(name, code)));
    }
  }

  function line(...texts) {
    const item = document.createElement("li");
    item.append(...texts.flatMap((text) => [Object.assign(document.createElement("span"), { textContent: text }), " "]));
    return item;
  }

  // Redeems for at most `cost`, in whole LTZ; `reload` reads the perks again. Returns the news for the member.
  async function redeem({ id, cost }, reload) {
    awaited[id] = true;
    keep();
    try {
      const { confirmationCode, perk } = await send("redeem", "POST", { perkId: id, maxCost: Math.ceil(cost) });
      if (confirmationCode !== null) keepCode(perk, confirmationCode);
      await renewed(reload);
      return confirmationCode === null ? words.waiting : fill(words.code, confirmationCode);
    } catch (refusal) {
      if (refusal.code !== "redeem_failed") throw refusal;
      const perks = await renewed(reload);
      const current = perks && perks.find((perk) => perk.id === id);
      if (!current || current.cost <= cost) throw refusal;
      return fill(words.price, amount(current.cost));
    }
  }

  // Shows that `work` has begun, and then the news that it returns, or its fault. A second press does nothing
  // meanwhile: a redemption may take a minute.
  function onWork(element, type, tell, work) {
    let isBusy = false;
    element.addEventListener(type, async (event) => {
      event.preventDefault();
      if (isBusy) return;
      isBusy = true;
      tell(words.moment);
      try {
        tell(await work(element));
      } catch (error) {
        tell(reason(error));
        if (!(error instanceof Refusal)) throw error;
      } finally {
        isBusy = false;
      }
    });
  }

  // Shows the items in this order. An item that is in its place is not moved, which would take its focus.
  function arrange(list, items) {
    for (const item of [...list.children]) if (!items.includes(item)) item.remove();
    items.forEach((item, place) => {
      if (list.children[place] !== item) list.insertBefore(item, list.children[place] || null);
    });
  }

  const reason = (error) => (error instanceof Refusal ? error.message : words.silence);

  showCodes();
  window.ltzdLoyalty = { words, language, fill, amount, send, renewed, redeem, isOpen, onWork, arrange, reason };
})();
