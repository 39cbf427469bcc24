// The word association graph (figure 2 of the paper), laid out as nse/viz/graph.py does it.

import { FONT, MARGIN, ownMemory, shape, sharedMemories, shortened, widthOf } from "./trace.js";

const BOX = 26, GAP = 14, PORT = 7, TRACK = 15, CHANNEL = 96, TITLE = 30, ARROW = 5;

/** A reading laid out: one panel, or one for each shared memory if there are more. */
export function panels(reading) {
  const own = ownMemory(reading), shared = sharedMemories(reading);
  if (!shared.length) return [laidOut(reading, own, undefined)];
  return shared.map((memory, number) => laidOut(reading, number ? undefined : own, memory));
}

function laidOut(reading, own, shared) {
  const about = ownMemory(reading);
  const places = about ? about.own : reading.words.map((_, t) => t);
  const inside = own ? arcsOf(own, places, shared ? "below" : "above") : [];
  const across = shared ? arcsOf(shared, places, "across") : [];
  const panel = {
    title: reading.name,
    caption: shared ? `memory of ${shared.name}` : "",
    words: rowOf(about ? about.slots : reading.words, inside.flatMap((arc) => [arc.source, arc.target])),
    slots: shared ? rowOf(shared.slots, across.map((arc) => arc.target)) : [],
    wordsOf: about ? reading.memories.indexOf(about) : -1,
    slotsOf: shared ? reading.memories.indexOf(shared) : -1,
    arcs: [...inside, ...across],
  };
  settle(panel, inside, across);
  return panel;
}

/** Words side by side, each with room for the arcs that end there. */
function rowOf(words, ends) {
  let x = MARGIN;
  return words.map((word, place) => {
    const shown = shortened(word), arcs = ends.filter((end) => end === place).length;
    const width = Math.max(widthOf(shown, FONT) + 10, 22, arcs * PORT);
    const node = { word: shown, x: x + width / 2, width };
    x += width + GAP;
    return node;
  });
}

function arcsOf(memory, places, kind) {
  return memory.composed.map((slot, t) => ({
    step: t, source: places[t], target: slot, weight: memory.keys[t][slot],
    second: slot !== memory.read[t], kind, start: 0, end: 0, track: 0,
  })).filter((arc) => arc.source >= 0);
}

function settle(panel, inside, across) {
  spread(panel.words, inside);
  spreadAcross(panel, across);
  const tracks = giveTracks(inside);
  for (const [one, other] of [[panel.words, panel.slots], [panel.slots, panel.words]]) {
    if (one.length && other.length && spanOf(one) < spanOf(other)) {
      move(one, (spanOf(other) - spanOf(one)) / 2, panel);
    }
  }
  const rows = Math.max(spanOf(panel.words), spanOf(panel.slots)) + 2 * MARGIN;
  const titles = captionAt(panel) + widthOf(panel.caption, FONT) + MARGIN;
  const room = inside.length ? tracks * TRACK + 2 * ARROW : 0;
  const above = inside.length && inside[0].kind === "above" ? room : 0;
  panel.slotsY = TITLE;
  panel.wordsY = TITLE + (panel.slots.length ? BOX + CHANNEL : above);
  panel.width = Math.max(rows, titles);
  panel.height = panel.wordsY + BOX + (room - above) + MARGIN;
}

/** Where the caption begins: behind the title, which is bold. */
function captionAt(panel) {
  return MARGIN + 1.08 * widthOf(panel.title, FONT) + 12;
}

function spanOf(nodes) {
  const last = nodes[nodes.length - 1];
  return last ? last.x + last.width / 2 - MARGIN : 0;
}

function move(nodes, by, panel) {
  for (const node of nodes) node.x += by;
  for (const arc of panel.arcs) {
    if (nodes === panel.words) arc.start += by;
    if ((nodes === panel.words) === (arc.kind !== "across")) arc.end += by;
  }
}

/** Ends of arcs side by side at each word, so that those to near words lie inside those to far ones. */
function spread(nodes, inside) {
  const ends = nodes.map(() => []);
  for (const arc of inside) {
    for (const [here, other, leaves] of [[arc.source, arc.target, true], [arc.target, arc.source, false]]) {
      let key;
      if (here === other) key = [1, 0, leaves ? 0 : 1];
      else if (other < here) key = [0, -other, -arc.step];
      else key = [2, -other, arc.step];
      ends[here].push({ key, arc, leaves });
    }
  }
  ends.forEach((found, place) => {
    found.sort((a, b) => a.key[0] - b.key[0] || a.key[1] - b.key[1] || a.key[2] - b.key[2]);
    const at = ports(nodes[place], found.length);
    found.forEach(({ arc, leaves }, number) => { arc[leaves ? "start" : "end"] = at[number]; });
  });
}

function spreadAcross(panel, across) {
  const reached = panel.slots.map(() => []);
  for (const arc of across) {
    arc.start = panel.words[arc.source].x;
    reached[arc.target].push(arc);
  }
  reached.forEach((found, place) => {
    found.sort((a, b) => a.source - b.source);
    const at = ports(panel.slots[place], found.length);
    found.forEach((arc, number) => { arc.end = at[number]; });
  });
}

function ports(node, count) {
  return Array.from({ length: count }, (_, at) => node.x + (at - (count - 1) / 2) * PORT);
}

/** Short arcs first, each the lowest track where it meets no other; returns how many there are. */
function giveTracks(inside) {
  const taken = [];
  const length = (arc) => Math.abs(arc.end - arc.start);
  for (const arc of [...inside].sort((a, b) => length(a) - length(b) || a.step - b.step)) {
    const left = Math.min(arc.start, arc.end), right = Math.max(arc.start, arc.end);
    let track = taken.findIndex((others) => others.every(([start, end]) => right + 3 < start || end + 3 < left));
    if (track < 0) track = taken.push([]) - 1;
    arc.track = track;
    taken[track].push([left, right]);
  }
  return taken.length;
}

