// The page: requests a trace from the server, or shows the trace in its own file, step by step.

import { showNotes, showPrediction } from "./answer.js";
import { download, exportSvg } from "./download.js";
import { drawGraph, showSteps } from "./graph.js";
import { describeExtremes, drawHeatMap, markRow } from "./heat.js";
import { clipWord, computeState, createElement, isolateWord, listHistory, makePrintable, parseTrace } from "./trace.js";

const $ = (id) => document.getElementById(id);
const STEP_MS = 900; // between two steps while playing

/** State of the page. `step` is the number of words that have been read. */
const state = {
  model: null, request: null, trace: null, json: "", reading: 0, memory: 0, step: 0,
  timer: 0, graph: null, heatMap: null, historyOpener: null,
};

const getReading = () => state.trace.readings[state.reading];
const getMemory = () => getReading().memories[state.memory];

// --- form ----------------------------------------------------------------------------------------------

function buildForm(model) {
  state.model = model;
  $("about").textContent = `${model.name} ${model.does}.`;
  document.title = `${model.name}: NSE memory explorer`;
  $("fields").replaceChildren(...model.fields.map((field, number) => {
    const input = createElement("textarea", { id: `field-${number}`, rows: field.many ? 4 : 2, required: true });
    if (field.language) input.lang = field.language;
    return createElement("label", { textContent: field.label }, input);
  }));
  const buttons = model.examples.map((texts) => {
    const textContent = texts.map((text) => makePrintable(text)).join(" | ");
    const button = createElement("button", { type: "button", textContent });
    button.addEventListener("click", () => { fillForm(texts); runModel(); });
    return button;
  });
  if (buttons.length) $("examples").replaceChildren(createElement("span", { textContent: "Try:" }), ...buttons);
  $("form").hidden = false;
}

/** Returns the texts of the form; a field for many texts has one on each line. */
function readForm() {
  return state.model.fields.flatMap((field, number) => {
    const value = $(`field-${number}`).value;
    return field.many ? value.split("\n").filter((line) => line.trim()) : [value];
  });
}

function fillForm(texts) {
  state.model.fields.forEach((field, number) => {
    $(`field-${number}`).value = field.many ? texts.slice(number).join("\n") : texts[number] ?? "";
  });
}

async function runModel(view = {}) {
  state.request?.abort(); // only the answer to the last request is shown
  const request = state.request = new AbortController();
  const empty = state.model.fields.find((field, number) => !$(`field-${number}`).value.trim());
  if (empty) return showError(`${empty.label} is empty. Type at least one word.`);
  $("busy").textContent = "Running…";
  try {
    const response = await fetch("v1/trace", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ texts: readForm() }),
      signal: request.signal,
    }).catch(() => {
      throw new Error("The server does not respond. Check that it is running, then press Run again.");
    });
    const text = await response.text();
    if (!response.ok) throw new Error(readError(text, response.status));
    if (!request.signal.aborted) showTrace(text, view);
  } catch (error) {
    if (!request.signal.aborted) showError(error.message);
  } finally {
    if (state.request === request) $("busy").textContent = "";
  }
  return undefined;
}

/** Returns the message of an error response as a sentence. */
function readError(text, status) {
  try {
    const { message } = JSON.parse(text).error;
    return `${message[0].toUpperCase()}${message.slice(1)}.`;
  } catch {
    return `The server returned an error (status ${status}). Try again later.`;
  }
}

function showError(message) {
  $("busy").textContent = "";
  $("error").textContent = state.trace ? `${message} The results below are for the previous text.` : message;
  $("error").hidden = false;
}

// --- trace ---------------------------------------------------------------------------------------------

