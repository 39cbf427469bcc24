// What the model says: a label with its probabilities, a ranking, or a translation.

import { element, printable } from "./trace.js";

export function showAnswer(place, trace) {
  const said = trace.prediction;
  place.replaceChildren();
  if (said.probabilities) place.append(chances(said));
  else if (said.ranking) place.append(ranking(said.ranking));
  else if (said.translation !== undefined) {
    place.append(element("p", { className: "translation", textContent: said.translation || "(no words)" }));
  }
}

function chances(said) {
  const list = element("dl", { className: "chances" });
  const order = Object.entries(said.probabilities).sort((a, b) => b[1] - a[1]);
  for (const [label, share] of order) {
    const full = element("span");
    full.style.width = `${(100 * share).toFixed(1)}%`;
    const bar = element("div", { className: "bar" }, full);
    bar.setAttribute("aria-hidden", "true");
    list.append(
      element("dt", { textContent: label }), bar,
      element("dd", { textContent: `${(100 * share).toFixed(1)}%` }),
    );
  }
  // A list of terms may hold only terms and descriptions: the bars go inside these.
  for (const bar of list.querySelectorAll(".bar")) {
    const holder = element("dd");
    bar.replaceWith(holder);
    holder.append(bar);
  }
  return list;
}

function ranking(rows) {
  const list = element("ol");
  for (const row of rows) {
    const share = `${(100 * row.probability).toFixed(1)}%`;
    list.append(element("li", { textContent: `${row.text} (${share}, score ${row.score.toFixed(2)})` }));
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
      const words = text.unknown.slice(0, 12).map((at) => `“${printable(text.words[at])}”`).join(", ");
      const more = text.unknown.length > 12 ? ", …" : "";
      place.append(element("li", { textContent: `${text.name}: the model does not know ${words}${more}.` }));
    }
  }
}