function pathOf(panel, arc) {
  if (arc.kind === "across") {
    const top = panel.slotsY + BOX + ARROW, bottom = panel.wordsY, middle = (top + bottom) / 2;
    return [`M${arc.start} ${bottom}C${arc.start} ${middle} ${arc.end} ${middle} ${arc.end} ${top}`, top, -1];
  }
  const sign = arc.kind === "above" ? -1 : 1;
  const base = arc.kind === "above" ? panel.wordsY : panel.wordsY + BOX;
  const y = base + sign * (2 * ARROW + arc.track * TRACK), end = base + sign * ARROW;
  const way = arc.end > arc.start ? 1 : -1, bend = Math.min(6, Math.abs(arc.end - arc.start) / 2);
  return [
    `M${arc.start} ${base}L${arc.start} ${y - sign * bend}Q${arc.start} ${y} ${arc.start + way * bend} ${y}` +
    `L${arc.end - way * bend} ${y}Q${arc.end} ${y} ${arc.end} ${y - sign * bend}L${arc.end} ${end}`, end, -sign,
  ];
}

/** The graph of a reading as one SVG element; `pick(memory, slot)` is called when a slot is pressed. */
export function drawGraph(reading, pick) {
  const found = panels(reading);
  const width = Math.max(...found.map((panel) => panel.width));
  const height = found.reduce((sum, panel) => sum + panel.height, 0);
  const svg = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
  let y = 0;
  for (const panel of found) {
    const group = shape("g", { transform: `translate(0 ${y})` });
    drawPanel(svg, group, reading, panel, pick);
    svg.append(group);
    y += panel.height;
  }
  return svg;
}

function drawPanel(svg, group, reading, panel, pick) {
  group.append(shape("text", { x: MARGIN, y: 18, class: "title" }, panel.title));
  if (panel.caption) {
    group.append(shape("text", { x: captionAt(panel), y: 18, class: "caption" }, panel.caption));
  }
  const rows = { words: panel.words.map(() => []), slots: panel.slots.map(() => []) };
  for (const arc of [...panel.arcs].sort((a, b) => a.weight - b.weight)) {
    const [path, end, way] = pathOf(panel, arc);
    const to = arc.kind === "across" ? panel.slots : panel.words;
    const drawn = shape("g", {
      class: `arc ${arc.kind}${arc.second ? " second" : ""}`,
      opacity: (0.35 + 0.65 * Math.min(Math.max(arc.weight, 0), 1)).toFixed(2),
      "data-step": arc.step,
    });
    drawn.append(
      shape("title", {}, `${panel.words[arc.source].word} → ${to[arc.target].word} ${arc.weight.toFixed(2)}`),
      shape("path", { d: path, "stroke-width": (1.2 + 1.3 * arc.weight).toFixed(2) }),
      shape("polygon", {
        points: `${arc.end - ARROW / 2},${end} ${arc.end + ARROW / 2},${end} ${arc.end},${end + way * ARROW}`,
      }),
    );
    group.append(drawn);
    rows.words[arc.source].push({ drawn, told: `composed with ${to[arc.target].word}`, arc });
    rows[arc.kind === "across" ? "slots" : "words"][arc.target].push(
      { drawn, told: `read by ${panel.words[arc.source].word}`, arc },
    );
  }
  drawNodes(svg, group, panel.words, panel.wordsY, rows.words, panel.wordsOf, pick);
  drawNodes(svg, group, panel.slots, panel.slotsY, rows.slots, panel.slotsOf, pick);
}

function drawNodes(svg, group, nodes, y, touching, memory, pick) {
  nodes.forEach((node, place) => {
    const told = touching[place].map((each) => each.told).join(", ");
    const label = `${node.word}: ${told || "not composed"}`;
    const pressable = memory >= 0;
    const made = shape("g", {
      class: pressable ? "node" : "node still", tabindex: 0, role: pressable ? "button" : "img", "aria-label": label,
      "data-memory": memory, "data-slot": place,
    });
    made.append(
      shape("rect", { x: node.x - node.width / 2, y, width: node.width, height: BOX, rx: 5, class: "box" }),
      shape("text", { x: node.x, y: y + 18 }, node.word),
    );
    made.arcs = touching[place].map((each) => each.drawn);
    made.addEventListener("pointerenter", () => showAlone(svg, made));
    made.addEventListener("pointerleave", () => showAlone(svg, svg.querySelector(".node:focus")));
    made.addEventListener("focus", () => showAlone(svg, made));
    made.addEventListener("blur", () => showAlone(svg, svg.querySelector(".node:hover")));
    if (pressable) {
      made.addEventListener("click", () => pick(memory, place));
      made.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          pick(memory, place);
        }
      });
    }
    group.append(made);
  });
}

/** Show the arcs of one word alone, or all arcs for none. */
function showAlone(svg, node) {
  for (const arc of svg.querySelectorAll(".its")) arc.classList.remove("its");
  for (const arc of node ? node.arcs : []) arc.classList.add("its");
  svg.classList.toggle("alone", Boolean(node));
}

/** Show the arcs of the first steps alone, the last of them marked. */
export function showSteps(svg, steps) {
  for (const node of svg.querySelectorAll(".node")) node.classList.remove("from", "to");
  for (const arc of svg.querySelectorAll(".arc")) {
    const step = Number(arc.dataset.step);
    arc.classList.toggle("later", step >= steps);
    arc.classList.toggle("now", step === steps - 1);
  }
}
