// What the model says: a label with its probabilities, a ranking, or a translation.

import { element, printable, shortened, shownWord } from "./trace.js";

export function showAnswer(place, trace) {
  const said = trace.prediction;
  place.replaceChildren();
  if (said.probabilities) place.append(chances(said));
  else if (said.ranking) place.append(ranking(said.ranking));
  else if (said.translation !== undefined) {
    place.append(element("p", { className: "translation", textContent: printable(said.translation) || "(no words)" }));
  }
}

function chances(said) {
  const list = element("dl", { className: "chances" });
  const order = Object.entries(said.probabilities).sort((a, b) => b[1] - a[1]);
  for (const [label, share] of order) {
    const told = `${(100 * share).toFixed(1)}%`, full = element("span");
    full.style.width = told;
    const bar = element("div", { className: "bar" }, full);
    bar.setAttribute("aria-hidden", "true");
    list.append(element("dt", { textContent: label }), element("dd", {}, bar), element("dd", { textContent: told }));
  }
  return list;
}

function ranking(rows) {
  const list = element("ol");
  for (const row of rows) {
    const share = `${(100 * row.probability).toFixed(1)}%`;
    list.append(element("li", { textContent: `${printable(row.text)} (${share}, score ${row.score.toFixed(2)})` }));
  }
  return list;
}

/** What should be known of the texts: words cut off, words unknown. */
export function showNotes(place, trace) {
  place.replaceChildren();
  for (const text of trace.texts) {
    if (text.cut) {
      const told = `${text.name}: ${text.cut} words more than the model reads were left out.`;
      place.append(element("li", { textContent: told }));
    }
    if (text.unknown.length) {
      const words = text.unknown.slice(0, 12).map((at) => `“${shownWord(shortened(text.words[at]))}”`).join(", ");
      const more = text.unknown.length > 12 ? ", …" : "";
      place.append(element("li", { textContent: `${text.name}: the model does not know ${words}${more}.` }));
    }
  }
}
