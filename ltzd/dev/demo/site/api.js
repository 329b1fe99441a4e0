// A client of the site API for the page's visitor.

const SILENCE = "The loyalty programme gives no answer. Please try again in a moment.";
const LONGEST_MILLISECONDS = 100_000;

let nonce = document.body.dataset.nonce;

// `message` can be shown to the visitor.
export class Refusal extends Error {}

export const ask = (path) => exchanged(path, {});

export const send = (path, body) => exchanged(path, { method: "POST", body: JSON.stringify(body) });

export const remove = (path) => exchanged(path, { method: "DELETE" });

async function exchanged(path, request) {
  const { answer, said } = await exchange(path, request);
  // The site renews a nonce long before it expires.
  nonce = answer.headers.get("X-WP-Nonce") ?? nonce;
  if (answer.ok && said.success) return said;
  throw new Refusal(said.message || SILENCE);
}

async function exchange(path, request) {
  const headers = nonce ? { "X-WP-Nonce": nonce } : {};
  if (request.body) headers["Content-Type"] = "application/json";
  const signal = AbortSignal.timeout(LONGEST_MILLISECONDS);
  try {
    const answer = await fetch(`wp-json/loyalty/v1/${path}`, { ...request, headers, signal });
    return { answer, said: await answer.json() };
  } catch {
    throw new Refusal(SILENCE);
  }
}
