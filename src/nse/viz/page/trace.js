// Traces, as nse/viz/trace.schema.json describes them, and functions that all modules use.

export const VERSION = 1;

/** Font size, and margin of pictures. */
export const FONT = 15, MARGIN = 12;

/** Parses a trace; throws an Error if it has another schema or version. */
export function parseTrace(text) {
  const trace = JSON.parse(text);
  if (trace.schema !== "nse-trace") throw new Error("This is not a trace: it has another schema.");
  if (trace.version !== VERSION) {
    throw new Error(`This page shows traces of version ${VERSION}, not ${trace.version}. Reload the page.`);
  }
  return trace;
}

/** Returns the contents of all slots after a number of steps. */
export function computeState(reading, memory, steps) {
  const slots = memory.held.map(isolateWord);
  for (let t = 0; t < steps; t += 1) {
    const slot = memory.composed[t];
    slots[slot] = `(${isolateWord(reading.words[t])} ${slots[slot]})`;
  }
  return slots;
}

/** Sums the weights of each slot over all steps. */
export function sumWeights(memory) {
  return memory.slots.map((_, slot) => memory.keys.reduce((sum, row) => sum + row[slot], 0));
}

/** Lists the steps that are composed with a slot: step, word, weight, and the contents of the slot. */
export function listHistory(reading, memory, slot) {
  return memory.composed.flatMap((composed, t) => (composed !== slot ? [] : [{
    t,
    word: isolateWord(reading.words[t]),
    weight: memory.keys[t][slot],
    contents: computeState(reading, memory, t + 1)[slot],
  }]));
}

/** Makes a word printable, and truncates it. */
export function clipWord(word, maxLetters = 24) {
  const letters = Array.from(makePrintable(word));
  return letters.length <= maxLetters ? letters.join("") : `${letters.slice(0, maxLetters - 1).join("")}…`;
}

/** Replaces control characters and others that a browser would interpret. */
export function makePrintable(text) {
  return text.replace(/(?![\u200c\u200d])[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu, "\ufffd");
}

/** Makes a word printable; a right-to-left word is isolated, so that the words around it keep their order. */
export function isolateWord(word) {
  const printable = makePrintable(word);
  return /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(printable) ? `\u2068${printable}\u2069` : printable;
}

/** Estimates the width of a text in a sans-serif font, as nse/viz/drawing.py does. */
export function estimateWidth(text, fontSize) {
  let sum = 0;
  for (const letter of text) sum += estimateLetter(letter);
  return sum * fontSize;
}

function estimateLetter(letter) {
  if ("ijlItf.,:;'|!()[]{}`\"-/\\ ".includes(letter)) return 0.36;
  if ("mwMWQ@%&—…".includes(letter)) return 0.92;
  if (/[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u.test(letter)) return 1.05;
  if (/[\p{M}\u200c\u200d]/u.test(letter)) return 0;
  return letter !== letter.toLowerCase() && letter === letter.toUpperCase() ? 0.7 : 0.58;
}

const SVG = "http://www.w3.org/2000/svg";

/** Creates an SVG element; text is never parsed as markup. */
export function createShape(name, attributes = {}, text = undefined) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

/** Creates an HTML element. */
export function createElement(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}
