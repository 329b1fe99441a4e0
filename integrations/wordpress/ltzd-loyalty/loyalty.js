// The shortcode's page: requests the site's loyalty routes and shows their answers as text.
(() => {
  "use strict";

  const amounts = new Intl.NumberFormat(document.documentElement.lang || "en", { maximumFractionDigits: 2 });

  class Refusal extends Error {
    constructor(message, code) {
      super(message);
      this.code = code;
    }
  }

  for (const root of document.querySelectorAll(".ltzd-loyalty[data-root]")) start(root);

  function start(root) {
    const part = (name) => root.querySelector(`[data-part="${name}"]`);
    const words = JSON.parse(root.dataset.words);
    let nonce = root.dataset.nonce;

    const fill = (text, ...values) => text.replace(/%(?:([1-9])\$)?s/g, (_, at = 1) => values[at - 1]);
    const tell = (text) => (part("news").textContent = text);

    async function send(path, method = "GET", body = undefined) {
      const headers = { "X-WP-Nonce": nonce };
      if (body) headers["Content-Type"] = "application/json";
      let answer;
      let content;
      try {
        const request = { method, headers, body: body && JSON.stringify(body), credentials: "same-origin" };
        answer = await fetch(root.dataset.root + path, request);
        content = await answer.json();
      } catch {
        throw new Refusal(words.silence);
      }
      nonce = answer.headers.get("X-WP-Nonce") || nonce;
      if (answer.ok && content.success) return content;
      throw new Refusal(content.message || words.silence, content.code);
    }

    async function load() {
      const [me, { perks }] = await Promise.all([send("me"), send("perks")]);
      showWallet(me);
      showPerks(perks, me);
      return perks;
    }

    function showWallet({ balance, spendable, linked, link }) {
      part("balance").textContent = `${amounts.format(balance)} LTZ`;
      part("spendable").textContent = `${amounts.format(spendable)} LTZ`;
      part("linked").hidden = !linked;
      part("unlinked").hidden = linked;
      if (!link) return;
      const end = new Date(link.expiresAt).toLocaleDateString(document.documentElement.lang || "en");
      const { dailyAllowance, allowanceLeft } = link;
      part("link").textContent = fill(words.allowance, end, amounts.format(dailyAllowance), amounts.format(allowanceLeft));
    }

    // A perk keeps its button between updates, so that a focused button keeps the focus.
    const cards = new Map();

    function showPerks(perks, { spendable }) {
      for (const perk of perks) {
        if (!cards.has(perk.id)) cards.set(perk.id, newCard());
        const card = cards.get(perk.id);
        card.perk = perk;
        card.name.textContent = perk.name;
        card.price.textContent = perk.cost === 0 ? words.free : `${amounts.format(perk.cost)} LTZ`;
        card.button.setAttribute("aria-label", fill(words.redeem, perk.name));
        card.button.disabled = !perk.available || perk.cost > spendable;
      }
      part("perks").replaceChildren(...perks.map(({ id }) => cards.get(id).item));
    }

    function newCard() {
      const item = part("perk").content.firstElementChild.cloneNode(true);
      const find = (name) => item.querySelector(`[data-part="${name}"]`);
      const card = { item, name: find("name"), price: find("price"), button: item.querySelector("button") };
      onWork(card.button, "click", () => redeem(card.perk));
      return card;
    }

    // Redeems for at most the price that the page shows, in whole LTZ.
    async function redeem({ id, cost }) {
      try {
        const { confirmationCode } = await send("redeem", "POST", { perkId: id, maxCost: Math.ceil(cost) });
        tell(confirmationCode === null ? words.waiting : fill(words.code, confirmationCode));
      } catch (refusal) {
        const current = (await load()).find((perk) => perk.id === id);
        if (refusal.code !== "redeem_failed" || !current || current.cost <= cost) throw refusal;
        return tell(fill(words.price, amounts.format(current.cost)));
      }
      await load();
    }

    async function link(form) {
      await send("link", "POST", { code: form.elements.code.value.trim() });
      form.reset();
      await load();
      tell(words.linked);
      part("unlink").focus();
    }

    async function unlink() {
      await send("link", "DELETE");
      await load();
      tell(words.unlinked);
      part("unlinked").elements.code.focus();
    }

    async function confirmEmail(form) {
      const { confirmed } = await send("confirm-email", "POST", { email: form.elements.email.value.trim() });
      tell(confirmed ? words.confirmed : words.mailed);
    }

    // A second press does nothing while the first is in progress.
    function onWork(element, type, work) {
      let isBusy = false;
      element.addEventListener(type, async (event) => {
        event.preventDefault();
        if (isBusy) return;
        isBusy = true;
        try {
          await work(element);
        } catch (error) {
          if (!(error instanceof Refusal)) throw error;
          tell(error.message);
        } finally {
          isBusy = false;
        }
      });
    }

    onWork(part("unlinked"), "submit", link);
    onWork(part("unlink"), "click", unlink);
    onWork(part("confirm"), "submit", confirmEmail);
    load().catch((error) => tell(error instanceof Refusal ? error.message : words.silence));
  }
})();
