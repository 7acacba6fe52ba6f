// The lists beside the picture, and the header: what they show. What a person does with them calls `on`.

import { Keyed } from "./keyed.mjs";
import { effortText, ENOUGH, make } from "./learning.mjs";
import { shownClasses } from "./state.mjs";

// Bright enough for dark text. Each class has its name beside its color.
const COLORS = ["#5b9dff", "#ff7a6b", "#35d08a", "#ffc53d", "#c08bff", "#2fd0ea", "#ff85c2", "#b2e03b", "#e0ab78", "#c3cad6"];
const MARKS = { accepted: "✓", proposed: "", rejected: "✗" };

export const byId = (id) => document.getElementById(id);

export const colorOf = (classes, label) => COLORS[classes.indexOf(label) % COLORS.length];

export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function swatch(color) {
  const made = element("span", { className: "swatch" });
  made.style.background = color;
  return made;
}

export function boxText(box) {
  const parts = [MARKS[box.status], box.label, box.doubtful ? "?" : "", box.score === null ? "" : box.score.toFixed(2)];
  return parts.filter(Boolean).join(" ");
}

const rows = new Keyed(byId("boxes"));
let chosen = null; // the box that the list was last scrolled to

export function showBoxes({ state, selected, classes, hidden }, on) {
  const items = state.boxes.filter((box) => !hidden.has(box.id)).map(({ id, label, status, score, doubtful }) =>
    ({ id, label, status, score, doubtful, color: colorOf(classes, label), current: id === selected }));
  rows.show(items, ({ id, label, status, score, doubtful, color, current }) => {
    const button = element("button", { value: id, onclick: () => on.choose(id) },
      swatch(color),
      element("span", { className: "label", textContent: label }),
      element("span", { textContent: MARKS[status], title: status }),
      element("span", { className: "score", textContent: score?.toFixed(2) ?? "drawn" }));
    button.setAttribute("aria-current", current);
    button.setAttribute("aria-label", `${label}, ${status}${doubtful ? ", doubtful" : ""}`);
    return element("li", { className: status }, button);
  });
  if (selected !== chosen) byId("boxes").querySelector('[aria-current="true"]')?.scrollIntoView({ block: "nearest" });
  chosen = selected;
  const open = state.boxes.filter((box) => box.status === "proposed").length - hidden.size;
  const parts = [open ? `${open} to decide` : "", hidden.size ? `${hidden.size} below the least score` : ""];
  byId("box-count").textContent = parts.filter(Boolean).join(", ");
}

let before = ""; // what the table of classes shows

export function showClasses({ image, state, classes, label }, filter, on) {
  const shown = shownClasses(image.start, state, classes);
  const wanted = filter.trim().toLowerCase();
  const now = JSON.stringify([image.id, state.tags, state.counts, label, wanted]);
  if (now === before) return;
  before = now;
  const rows = classes.filter((name) => name.toLowerCase().includes(wanted)).map((name) => {
    const number = classes.indexOf(name) + 1;
    const key = number < 10 ? [element("kbd", { textContent: number })] : [];
    const button = element("button", { className: "class", onclick: () => on.label(name) },
      swatch(colorOf(classes, name)), name, ...key);
    button.setAttribute("aria-pressed", name === label);
    return element("tr", {}, element("td", {}, button), element("td", {}, tagButton(name)), element("td", {}, count(name)));
  });
  byId("classes").tBodies[0].replaceChildren(...rows);

  function tagButton(name) {
    const corrected = state.tags[name] !== undefined;
    const unknown = !corrected && image.start.unknown.includes(name);
    const text = unknown ? "unknown" : shown.includes(name) ? (corrected ? "missing" : "shown") : corrected ? "wrong" : "–";
    const doubt = corrected ? 0 : image.doubts[name] ?? 0;
    const button = element("button", { className: `tag${corrected || doubt ? " corrected" : ""}`, textContent: doubt ? `${text} ?` : text });
    button.onclick = () => on.tag(name);
    const doubtful = doubt ? `, probably wrong (${Math.round(100 * doubt)} %)` : "";
    button.setAttribute("aria-label", `Tag ${name}: ${text === "–" ? "not shown" : text}${doubtful}`);
    button.title = `shown: as tagged; wrong: it is not there; missing: it is there without a tag${doubtful}`;
    return button;
  }

  function count(name) {
    const input = element("input", { type: "number", min: 1, max: 65535, value: state.counts[name] ?? "" });
    input.setAttribute("aria-label", `Number of ${name}`);
    input.onchange = () => on.count(name, input.value === "" ? null : Math.max(1, Math.round(Number(input.value)) || 1));
    return input;
  }
}

export function showProgress({ total, decided, skipped, recent }) {
  byId("bar").max = Math.max(total, 1);
  byId("bar").value = decided;
  byId("counts").textContent = `${decided} of ${total} reviewed${skipped ? `, ${skipped} skipped` : ""}`;
  const most = Math.max(3, ...recent.map((each) => each.corrections));
  const width = 240 / ENOUGH.images;
  byId("curve").replaceChildren(...recent.map(({ corrections }, i) => {
    const height = 1 + (46 * corrections) / most;
    return make("rect", { x: i * width, y: 48 - height, width: width - 1, height });
  }));
  byId("curve-text").textContent = effortText(recent);
}
