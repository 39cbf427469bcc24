// A trace, as nse/viz/trace.schema.json describes it: the only thing that Python and this page agree on.

export const VERSION = 1;

/** Of letters, and around pictures. */
export const FONT = 15, MARGIN = 12;

/** The trace in a JSON text; an Error says what is wrong with it. */
export function parse(text) {
  const trace = JSON.parse(text);
  if (trace.schema !== "nse-trace") throw new Error("This is no trace: it has another schema.");
  if (trace.version !== VERSION) {
    throw new Error(`This trace has version ${trace.version} and this page reads ${VERSION}: update nse.`);
  }
  return trace;
}

/** What every slot holds after so many steps. */
export function stateAfter(reading, memory, steps) {
  const slots = memory.held.map(shownWord);
  for (let t = 0; t < steps; t += 1) {
    const slot = memory.composed[t];
    slots[slot] = `(${shownWord(reading.words[t])} ${slots[slot]})`; // the composition that the trace has
  }
  return slots;
}

/** How much each slot was read over all steps. */
export function accessed(memory) {
  return memory.slots.map((_, slot) => memory.keys.reduce((sum, row) => sum + row[slot], 0));
}

/** The steps that were composed into a slot: step, word, weight, and what it held then. */
export function historyOf(reading, memory, slot) {
  const found = [];
  memory.composed.forEach((place, t) => {
    if (place === slot) {
      const holds = stateAfter(reading, memory, t + 1)[slot];
      found.push({ t, word: shownWord(reading.words[t]), weight: memory.keys[t][slot], holds });
    }
  });
  return found;
}

/** A word that is not endless, and nothing in it that is no letter. */
export function shortened(word, most = 24) {
  const letters = Array.from(printable(word));
  return letters.length <= most ? letters.join("") : `${letters.slice(0, most - 1).join("")}…`;
}

/** A text without what the page would obey; joiners are part of some words. */
export function printable(text) {
  return text.replace(/(?![\u200c\u200d])[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu, "\ufffd");
}

/** A word to stand among others: one that is written from right to left does not turn its neighbours round. */
export function shownWord(word) {
  const shown = printable(word);
  return /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(shown) ? `\u2068${shown}\u2069` : shown;
}

/** About how wide a text is in a sans-serif font of this size; the same estimate as Python's. */
export function widthOf(text, size) {
  let sum = 0;
  for (const letter of text) sum += widthOfLetter(letter);
  return sum * size;
}

function widthOfLetter(letter) {
  if ("ijlItf.,:;'|!()[]{}`\"-/\\ ".includes(letter)) return 0.36;
  if ("mwMWQ@%&—…".includes(letter)) return 0.92;
  if (/[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u.test(letter)) return 1.05;
  if (/[\p{M}\u200c\u200d]/u.test(letter)) return 0;
  return letter !== letter.toLowerCase() && letter === letter.toUpperCase() ? 0.7 : 0.58;
}

const SVG = "http://www.w3.org/2000/svg";

/** An SVG element with attributes; text is set as text. */
export function shape(name, attributes = {}, text = undefined) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** An HTML element with properties and children. */
export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}
