// The heat map of z: a row for each step, a column for each slot.

import { clipWord, createShape, estimateWidth, FONT, MARGIN, sumWeights } from "./trace.js";

const CELL = 19, BARS = 46;

export function drawHeatMap(reading, memory) {
  const left = Math.max(...reading.words.map((word) => estimateWidth(clipWord(word), FONT))) + MARGIN + 8;
  const above = Math.max(...memory.slots.map((word) => estimateWidth(clipWord(word), FONT))) * 0.87 + 22;
  const mapWidth = CELL * memory.slots.length, mapHeight = CELL * reading.words.length;
  const slant = estimateWidth(clipWord(memory.slots[memory.slots.length - 1]), FONT) * 0.5;
  const width = left + mapWidth + slant + MARGIN, height = above + mapHeight + BARS + 4;
  const svg = createShape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img" });
  svg.append(createShape("title", {}, `Weight z of each slot of ${memory.name} at each step of ${reading.name}`));
  memory.slots.forEach((slot, number) => {
    const x = left + CELL * (number + 0.6), y = above - 6;
    svg.append(createShape("text", { x, y, transform: `rotate(-60 ${x} ${y})` }, clipWord(slot)));
  });
  reading.words.forEach((word, t) => {
    svg.append(createShape("text", { x: left - 8, y: above + CELL * t + 14, class: "end" }, clipWord(word)));
    memory.keys[t].forEach((weight, slot) => {
      if (weight >= 0.004) svg.append(createCell(left + CELL * slot, above + CELL * t, CELL - 1, weight));
    });
  });
  svg.append(createShape("rect", { x: left - 0.5, y: above - 0.5, width: mapWidth, height: mapHeight, class: "frame" }));
  svg.append(createShape("text", { x: left - 8, y: above + mapHeight + 24, class: "caption end" }, "total"));
  const sums = sumWeights(memory), largest = Math.max(...sums);
  sums.forEach((sum, slot) => {
    const bar = Math.max((BARS - 14) * sum / largest, 0.5);
    svg.append(createCell(left + CELL * slot, above + mapHeight + 6, bar, 0.6));
  });
  svg.append(createShape("rect", { x: left - 1.5, y: above, width: mapWidth + 2, height: CELL - 1, class: "current" }));
  svg.dataset.top = above;
  return svg;
}

function createCell(x, y, height, weight) {
  return createShape("rect", { x, y, width: CELL - 1, height, class: "cell", "fill-opacity": weight.toFixed(3) });
}

/** Marks the row of the last of these steps. */
export function markRow(svg, steps) {
  const frame = svg.querySelector(".current");
  frame.setAttribute("y", Number(svg.dataset.top) + CELL * Math.max(steps - 1, 0));
  frame.setAttribute("visibility", steps ? "visible" : "hidden");
}

/** Lists the most and the least accessed slots in one line. */
export function describeExtremes(memory, most = 3) {
  const sums = sumWeights(memory);
  const order = sums.map((_, slot) => slot).sort((a, b) => sums[b] - sums[a] || a - b);
  const slots = order.map((slot) => `${clipWord(memory.slots[slot])} (${sums[slot].toFixed(2)})`);
  if (slots.length < 2) return `Accessed: ${slots[0]}.`;
  const count = Math.max(1, Math.min(most, Math.floor(slots.length / 2)));
  return `Most accessed: ${slots.slice(0, count).join(", ")}. Least: ${slots.slice(-count).reverse().join(", ")}.`;
}