function showTrace(json, view = {}) {
  const start = performance.now();
  stopPlaying();
  state.trace = parseTrace(json);
  state.json = json;
  state.reading = clampIndex(view.reading, state.trace.readings.length - 1, 0);
  state.memory = clampIndex(view.memory, getReading().memories.length - 1, 0);
  $("error").hidden = true;
  showPrediction($("prediction"), state.trace);
  showNotes($("notes"), state.trace);
  buildRadios($("readings"), "reading", state.trace.readings, state.reading, (number) => {
    state.reading = number;
    state.memory = 0;
    drawReading();
  });
  $("answer").hidden = $("memory").hidden = false;
  drawReading(view.step);
  const height = $("graph").getBoundingClientRect().height + $("heat").getBoundingClientRect().height; // forces layout
  const ms = performance.now() - start;
  document.documentElement.dataset.drawn = height ? ms.toFixed(1) : "";
  $("drawn").textContent = `Drawn in ${ms.toFixed(0)} ms.`;
}

/** Returns an index of the address if it is valid, else the default. */
function clampIndex(index, last, fallback) {
  return Number.isInteger(index) && index >= 0 && index <= last ? index : fallback;
}

/** Fills a fieldset with a radio button for each item, and hides it if there is only one. */
function buildRadios(fieldset, group, items, selected, onSelect) {
  fieldset.querySelectorAll("label").forEach((label) => label.remove());
  items.forEach(({ name }, number) => {
    const radio = createElement("input", { type: "radio", name: group, checked: number === selected });
    radio.addEventListener("change", () => onSelect(number));
    fieldset.append(createElement("label", {}, radio, ` ${name}`));
  });
  fieldset.hidden = items.length < 2;
}

function drawReading(step) {
  stopPlaying();
  $("history").hidden = true;
  const { memories, words } = getReading();
  state.graph = drawGraph(getReading(), showHistory);
  $("graph").replaceChildren(state.graph);
  buildRadios($("memories"), "memory", memories, state.memory, (number) => {
    state.memory = number;
    drawMemory();
    goToStep(state.step);
  });
  $("step").max = words.length;
  drawMemory();
  goToStep(clampIndex(step, words.length, words.length), Number.isInteger(step));
}

function drawMemory() {
  const memory = getMemory();
  state.heatMap = drawHeatMap(getReading(), memory);
  $("heat").replaceChildren(state.heatMap);
  $("extremes").textContent = describeExtremes(memory);
  const rows = memory.slots.map((slot, number) => {
    const button = createElement("button", { type: "button", textContent: clipWord(slot) });
    button.addEventListener("click", () => showHistory(state.memory, number));
    const bar = createElement("span", { className: "bar" }, createElement("span"));
    const cells = [[button], [], [bar, createElement("span")]];
    return createElement("tr", {}, ...cells.map((children) => createElement("td", {}, ...children)));
  });
  $("slots").tBodies[0].replaceChildren(...rows);
}

// --- player --------------------------------------------------------------------------------------------

function goToStep(step, scroll = true) {
  state.step = Math.min(Math.max(step, 0), getReading().words.length);
  $("step").value = state.step;
  const description = describeStep();
  $("step").setAttribute("aria-valuetext", description);
  $("step-text").textContent = description;
  showSteps(state.graph, state.step);
  markRow(state.heatMap, state.step);
  const node = markNodes();
  if (scroll && node) scrollToBox($("graph"), node.getBBox());
  fillTable();
  updateAddress();
}

/** Scrolls a picture horizontally until a box is visible. */
function scrollToBox(container, box) {
  const margin = 40, left = box.x - margin, right = box.x + box.width + margin;
  if (left < container.scrollLeft) container.scrollLeft = left;
  else if (right > container.scrollLeft + container.clientWidth) container.scrollLeft = right - container.clientWidth;
}

