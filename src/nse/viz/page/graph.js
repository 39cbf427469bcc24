// The word association graph (figure 2 of the paper), which nse/viz/graph.py lays out.

import { MARGIN, shape } from "./trace.js";

const BOX = 26;

/** The graph of a reading as one SVG element; `pick(memory, slot)` is called when a slot is pressed. */
export function drawGraph(reading, pick) {
  const width = Math.max(...reading.graph.map((panel) => panel.width));
  const height = reading.graph.reduce((sum, panel) => sum + panel.height, 0);
  const svg = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
  let y = 0;
  for (const panel of reading.graph) {
    const group = shape("g", { transform: `translate(0 ${y})` });
    drawPanel(svg, group, panel, pick);
    svg.append(group);
    y += panel.height;
  }
  return svg;
}

function drawPanel(svg, group, panel, pick) {
  group.append(shape("text", { x: MARGIN, y: 18, class: "title" }, panel.title));
  if (panel.caption) group.append(shape("text", { x: panel.caption_x, y: 18, class: "caption" }, panel.caption));
  const touching = panel.rows.map((row) => row.words.map(() => []));
  for (const arc of panel.arcs) {
    const to = arc.kind === "across" ? 1 : 0;
    const source = panel.rows[0].words[arc.source], target = panel.rows[to].words[arc.target];
    const drawn = shape("g", {
      class: `arc ${arc.kind}${arc.second ? " second" : ""}`,
      opacity: (0.35 + 0.65 * Math.min(Math.max(arc.weight, 0), 1)).toFixed(2),
      "data-step": arc.step,
    });
    drawn.append(
      shape("title", {}, `${source} → ${target} ${arc.weight.toFixed(2)}`),
      shape("path", { d: arc.path, "stroke-width": (1.2 + 1.3 * arc.weight).toFixed(2) }),
      shape("polygon", { points: arc.head }),
    );
    group.append(drawn);
    touching[0][arc.source].push({ drawn, told: `composed with ${target}` });
    touching[to][arc.target].push({ drawn, told: `read by ${source}` });
  }
  panel.rows.forEach((row, number) => drawNodes(svg, group, row, touching[number], pick));
}

function drawNodes(svg, group, row, touching, pick) {
  const { memory, y } = row;
  row.words.forEach((word, place) => {
    const x = row.x[place], width = row.widths[place];
    const told = touching[place].map((each) => each.told).join(", ");
    const label = `${word}: ${told || "not composed"}`;
    const pressable = memory >= 0;
    const made = shape("g", {
      class: pressable ? "node" : "node still", tabindex: 0, role: pressable ? "button" : "img", "aria-label": label,
      "data-memory": memory, "data-slot": place,
    });
    made.append(
      shape("rect", { x: x - width / 2, y, width, height: BOX, rx: 5, class: "box" }),
      shape("text", { x, y: y + 18 }, word),
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
