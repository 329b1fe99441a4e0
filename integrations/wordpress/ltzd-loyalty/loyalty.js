// The shortcode [ltzd_loyalty]: requests the site's loyalty routes and shows their answers as text.
(() => {
  "use strict";

  const { words, language, fill, amount, send, renewed, redeem, isOpen, onWork, arrange, reason } = window.ltzdLoyalty;

  for (const root of document.querySelectorAll(".ltzd-loyalty[data-member]")) start(root);

  function start(root) {
    const part = (name) => root.querySelector(`[data-part="${name}"]`);
    const tell = (text) => (part("news").textContent = text);

    async function load() {
      const [me, { perks }] = await Promise.all([send("me"), send("perks")]);
      showWallet(me);
      showPerks(perks, me);
      return perks;
    }

    function showWallet({ balance, spendable, linked, link }) {
      part("balance").textContent = amount(balance);
      part("spendable").textContent = amount(spendable);
      part("linked").hidden = !linked;
      part("unlinked").hidden = linked;
      if (!link) return;
      const end = new Date(link.expiresAt).toLocaleDateString(language);
      part("link").textContent = fill(words.allowance, end, amount(link.dailyAllowance), amount(link.allowanceLeft));
    }

    // A perk keeps its button between updates, so that a focused button keeps the focus.
    const cards = new Map();

    function showPerks(perks, { spendable }) {
      for (const perk of perks) {
        if (!cards.has(perk.id)) cards.set(perk.id, newCard());
        const card = cards.get(perk.id);
        card.perk = perk;
        card.name.textContent = perk.name;
        card.price.textContent = perk.cost === 0 ? words.free : amount(perk.cost);
        card.button.setAttribute("aria-label", fill(words.redeem, perk.name));
        card.button.disabled = !isOpen(perk.id, perk.available && perk.cost <= spendable);
      }
      arrange(part("perks"), perks.map(({ id }) => cards.get(id).item));
    }

    function newCard() {
      const item = part("perk").content.firstElementChild.cloneNode(true);
      const find = (name) => item.querySelector(`[data-part="${name}"]`);
      const card = { item, name: find("name"), price: find("price"), button: item.querySelector("button") };
      onWork(card.button, "click", tell, () => redeem(card.perk, load));
      return card;
    }

    async function link(form) {
      await send("link", "POST", { code: form.elements.code.value.trim() });
      form.reset();
      await renewed(load);
      part("unlink").focus();
      return words.linked;
    }

    async function unlink() {
      await send("link", "DELETE");
      await renewed(load);
      part("unlinked").elements.code.focus();
      return words.unlinked;
    }

    async function confirmEmail(form) {
      const { confirmed } = await send("confirm-email", "POST", { email: form.elements.email.value.trim() });
      return confirmed ? words.confirmed : words.mailed;
    }

    onWork(part("unlinked"), "submit", tell, link);
    onWork(part("unlink"), "click", tell, unlink);
    onWork(part("confirm"), "submit", tell, confirmEmail);
    load().catch((error) => tell(reason(error)));
  }
})();
