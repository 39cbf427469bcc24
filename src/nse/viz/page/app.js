// The page: asks the server for a trace, or shows the one that is in the file, and lets it be walked through.

import { showAnswer, showNotes } from "./answer.js";
import { download, standalone } from "./download.js";
import { drawGraph, showSteps } from "./graph.js";
import { drawHeat, extremes, markRow } from "./heat.js";
import { element, historyOf, parse, printable, shortened, shownWord, stateAfter } from "./trace.js";

const $ = (id) => document.getElementById(id);
const PACE = 900; // milliseconds between two words

/** All that the page knows. `step` counts the words that have been read. */
const state = {
  model: null, asking: null, trace: null, text: "", reading: 0, memory: 0, step: 0,
  playing: 0, graph: null, heat: null, opener: null,
};

const reading = () => state.trace.readings[state.reading];
const memory = () => reading().memories[state.memory];

// --- the form ------------------------------------------------------------------------------------------

function buildForm(model) {
  state.model = model;
  $("about").textContent = `${model.name} ${model.does}.`;
  document.title = `${model.name}: what the memory did`;
  $("fields").replaceChildren(...model.fields.map((field, number) => {
    const box = element("textarea", { id: `field-${number}`, rows: field.many ? 4 : 2, required: true });
    if (field.language) box.lang = field.language;
    return element("label", { textContent: field.label }, box);
  }));
  $("examples").replaceChildren(...model.examples.map((texts) => {
    const shown = texts.map((text) => printable(text)).join(" | ");
    const button = element("button", { type: "button", textContent: shown });
    button.addEventListener("click", () => { fill(texts); ask(); });
    return button;
  }));
  $("ask").hidden = false;
}

/** The texts of the form: of a field for many, one a line. */
function typed() {
  return state.model.fields.flatMap((field, number) => {
    const value = $(`field-${number}`).value;
    return field.many ? value.split("\n").filter((line) => line.trim()) : [value];
  });
}

function fill(texts) {
  state.model.fields.forEach((field, number) => {
    $(`field-${number}`).value = field.many ? texts.slice(number).join("\n") : texts[number] ?? "";
  });
}

async function ask(view = {}) {
  state.asking?.abort(); // the last question counts, whatever is answered first
  const asking = state.asking = new AbortController();
  const texts = typed();
  const empty = state.model.fields.find((field, number) => !$(`field-${number}`).value.trim());
  if (empty) return fail(`${empty.label} is empty: type at least one word.`);
  $("busy").textContent = "Reading…";
  try {
    const answer = await fetch("v1/trace", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ texts }),
      signal: asking.signal,
    }).catch(() => {
      throw new Error("The server does not answer. Start it again, then press Read.");
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(reason(text, answer.status));
    if (!asking.signal.aborted) show(text, view);
  } catch (error) {
    if (!asking.signal.aborted) fail(error.message);
  } finally {
    if (state.asking === asking) $("busy").textContent = "";
  }
  return undefined;
}

function reason(text, status) {
  try {
    return JSON.parse(text).error.message;
  } catch {
    return `The server answered ${status} without a reason. Look at its log.`;
  }
}

function fail(message) {
  $("busy").textContent = "";
  $("error").textContent = state.trace ? `${message} What is shown below is of the text before.` : message;
  $("error").hidden = false;
}

// --- a trace -------------------------------------------------------------------------------------------

function show(text, view = {}) {
  const begun = performance.now();
  stop();
  state.trace = parse(text);
  state.text = text;
  state.reading = within(view.reading, state.trace.readings.length - 1, 0);
  state.memory = within(view.memory, reading().memories.length - 1, 0);
  $("error").hidden = true;
  $("history").hidden = true;
  showAnswer($("prediction"), state.trace);
  showNotes($("notes"), state.trace);
  choices($("readings"), "reading", state.trace.readings.map((each) => each.name), state.reading, (number) => {
    state.reading = number;
    state.memory = 0;
    drawReading();
  });
  $("answer").hidden = $("memory").hidden = false;
  drawReading(view.step);
  const laid = $("graph").getBoundingClientRect().height + $("heat").getBoundingClientRect().height; // forces layout
  const spent = performance.now() - begun;
  document.documentElement.dataset.drawn = laid ? spent.toFixed(1) : "";
  $("drawn").textContent = `Drawn in ${spent.toFixed(0)} ms.`;
}

function within(number, most, usual) {
  return Number.isInteger(number) && number >= 0 && number <= most ? number : usual;
}

/** Radio buttons for names; one alone is not worth asking. */
function choices(place, group, names, chosen, choose) {
  place.querySelectorAll("label").forEach((label) => label.remove());
  names.forEach((name, number) => {
    const radio = element("input", { type: "radio", name: group, checked: number === chosen });
    radio.addEventListener("change", () => choose(number));
    place.append(element("label", {}, radio, ` ${name}`));
  });
  place.hidden = names.length < 2;
}