function describeStep() {
  const { words, memories, outputs } = getReading(), t = state.step - 1;
  if (t < 0) {
    const isInitial = getMemory().held.every((contents, slot) => contents === getMemory().slots[slot]);
    return `Step 0 of ${words.length}: each slot holds ${isInitial ? "its own word" : "what an earlier text wrote"}.`;
  }
  const output = outputs.length ? ` Output: “${isolateWord(outputs[t])}”.` : "";
  const targets = memories.map((memory) => {
    const slot = memory.composed[t], best = memory.read[t];
    const own = slot === best ? "" : `; own slot ${memory.keys[t][best].toFixed(2)}`;
    const owner = memories.length > 1 ? ` in the memory of ${memory.name}` : "";
    return `“${isolateWord(memory.slots[slot])}”${owner} (z ${memory.keys[t][slot].toFixed(2)}${own})`;
  });
  const word = isolateWord(words[t]);
  return `Step ${t + 1} of ${words.length}: “${word}” composed with ${targets.join(" and ")}.${output}`;
}

/** Marks the current word and the slots that it is composed with; returns the node of the word. */
function markNodes() {
  const t = state.step - 1;
  if (t < 0) return state.graph.querySelector(".node");
  const mark = (memory, slot, name) => {
    const nodes = state.graph.querySelectorAll(`.node[data-memory="${memory}"][data-slot="${slot}"]`);
    for (const node of nodes) node.classList.add(name);
  };
  getReading().memories.forEach((memory, number) => {
    mark(number, memory.composed[t], "to");
    mark(number, memory.own[t], "from");
  });
  mark(-1, t, "from"); // words without a memory of their own
  return state.graph.querySelector(".from");
}

function fillTable() {
  const t = state.step - 1, memory = getMemory(), rows = $("slots").tBodies[0].rows;
  computeState(getReading(), memory, state.step).forEach((contents, slot) => {
    const row = rows[slot], weight = t < 0 ? 0 : memory.keys[t][slot];
    row.className = t >= 0 && memory.composed[t] === slot ? "written" : "";
    row.cells[1].textContent = contents;
    row.cells[2].firstChild.firstChild.style.width = `${(100 * weight).toFixed(1)}%`;
    row.cells[2].lastChild.textContent = t < 0 ? "" : weight.toFixed(2);
  });
}

function togglePlaying() {
  if (state.timer) return stopPlaying();
  const last = getReading().words.length;
  if (state.step >= last) goToStep(0);
  state.timer = setInterval(() => {
    goToStep(state.step + 1);
    if (state.step >= last) stopPlaying();
  }, STEP_MS);
  $("play").textContent = "Pause";
  return undefined;
}

function stopPlaying() {
  clearInterval(state.timer);
  state.timer = 0;
  $("play").textContent = "Play";
}

// --- history, links, files -----------------------------------------------------------------------------

function showHistory(number, slot) {
  const memory = getReading().memories[number];
  const steps = listHistory(getReading(), memory, slot);
  state.historyOpener = document.activeElement;
  $("history-title").textContent = `History of the slot “${isolateWord(memory.slots[slot])}”`;
  const lines = [
    `Start: ${isolateWord(memory.held[slot])}`,
    ...steps.map(({ t, word, weight, contents }) => `Step ${t + 1}, “${word}” (z ${weight.toFixed(2)}): ${contents}`),
    ...(steps.length ? [] : ["No word is composed with this slot."]),
  ];
  $("history-steps").replaceChildren(...lines.map((textContent) => createElement("li", { textContent })));
  $("history").hidden = false;
  $("history").focus();
}

/** Closes the history and focuses the button that opened it. */
function closeHistory() {
  $("history").hidden = true;
  (state.historyOpener?.isConnected ? state.historyOpener : $("play")).focus();
}

/** Writes texts and view into the address; other texts are a new entry of the browser's history. */
function updateAddress() {
  const params = new URLSearchParams();
  if (state.model) for (const text of state.trace.texts) params.append("text", text.text);
  if (state.reading) params.set("reading", state.reading);
  if (state.memory) params.set("memory", state.memory);
  if (state.step < getReading().words.length) params.set("step", state.step);
  const before = parseAddress().texts;
  const hasNewTexts = before.length && before.join("\n") !== params.getAll("text").join("\n");
  try {
    history[hasNewTexts ? "pushState" : "replaceState"](null, "", `#${params}`);
  } catch {
    // Browsers limit how often the address may change; the next step tries again.
  }
  $("link").value = location.href;
}

