// The prediction: a label with its probabilities, a ranking, or a translation.

import { clipWord, createElement, isolateWord, makePrintable } from "./trace.js";

export function showPrediction(container, { prediction }) {
  container.replaceChildren();
  if (prediction.probabilities) container.append(createBars(prediction.probabilities));
  else if (prediction.ranking) container.append(createRanking(prediction.ranking));
  else if (prediction.translation !== undefined) {
    const textContent = makePrintable(prediction.translation) || "(no words)";
    container.append(createElement("p", { className: "translation", textContent }));
  }
}

function createBars(probabilities) {
  const list = createElement("dl", { className: "probabilities" });
  for (const [label, probability] of Object.entries(probabilities).sort((a, b) => b[1] - a[1])) {
    const percent = `${(100 * probability).toFixed(1)}%`, filled = createElement("span");
    filled.style.width = percent;
    const bar = createElement("div", { className: "bar" }, filled);
    bar.setAttribute("aria-hidden", "true");
    list.append(
      createElement("dt", { textContent: label }),
      createElement("dd", {}, bar),
      createElement("dd", { textContent: percent }),
    );
  }
  return list;
}

function createRanking(rows) {
  const list = createElement("ol");
  for (const row of rows) {
    const percent = `${(100 * row.probability).toFixed(1)}%`;
    const textContent = `${makePrintable(row.text)} (${percent}, score ${row.score.toFixed(2)})`;
    list.append(createElement("li", { textContent }));
  }
  return list;
}

/** Lists truncated texts and unknown words. */
export function showNotes(container, trace) {
  container.replaceChildren();
  for (const { name, words, unknown, cut } of trace.texts) {
    if (cut) {
      const textContent = `${name}: too long for the model, the last ${cut} words were not read.`;
      container.append(createElement("li", { textContent }));
    }
    if (unknown.length) {
      const list = unknown.slice(0, 12).map((index) => `“${isolateWord(clipWord(words[index]))}”`).join(", ");
      const textContent = `${name}: words not in the vocabulary: ${list}${unknown.length > 12 ? ", …" : "."}`;
      container.append(createElement("li", { textContent }));
    }
  }
}
