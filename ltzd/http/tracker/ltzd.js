// ltzd.js: sends a page's customer events to ltzd. Sets no cookies and stores nothing.
// <script src="https://ltzd.example/ltzd.js" data-brand="0x…" data-email="…" defer></script>
(() => {
  "use strict";

  const script = document.currentScript;
  if (!script || window.ltzd) return;
  const { brand, domain, emailFrom } = script.dataset;
  const api = new URL("service-api/", script.src).href;
  const PAUSE_MS = 4000;
  const LONGEST_MS = 30000;
  const LONGEST_URL = 2048;

  let email = script.dataset.email || "";
  let rules = [];
  let isPlanned = false;
  const seen = new Set(); // Event types, each with its page.
  const waiting = []; // Events without an address or a visitor.

  const later = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const trimmed = (path) => path.replace(/\/+$/, "") || "/";

  // A pattern is a path; * stands for any characters. A slash at the end does not matter.
  function fits(pattern) {
    if (!pattern.startsWith("/") || /[?#]/.test(pattern)) return false;
    const parts = trimmed(new URL(location.origin + pattern).pathname).split("*");
    const text = parts.map((part) => part.replace(/[.+^${}()|[\]\\]/g, "\\$&")).join(".*");
    return new RegExp(`^${text}$`).test(trimmed(location.pathname));
  }

  function isShown(selector) {
    try {
      return [...document.querySelectorAll(selector)].some((node) => node.getClientRects().length);
    } catch {
      return false; // No selector of this browser.
    }
  }

  // An empty list asks for nothing; the method's own list must not be empty.
  function hasHappened({ detectionMethod, detectionConfig: { urlPatterns, successSelectors } }) {
    const own = { url_pattern: urlPatterns, success_selector: successSelectors }[detectionMethod];
    return (
      own?.length > 0 &&
      (!urlPatterns.length || urlPatterns.some(fits)) &&
      (!successSelectors.length || successSelectors.some(isShown))
    );
  }

  function look() {
    isPlanned = false;
    for (const rule of rules) {
      const key = `${rule.eventType} ${location.pathname}`;
      if (seen.has(key) || !hasHappened(rule)) continue;
      seen.add(key);
      track(rule.eventType);
    }
  }

  function plan() {
    if (isPlanned) return;
    isPlanned = true;
    setTimeout(look, 50);
  }

  // Resolves with ltzd's answer, once the address is known.
  function track(eventType, metadata) {
    const page = location.origin + location.pathname; // A query may hold what is no one's business.
    const sourceUrl = page.length > LONGEST_URL ? location.origin : page;
    const event = { brandId: brand, eventType, sourceUrl, domain, metadata };
    return new Promise((resolve) => {
      waiting.push(() => resolve(send({ ...event, userEmail: email })));
      release();
    });
  }

  function release() {
    while (email && !document.prerendering && waiting.length) waiting.shift()();
  }

  // ltzd refuses a duplicate for a minute; a repetition after it would count.
  async function send(event) {
    const ends = Date.now() + LONGEST_MS;
    for (let pause = PAUSE_MS; ; pause += PAUSE_MS) {
      const answer = await post(event);
      if (answer.status === 0 || answer.status === 503) {
        await later(pause);
        if (Date.now() < ends) continue;
      }
      const detail = { eventType: event.eventType, ...answer };
      document.dispatchEvent(new CustomEvent("ltzd", { detail }));
      return answer;
    }
  }

  async function post(event) {
    const headers = { "Content-Type": "application/json" };
    const body = JSON.stringify(event);
    try {
      const answer = await fetch(`${api}manual-event`, { method: "POST", headers, body, credentials: "omit", keepalive: true });
      return { ...(await answer.json()), status: answer.status };
    } catch {
      return { success: false, status: 0 };
    }
  }

  function identify(address) {
    email = String(address || "").trim();
    release();
  }

  async function start() {
    const answer = await fetch(`${api}event-config?brandId=${encodeURIComponent(brand)}`, { credentials: "omit" });
    rules = (await answer.json()).events || [];
    const attributeFilter = ["class", "style", "hidden", "open"];
    const changes = { subtree: true, childList: true, attributeFilter };
    new MutationObserver(plan).observe(document, changes);
    for (const name of ["pushState", "replaceState"]) {
      const original = history[name];
      history[name] = function (...values) {
        original.apply(this, values);
        plan();
      };
    }
    addEventListener("popstate", plan);
    addEventListener("load", plan);
    plan();
  }

  if (emailFrom) {
    addEventListener("change", ({ target }) => {
      if (target.matches?.(emailFrom) && target.validity.valid && target.value) identify(target.value);
    }, true);
  }
  document.addEventListener("prerenderingchange", release);
  window.ltzd = { identify, track };
  start().catch(() => console.warn("ltzd: no configuration of this brand"));
})();