function parseAddress() {
  const params = new URLSearchParams(location.hash.slice(1));
  const getNumber = (name) => (params.has(name) ? Number(params.get(name)) : undefined);
  return {
    texts: params.getAll("text"),
    view: { reading: getNumber("reading"), memory: getNumber("memory"), step: getNumber("step") },
  };
}

function loadAddress() {
  const { texts, view } = parseAddress();
  const isCurrent = state.trace && texts.join("\n") === state.trace.texts.map((text) => text.text).join("\n");
  if (texts.length && !isCurrent) {
    fillForm(texts);
    runModel(view);
  } else if (state.trace) showTrace(state.json, view);
}

async function copyLink() {
  updateAddress();
  try {
    await navigator.clipboard.writeText(location.href);
    $("share-status").textContent = "Link copied.";
  } catch {
    $("link").focus();
    $("link").select();
    $("share-status").textContent = "Copy the share link below.";
  }
}

function saveFile(suffix, type, text) {
  const name = `nse-${state.trace.model.name}`.replace(/[^\w-]+/g, "-") + suffix;
  download(name, type, text);
  $("share-status").textContent = `${name} downloaded.`;
}

// --- start ---------------------------------------------------------------------------------------------

function isDark() {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function addListeners() {
  const onClick = (id, listener) => $(id).addEventListener("click", listener);
  const onClickGoTo = (id, getStep) => onClick(id, () => { stopPlaying(); goToStep(getStep()); });
  $("form").addEventListener("submit", (event) => { event.preventDefault(); runModel(); });
  $("form").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) runModel();
  });
  onClick("theme", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    $("theme").setAttribute("aria-pressed", String(isDark()));
  });
  $("theme").setAttribute("aria-pressed", String(isDark()));
  onClickGoTo("first", () => 0);
  onClickGoTo("back", () => state.step - 1);
  onClickGoTo("next", () => state.step + 1);
  onClickGoTo("last", () => getReading().words.length);
  onClick("play", togglePlaying);
  $("step").addEventListener("input", () => { stopPlaying(); goToStep(Number($("step").value)); });
  onClick("copy", copyLink);
  onClick("svg", () => saveFile(".svg", "image/svg+xml", exportSvg(state.graph, state.trace)));
  onClick("json", () => saveFile(".json", "application/json", state.json));
  onClick("close", closeHistory);
  onClick("skip", (event) => { // the address keeps the state, so no #answer
    event.preventDefault();
    ($("answer").hidden ? document.querySelector("textarea") ?? $("theme") : $("answer")).focus();
  });
  addEventListener("hashchange", loadAddress);
  document.addEventListener("keydown", handleKey);
}

/** Moves with the arrow keys, except where they have another function. */
function handleKey(event) {
  if (!state.trace || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && !$("history").hidden) closeHistory();
  const direction = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!direction || event.target.closest("input, textarea, select, .scroll:focus")) return;
  stopPlaying();
  goToStep(state.step + direction);
  event.preventDefault();
}

async function start() {
  addListeners();
  const trace = $("trace"); // in a page that is a file
  if (trace) {
    showTrace(trace.textContent, parseAddress().view);
    const texts = state.trace.texts.map((text) => clipWord(text.text, 200)).join(" | ");
    $("about").textContent = `Model ${state.trace.model.name}. Text: ${texts}`;
    return;
  }
  try {
    const response = await fetch("v1/model");
    if (!response.ok) throw new Error(String(response.status));
    buildForm(await response.json());
  } catch {
    showError("The server does not respond. Check that it is running, then reload this page.");
    return;
  }
  if (parseAddress().texts.length) loadAddress();
  else if (state.model.examples.length) fillForm(state.model.examples[0]);
}

start();
