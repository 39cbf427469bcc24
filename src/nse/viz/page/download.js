// Downloads: files made in the page.

import { createShape } from "./trace.js";

export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  Object.assign(link, { href: url, download: name }).click();
  URL.revokeObjectURL(url);
}

/** Writes a graph as an SVG file in the colours of the page, without the marks of the current step. */
export function exportSvg(graph, trace) {
  const marked = graph.querySelectorAll(".now, .from, .to");
  const classes = [...marked].map((node) => node.getAttribute("class"));
  for (const node of marked) node.classList.remove("now", "from", "to");
  const copy = copyWithStyles(graph);
  marked.forEach((node, number) => node.setAttribute("class", classes[number]));
  const fill = getComputedStyle(document.body).backgroundColor;
  copy.prepend(
    createShape("title", {}, `Word associations by the memory of ${trace.model.name}`),
    createShape("rect", { width: "100%", height: "100%", fill }),
  );
  return new XMLSerializer().serializeToString(copy);
}

const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "text-anchor", "display", "opacity"];

/** Copies a graph, with the rules of the style sheet as attributes of its shapes. */
function copyWithStyles(graph) {
  const copy = graph.cloneNode(true), originals = graph.querySelectorAll("*");
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("role", "img");
  copy.classList.remove("isolated");
  copy.querySelectorAll("*").forEach((node, number) => {
    const style = getComputedStyle(originals[number]);
    for (const name of STYLES) node.setAttribute(name, style.getPropertyValue(name));
    if (node.tagName === "text") {
      node.setAttribute("font-family", "sans-serif");
      node.setAttribute("font-size", "15");
      node.setAttribute("font-weight", style.fontWeight);
    }
    for (const name of ["class", "tabindex", "role"]) node.removeAttribute(name);
  });
  return copy;
}
