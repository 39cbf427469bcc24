// The word association graph (figure 2 of the paper), drawn with the layout of nse/viz/graph.py.

import { createShape, MARGIN } from "./trace.js";

const BOX = 26;

/** Draws the graph of a reading as one SVG element; a click on a slot calls `onSelect(memory, slot)`. */
export function drawGraph(reading, onSelect) {
  const width = Math.max(...reading.graph.map((panel) => panel.width));
  const height = reading.graph.reduce((sum, panel) => sum + panel.height, 0);
  const svg = createShape("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
  let y = 0;
  for (const panel of reading.graph) {
    const group = createShape("g", { transform: `translate(0 ${y})` });
    drawPanel(svg, group, panel, onSelect);
    svg.append(group);
    y += panel.height;
  }
  return svg;
}

function drawPanel(svg, group, panel, onSelect) {
  group.append(createShape("text", { x: MARGIN, y: 18, class: "title" }, panel.title));
  if (panel.caption) group.append(createShape("text", { x: panel.caption_x, y: 18, class: "caption" }, panel.caption));
  const nodeArcs = panel.rows.map((row) => row.words.map(() => []));
  for (const arc of panel.arcs) {
    const targetRow = arc.kind === "across" ? 1 : 0;
    const source = panel.rows[0].words[arc.source], target = panel.rows[targetRow].words[arc.target];
    const shape = createShape("g", {
      class: `arc ${arc.kind}${arc.second ? " second" : ""}`,
      opacity: (0.35 + 0.65 * Math.min(Math.max(arc.weight, 0), 1)).toFixed(2),
      "data-step": arc.step,
    });
    shape.append(
      createShape("title", {}, `${source} → ${target} ${arc.weight.toFixed(2)}`),
      createShape("path", { d: arc.path, "stroke-width": (1.2 + 1.3 * arc.weight).toFixed(2) }),
      createShape("polygon", { points: arc.head }),
    );
    group.append(shape);
    nodeArcs[0][arc.source].push({ shape, label: `composed with ${target}` });
    nodeArcs[targetRow][arc.target].push({ shape, label: `read by ${source}` });
  }
  panel.rows.forEach((row, number) => drawNodes(svg, group, row, nodeArcs[number], onSelect));
}

function drawNodes(svg, group, row, nodeArcs, onSelect) {
  const { memory, y } = row;
  row.words.forEach((word, index) => {
    const x = row.x[index], width = row.widths[index];
    const label = nodeArcs[index].map((arc) => arc.label).join(", ");
    const hasSlot = memory >= 0;
    const node = createShape("g", {
      class: hasSlot ? "node" : "node static", tabindex: 0, role: hasSlot ? "button" : "img",
      "aria-label": `${word}: ${label || "not composed"}`, "data-memory": memory, "data-slot": index,
    });
    node.append(
      createShape("rect", { x: x - width / 2, y, width, height: BOX, rx: 5, class: "box" }),
      createShape("text", { x, y: y + 18 }, word),
    );
    node.arcs = nodeArcs[index].map((arc) => arc.shape);
    node.addEventListener("pointerenter", () => isolateArcs(svg, node));
    node.addEventListener("pointerleave", () => isolateArcs(svg, svg.querySelector(".node:focus")));
    node.addEventListener("focus", () => isolateArcs(svg, node));
    node.addEventListener("blur", () => isolateArcs(svg, svg.querySelector(".node:hover")));
    if (hasSlot) {
      node.addEventListener("click", () => onSelect(memory, index));
      node.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          onSelect(memory, index);
        }
      });
    }
    group.append(node);
  });
}

/** Shows only the arcs of one node, or all arcs if there is none. */
function isolateArcs(svg, node) {
  for (const arc of svg.querySelectorAll(".selected")) arc.classList.remove("selected");
  for (const arc of node ? node.arcs : []) arc.classList.add("selected");
  svg.classList.toggle("isolated", Boolean(node));
}

/** Shows only the arcs of the first steps, and marks the last of them. */
export function showSteps(svg, steps) {
  for (const node of svg.querySelectorAll(".node")) node.classList.remove("from", "to");
  for (const arc of svg.querySelectorAll(".arc")) {
    const step = Number(arc.dataset.step);
    arc.classList.toggle("later", step >= steps);
    arc.classList.toggle("now", step === steps - 1);
  }
}
