// What an action of a client answers, as text without values, so that two chains can be compared.

export function shapeOf(value) {
  if (value === null || value === undefined) return "nothing";
  if (Array.isArray(value)) return value.length ? [shapeOf(value[0])] : [];
  if (typeof value === "object") {
    const names = Object.keys(value).filter((name) => typeof value[name] !== "function");
    return Object.fromEntries(names.sort().map((name) => [name, shapeOf(value[name])]));
  }
  if (typeof value === "string" && value.startsWith("0x")) return "hex";
  return typeof value;
}

// The JSON-RPC error's code is in one of the causes; other errors have a name only.
export function refusalOf(error) {
  for (let cause = error; cause; cause = cause.cause ?? cause.info?.error) {
    if (typeof cause.code === "number") return `refuses with ${cause.code}`;
  }
  return `fails with ${error.name}`;
}

// Runs the actions in order, each after its preparation; the client's transport fills `methods`.
export async function outcomesOf(actions, methods) {
  const outcomes = [];
  for (const [action, run, prepare, named] of actions) {
    await prepare?.();
    methods.clear();
    let outcome;
    try {
      outcome = { shape: shapeOf(await run()) };
    } catch (error) {
      outcome = { refusal: refusalOf(error) };
    }
    outcomes.push({ action, methods: named ?? [...methods], ...outcome });
  }
  return outcomes;
}
