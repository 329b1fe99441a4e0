// What slither finds, beside what slither.md has accepted.
//
// In slither.md a heading names the detector, an indented line is a finding, and the paragraph below says why it is accepted; the
// same paragraph may serve several findings. A finding holds no line numbers, so that it outlives changes elsewhere in its file.

const INDENT = "    ";

/** The findings of a report of slither's that touch our sources: OpenZeppelin's are OpenZeppelin's. */
export function findingsOf(report) {
  return report.flatMap(({ check, description, elements }) => {
    const places = elements.map((each) => each.source_mapping).filter((each) => each?.filename_relative.startsWith("src/"));
    if (places.length === 0) return [];
    const [{ filename_relative: file, lines }] = places;
    return [{ detector: check, text: `${file}: ${description.trim().replace(/\s+/g, " ")}`, line: lines[0] }];
  });
}

/** The findings that a text in the form of slither.md lists. Throws where a reason is missing. */
export function acceptedIn(text) {
  const accepted = [];
  let detector = null;
  let unexplained = [];
  const close = () => {
    if (unexplained.length > 0) throw new Error(`slither.md does not say why this is accepted:\n${INDENT}${unexplained[0].text}`);
  };
  for (const line of text.split("\n")) {
    if (line.startsWith("#")) {
      close();
      detector = line.startsWith("## ") ? line.slice(3).trim() : null;
    } else if (line.startsWith(INDENT) && detector !== null) {
      unexplained.push({ detector, text: line.trim() });
    } else if (line.trim() !== "") {
      accepted.push(...unexplained);
      unexplained = [];
    }
  }
  close();
  return accepted;
}

/** What is in `some` and not in `others`; one that occurs twice is matched by two. */
function missing(some, others) {
  const left = others.map(({ detector, text }) => `${detector} ${text}`);
  return some.filter(({ detector, text }) => {
    const at = left.indexOf(`${detector} ${text}`);
    if (at >= 0) left.splice(at, 1);
    return at < 0;
  });
}

/** What is wrong, in words; nothing when every finding is accepted and every accepted one was found. */
export function complaints(found, accepted) {
  const fresh = missing(found, accepted).map(
    ({ detector, text, line }) => `a new finding of ${detector}, at line ${line}:\n${INDENT}${text}`,
  );
  const stale = missing(accepted, found).map(
    ({ detector, text }) => `slither.md accepts a finding of ${detector} that is no longer found:\n${INDENT}${text}`,
  );
  return [...fresh, ...stale];
}
