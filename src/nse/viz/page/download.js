// What the page gives to take along, as files.

import { shape } from "./trace.js";

export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  Object.assign(link, { href: url, download: name }).click();
  URL.revokeObjectURL(url);
}

/** A graph as a file of its own, in the colours of the page; the arcs are as strong as they are. */
export function standalone(graph, trace) {
  const marked = graph.querySelectorAll(".now, .from, .to");
  const classes = [...marked].map((each) => each.getAttribute("class"));
  for (const each of marked) each.classList.remove("now", "from", "to");
  const copy = styled(graph);
  marked.forEach((each, number) => each.setAttribute("class", classes[number]));
  const fill = getComputedStyle(document.body).backgroundColor;
  copy.prepend(
    shape("title", {}, `Word associations by the memory of ${trace.model.name}`),
    shape("rect", { width: "100%", height: "100%", fill }),
  );
  return new XMLSerializer().serializeToString(copy);
}

const LOOKS = ["fill", "stroke", "stroke-width", "stroke-dasharray", "text-anchor", "display", "opacity"];

/** A copy of a graph into whose shapes goes what the style sheet says. */
function styled(graph) {
  const copy = graph.cloneNode(true), from = graph.querySelectorAll("*");
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("role", "img");
  copy.classList.remove("alone");
  copy.querySelectorAll("*").forEach((each, number) => {
    const look = getComputedStyle(from[number]);
    for (const name of LOOKS) each.setAttribute(name, look.getPropertyValue(name));
    if (each.tagName === "text") {
      each.setAttribute("font-family", "sans-serif");
      each.setAttribute("font-size", "15");
      each.setAttribute("font-weight", look.fontWeight);
    }
    for (const name of ["class", "tabindex", "role"]) each.removeAttribute(name);
  });
  return copy;
}