function drawReading(step) {
  stop();
  $("history").hidden = true;
  state.graph = drawGraph(reading(), showHistory);
  $("graph").replaceChildren(state.graph);
  choices($("memories"), "memory", reading().memories.map((each) => each.name), state.memory, (number) => {
    state.memory = number;
    drawMemory();
    goTo(state.step);
  });
  $("step").max = reading().words.length;
  drawMemory();
  goTo(within(step, reading().words.length, reading().words.length), Number.isInteger(step));
}

function drawMemory() {
  state.heat = drawHeat(reading(), memory());
  $("heat").replaceChildren(state.heat);
  $("extremes").textContent = extremes(memory());
  const rows = memory().slots.map((slot, number) => {
    const button = element("button", { type: "button", textContent: shortened(slot) });
    button.addEventListener("click", () => showHistory(state.memory, number));
    const bar = element("span", { className: "bar" }, element("span"));
    return element("tr", {}, element("td", {}, button), element("td"), element("td", {}, bar, element("span")));
  });
  $("slots").tBodies[0].replaceChildren(...rows);
}

// --- the player ----------------------------------------------------------------------------------------

function goTo(step, follow = true) {
  const words = reading().words;
  state.step = Math.min(Math.max(step, 0), words.length);
  $("step").value = state.step;
  const told = describeStep();
  $("step").setAttribute("aria-valuetext", told);
  $("now").textContent = told;
  showSteps(state.graph, state.step);
  markRow(state.heat, state.step);
  const read = markNodes();
  if (follow && read) keepInView($("graph"), read.getBBox());
  fillTable();
  remember();
}

/** Move a picture sideways, and only that, until this part of it is seen. */
function keepInView(place, box) {
  const room = 40, left = box.x - room, right = box.x + box.width + room;
  if (left < place.scrollLeft) place.scrollLeft = left;
  else if (right > place.scrollLeft + place.clientWidth) place.scrollLeft = right - place.clientWidth;
}

function describeStep() {
  const words = reading().words, t = state.step - 1;
  if (t < 0) {
    const fresh = memory().held.every((holds, slot) => holds === memory().slots[slot]);
    const begins = fresh ? "the words themselves" : "what the reading before has left";
    return `Before the first of ${words.length} words: the memory is ${begins}.`;
  }
  const gave = reading().outputs.length ? ` It wrote “${shownWord(reading().outputs[t])}”.` : "";
  const found = reading().memories.map((each) => {
    const slot = each.composed[t], best = each.read[t];
    const own = slot === best ? "" : `; its own slot ${each.keys[t][best].toFixed(2)}`;
    const whose = reading().memories.length > 1 ? ` in the memory of ${each.name}` : "";
    return `“${shownWord(each.slots[slot])}”${whose} (z ${each.keys[t][slot].toFixed(2)}${own})`;
  });
  return `Step ${t + 1} of ${words.length}: “${shownWord(words[t])}” composed with ${found.join(" and ")}.${gave}`;
}

/** Mark the word that was read and the slots that it was composed with; returns the word. */
function markNodes() {
  const t = state.step - 1;
  if (t < 0) return state.graph.querySelector(".node");
  reading().memories.forEach((each, number) => {
    const mark = (slot, kind) => {
      const node = state.graph.querySelector(`.node[data-memory="${number}"][data-slot="${slot}"]`);
      if (node) node.classList.add(kind);
    };
    mark(each.composed[t], "to");
    if (each.own[t] >= 0) mark(each.own[t], "from");
  });
  for (const node of state.graph.querySelectorAll(`.node[data-memory="-1"][data-slot="${t}"]`)) {
    node.classList.add("from");
  }
  return state.graph.querySelector(".from");
}

function fillTable() {
  const t = state.step - 1, slots = stateAfter(reading(), memory(), state.step);
  const rows = $("slots").tBodies[0].rows;
  slots.forEach((holds, number) => {
    const row = rows[number], weight = t < 0 ? 0 : memory().keys[t][number];
    row.className = t >= 0 && memory().composed[t] === number ? "written" : "";
    row.cells[1].textContent = holds;
    row.cells[2].firstChild.firstChild.style.width = `${(100 * weight).toFixed(1)}%`;
    row.cells[2].lastChild.textContent = t < 0 ? "" : weight.toFixed(2);
  });
}

function play() {
  if (state.playing) return stop();
  if (state.step >= reading().words.length) goTo(0);
  state.playing = setInterval(() => {
    goTo(state.step + 1);
    if (state.step >= reading().words.length) stop();
  }, PACE);
  $("play").textContent = "Pause";
  return undefined;
}

function stop() {
  clearInterval(state.playing);
  state.playing = 0;
  $("play").textContent = "Play";
}

// --- history, links, files -----------------------------------------------------------------------------

