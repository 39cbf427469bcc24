// The heat map of z: a row for each step, a column for each slot.

import { accessed, FONT, MARGIN, shape, shortened, widthOf } from "./trace.js";

const CELL = 19, BARS = 46;

export function drawHeat(reading, memory) {
  const left = Math.max(...reading.words.map((word) => widthOf(shortened(word), FONT))) + MARGIN + 8;
  const above = Math.max(...memory.slots.map((word) => widthOf(shortened(word), FONT))) * 0.87 + 22;
  const wide = CELL * memory.slots.length, high = CELL * reading.words.length;
  const last = memory.slots[memory.slots.length - 1];
  const width = left + wide + widthOf(shortened(last), FONT) * 0.5 + MARGIN, height = above + high + BARS + 4;
  const svg = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img" });
  svg.append(shape("title", {}, `What each step of ${reading.name} read in the memory of ${memory.name}`));
  memory.slots.forEach((slot, at) => {
    const x = left + CELL * (at + 0.6), y = above - 6;
    svg.append(shape("text", { x, y, transform: `rotate(-60 ${x} ${y})` }, shortened(slot)));
  });
  reading.words.forEach((word, t) => {
    svg.append(shape("text", { x: left - 8, y: above + CELL * t + 14, class: "end" }, shortened(word)));
    memory.keys[t].forEach((weight, at) => {
      if (weight >= 0.004) svg.append(cell(left + CELL * at, above + CELL * t, CELL - 1, weight));
    });
  });
  svg.append(shape("rect", { x: left - 0.5, y: above - 0.5, width: wide, height: high, class: "frame" }));
  svg.append(shape("text", { x: left - 8, y: above + high + 24, class: "caption end" }, "in all"));
  const sums = accessed(memory), most = Math.max(...sums);
  sums.forEach((sum, at) => {
    const tall = Math.max((BARS - 14) * sum / most, 0.5);
    svg.append(cell(left + CELL * at, above + high + 6, tall, 0.6));
  });
  svg.append(shape("rect", { x: left - 1.5, y: above, width: wide + 2, height: CELL - 1, class: "here" }));
  svg.dataset.top = above;
  return svg;
}

function cell(x, y, height, weight) {
  return shape("rect", { x, y, width: CELL - 1, height, class: "cell", "fill-opacity": weight.toFixed(3) });
}

/** Mark the row of the step that was just made; before the first there is none. */
export function markRow(svg, steps) {
  const here = svg.querySelector(".here");
  here.setAttribute("y", Number(svg.dataset.top) + CELL * Math.max(steps - 1, 0));
  here.setAttribute("visibility", steps ? "visible" : "hidden");
}

/** The most and the least accessed slots, in a line. */
export function extremes(memory, count = 3) {
  const sums = accessed(memory);
  const order = sums.map((_, slot) => slot).sort((a, b) => sums[b] - sums[a] || a - b);
  const told = order.map((slot) => `${shortened(memory.slots[slot])} (${sums[slot].toFixed(2)})`);
  if (order.length < 2) return `Accessed: ${told[0]}.`;
  const some = Math.max(1, Math.min(count, Math.floor(order.length / 2)));
  return `Most accessed: ${told.slice(0, some).join(", ")}. Least: ${told.slice(-some).reverse().join(", ")}.`;
}