function showHistory(number, slot) {
  const each = reading().memories[number];
  const found = historyOf(reading(), each, slot);
  state.opener = document.activeElement;
  $("history-title").textContent = `History of the slot “${shownWord(each.slots[slot])}”`;
  $("history-steps").replaceChildren(
    element("li", { textContent: `At first: ${shownWord(each.held[slot])}` }),
    ...found.map(({ t, word, weight, holds }) => element("li", {
      textContent: `Step ${t + 1}, “${word}” (z ${weight.toFixed(2)}): ${holds}`,
    })),
  );
  if (!found.length) $("history-steps").append(element("li", { textContent: "No word was composed with it." }));
  $("history").hidden = false;
  $("history").focus();
}

/** Back to where the history was opened from. */
function closeHistory() {
  $("history").hidden = true;
  (state.opener?.isConnected ? state.opener : $("play")).focus();
}

/** The address tells the state, so that it can be shared; other texts are a new place to come back from. */
function remember() {
  const told = new URLSearchParams();
  if (state.model) for (const text of state.trace.texts) told.append("text", text.text);
  if (state.reading) told.set("reading", state.reading);
  if (state.memory) told.set("memory", state.memory);
  if (state.step < reading().words.length) told.set("step", state.step);
  const before = recalled().texts, texts = told.getAll("text");
  const elsewhere = before.length && before.join("\n") !== texts.join("\n");
  try {
    history[elsewhere ? "pushState" : "replaceState"](null, "", `#${told}`);
  } catch {
    // A browser may refuse when the address changes too often: the next step tells it again.
  }
  $("link").value = location.href;
}

function recalled() {
  const told = new URLSearchParams(location.hash.slice(1));
  const number = (name) => (told.has(name) ? Number(told.get(name)) : undefined);
  return {
    texts: told.getAll("text"),
    view: { reading: number("reading"), memory: number("memory"), step: number("step") },
  };
}

function recall() {
  const { texts, view } = recalled();
  const same = state.trace && texts.join("\n") === state.trace.texts.map((text) => text.text).join("\n");
  if (texts.length && !same) {
    fill(texts);
    ask(view);
  } else if (state.trace) show(state.text, view);
}

async function share() {
  remember();
  try {
    await navigator.clipboard.writeText(location.href);
    $("done").textContent = "The link is copied.";
  } catch {
    $("link").focus();
    $("link").select();
    $("done").textContent = "Copy the link from the field.";
  }
}

function keep(name, type, text) {
  download(name, type, text);
  $("done").textContent = `${name} is downloaded.`;
}

// --- start ---------------------------------------------------------------------------------------------

function dark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function listen() {
  $("ask").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  $("ask").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask();
  });
  $("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    $("theme").setAttribute("aria-pressed", String(dark()));
  });
  $("theme").setAttribute("aria-pressed", String(dark()));
  $("first").addEventListener("click", () => { stop(); goTo(0); });
  $("back").addEventListener("click", () => { stop(); goTo(state.step - 1); });
  $("next").addEventListener("click", () => { stop(); goTo(state.step + 1); });
  $("last").addEventListener("click", () => { stop(); goTo(reading().words.length); });
  $("play").addEventListener("click", play);
  $("step").addEventListener("input", () => { stop(); goTo(Number($("step").value)); });
  $("share").addEventListener("click", share);
  $("svg").addEventListener("click", () => keep(`${fileName()}.svg`, "image/svg+xml", standalone(state.graph, state.trace)));
  $("json").addEventListener("click", () => keep(`${fileName()}.json`, "application/json", state.text));
  $("close").addEventListener("click", closeHistory);
  $("skip").addEventListener("click", (event) => { // the address is for the state
    event.preventDefault();
    ($("answer").hidden ? document.querySelector("textarea") ?? $("theme") : $("answer")).focus();
  });
  addEventListener("hashchange", recall);
  document.addEventListener("keydown", keys);
}

function fileName() {
  return `nse-${state.trace.model.name}`.replace(/[^\w-]+/g, "-");
}

/** Arrow keys walk wherever they mean nothing else. */
function keys(event) {
  if (!state.trace || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && !$("history").hidden) closeHistory();
  if (event.target.closest("input, textarea, select, .scroll:focus")) return;
  if (event.key === "ArrowRight") { stop(); goTo(state.step + 1); }
  else if (event.key === "ArrowLeft") { stop(); goTo(state.step - 1); }
  else return;
  event.preventDefault();
}

async function start() {
  listen();
  const inside = $("trace");
  if (inside) {
    const { view } = recalled();
    show(inside.textContent, view);
    const { model, texts } = state.trace;
    const given = texts.map((text) => shortened(text.text, 200)).join(" | ");
    $("about").textContent = `${model.name} has read: ${given}`;
    return;
  }
  try {
    const answer = await fetch("v1/model");
    if (!answer.ok) throw new Error(String(answer.status));
    buildForm(await answer.json());
  } catch {
    fail("The server does not answer. Start it, then load this page again.");
    return;
  }
  if (recalled().texts.length) recall();
  else if (state.model.examples.length) fill(state.model.examples[0]);
}

start();
