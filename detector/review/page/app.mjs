// The page: which image is shown, what a person can do with it, and by which keys.

import { candidatesAt, contains, drag, likelyClass, mostLike, snapTargets } from "./geometry.mjs";
import { Grid } from "./grid.mjs";
import { showLearning } from "./learning.mjs";
import { boxText, byId, colorOf, showBoxes, showClasses, showProgress } from "./panel.mjs";
import { ask, Outbox } from "./server.mjs";
import { Stage } from "./stage.mjs";
import { classesWithoutBox, effective, find, likelyMissing, lowBoxes, replay, shownClasses } from "./state.mjs";

const AHEAD = 3; // images that are loaded before they are asked for
const person = crypto.randomUUID();
const session = await ask("/api/session").catch((error) => fail(error));
const classes = session.classes;
const stage = new Stage(byId("stage"), { select: choose, draw, change: moved, click: clicked, again });
let counting = 0; // a timer
const outbox = new Outbox({ person, name: session.title, onChange: showSaved, onRefused: refused });
const grid = new Grid({ classes, person, ask, act, settled: () => outbox.flush(), message });

let current = null; // the image that is shown: what the server sent, and `picture`, an <img>; null while one is loaded
let coming = null; // the image that is shown as soon as it is loaded
let state = null;
let selected = null; // the id of a box
let label = classes[0]; // of what is drawn next
let picked = false; // whether the person chose this class for what is drawn next
let upcoming = []; // images that are loaded already
let past = []; // images that were shown, and where among them the current one is
let place = -1;
let filling = null;
let confirmed = null; // the image whose missing boxes the person has been told of
let series = null; // boxes that another click, or S, goes through: {id, how, boxes, next}
let setting = false; // points, not boxes
let suggested = null; // the least score

// --- which image ---

async function load(image) {
  const picture = new Image();
  picture.src = `/api/images/${image.id}/pixels`;
  return { ...image, picture, ready: picture.decode().then(() => true, () => false) };
}

function fill() {
  filling ??= (async () => {
    const held = new Set([...upcoming.map((each) => each.id), ...outbox.waiting.map((each) => each.image)]);
    const last = current ?? past[place];
    if (last) held.add(last.id);
    const order = byId("order").value;
    const given = { person, order, count: AHEAD - upcoming.length, held: [...held].slice(-100) };
    if (order === "class") given.label = label;
    if (order === "similar" && last) given.near = last.id;
    const { images } = given.count > 0 ? await ask("/api/next", given) : { images: [] };
    if (order === byId("order").value) upcoming.push(...(await Promise.all(images.map(load))));
  })().catch((error) => message(error.message)).finally(() => (filling = null));
  return filling;
}

async function next() {
  if (place < past.length - 1) return show(past[++place]);
  if (!upcoming.length) {
    if (current) refresh(); // this image is still to be seen
    current = null; // but another key is not for it
    await fill();
  }
  if (!upcoming.length) {
    await outbox.flush(); // what was just accepted may be all that is left
    await fill();
  }
  const image = upcoming.shift();
  if (!image) return showEmpty();
  past.push(image);
  place = past.length - 1;
  await show(image);
  fill();
}

function back() {
  if (place > 0) show(past[--place]);
  else message("This is the first image.");
}

async function show(image) {
  coming = image;
  current = null; // a key is for no image that was not seen
  const readable = await image.ready;
  if (coming !== image) return;
  [current, coming] = [image, null];
  selected = series = confirmed = null;
  byId("empty").hidden = true;
  if (!readable) message("The picture cannot be read: skip it.");
  byId("name").textContent = image.name;
  if (byId("auto-least").checked && suggested !== null) setLeast(suggested);
  state = replay(image.start, image.actions);
  const shown = shownClasses(image.start, state, classes);
  label = likelyMissing(image.start, state, classes) ?? (shown.includes(label) ? label : shown[0] ?? label);
  picked = false;
  stage.show(image, image.picture);
  refresh();
}

async function showEmpty() {
  current = null;
  stage.clear();
  byId("empty").hidden = false;
  const { total, decided, skipped } = await ask("/api/progress").catch(() => ({ total: 0, decided: 0, skipped: 0 }));
  const left = total - decided - skipped;
  const others = left ? ` ${left} ${left === 1 ? "is" : "are"} left in other orders, or with somebody else.` : "";
  byId("empty").textContent = `No image is left in this order.${others} All is saved; the terminal shows how to train with it.`;
}

async function reorder() {
  upcoming = [];
  await filling;
  await next();
}

// --- what is shown ---

function refresh() {
  if (selected && !find(state, selected)) selected = null;
  const hidden = lowBoxes(state, least());
  const visible = state.boxes.filter((box) => box.id === selected || (box.status !== "rejected" && !hidden.has(box.id)));
  const boxes = visible.map((box) => ({ ...box, color: colorOf(classes, box.label), text: boxText(box) }));
  stage.draw(boxes, state.points.map((each) => ({ ...each, color: colorOf(classes, each.label) })), selected);
  showBoxes({ state, selected, classes, hidden }, { choose });
  showClasses({ image: current, state, classes, label }, byId("filter").value, { label: take, tag, count });
  const { done, undone } = effective(current.actions);
  byId("undo").disabled = !done.length;
  byId("redo").disabled = !undone.length;
}

function showNumbers() {
  clearTimeout(counting);
  counting = setTimeout(askNumbers, 100);
}

async function askNumbers() {
  const numbers = await ask("/api/progress").catch(() => null);
  if (!numbers) return;
  suggested = numbers.least;
  showProgress(numbers);
  showLearning(numbers.learning, numbers.decided);
}

function showSaved({ failure, length }) {
  const kept = length === 1 ? "1 action is" : `${length} actions are`;
  if (!length) showNumbers();
  byId("saved").textContent = failure ? `${failure} ${kept} kept in this browser until it is saved.` : "";
}

let shownFor = 0;
function message(text) {
  byId("message").textContent = text;
  clearTimeout(shownFor);
  shownFor = setTimeout(() => (byId("message").textContent = ""), 5000);
}

function fail(error) {
  byId("empty").hidden = false;
  byId("empty").textContent = error.message;
  throw error;
}

// --- what a person does ---

function act(image, action, detector) {
  outbox.add(image, { key: crypto.randomUUID(), ...action }, detector);
}

function record(action) {
  current.actions.push(action);
  act(current.id, action, current.start.detector);
  state = replay(current.start, current.actions);
  if (!picked) label = likelyMissing(current.start, state, classes) ?? label;
}

function perform(action) {
  if (!current) return;
  record(action);
  refresh();
}

async function refused(image, reason) {
  message(`Not saved: ${reason}`);
  if (image !== current?.id) return;
  Object.assign(current, await ask(`/api/images/${image}`));
  state = replay(current.start, current.actions);
  refresh();
}

function choose(id) {
  selected = id;
  series = null;
  const box = find(state, id);
  if (box) label = box.label;
  refresh();
}

function add(box, name, how) {
  const id = crypto.randomUUID();
  label = name;
  selected = id;
  perform({ kind: "add", id, label: name, box, how });
  return id;
}

// A box that is drawn over an undecided one, or over a proposal that was just asked for, corrects it: one action, where
// rejecting and drawing are two. It has the class that the person picked; else that of the box below it; else the one
// that the detector found there, or the announced one, which most likely lacks a box.
function draw(box) {
  if (!current) return;
  const likely = picked ? label : classes[likelyClass(current.candidates, box, classes.indexOf(label))];
  const open = stage.boxes.filter((each) => each.status === "proposed" || each.id === series?.id);
  const other = mostLike(open, box, likely) ?? (picked ? null : mostLike(open, box));
  series = null;
  selected = other?.id ?? crypto.randomUUID();
  record(other ? { kind: "change", id: selected, box, how: "drawn" } : { kind: "add", id: selected, label: likely, box, how: "drawn" });
  picked = false;
  label = likelyMissing(current.start, state, classes) ?? find(state, selected).label;
  refresh();
}

function moved(id, box) {
  series = null;
  perform({ kind: "change", id, box, how: "dragged" });
}

function clicked(point) {
  if (!current) return;
  if (setting) return setPoint(point);
  propose(point);
}

function again(point) {
  if (setting) setPoint(point);
  else if (series?.id === selected && series.how === "clicked") cycle();
}

function propose(point) {
  const there = stage.boxes.map((box) => box.box);
  const found = candidatesAt(current.candidates, point, there);
  if (!found.length) return message("No proposal is left here: drag to draw a box.");
  const id = add(found[0].box, classes[found[0].label], "clicked");
  series = { id, how: "clicked", boxes: found.map((each) => each.box), next: 1 };
  message("The best box here. Click again for the next one.");
}

function snap() {
  const box = stage.aimed;
  if (!box) return message("Choose a box, or point at one.");
  if (series?.id !== box.id || series.how !== "snapped") {
    const point = stage.point && contains(box.box, stage.point) ? stage.point : null;
    series = { id: box.id, how: "snapped", boxes: snapTargets(box.box, current.candidates, point), next: 0 };
  }
  if (!series.boxes.length) return message("No proposal is near this box.");
  selected = box.id;
  cycle();
}

function cycle() {
  const { id, how, boxes } = series;
  const box = boxes[series.next % boxes.length];
  series.next += 1;
  perform({ kind: "change", id, box, how });
}

function decide(kind) {
  const box = stage.aimed;
  if (!box) return message("Choose a box, or point at one.");
  if (kind === "reject" && box.id === selected) selected = null;
  series = null;
  perform({ kind, id: box.id });
}

function take(name) {
  const box = selected && find(state, selected);
  label = name;
  picked = !box || box.label === name; // else it is the class of that box, not of what is drawn next
  if (box && box.label !== name) perform({ kind: "change", id: box.id, label: name });
  else if (current) refresh();
}

function tag(name) {
  const before = current.start.tags.includes(name);
  const shown = !(state.tags[name] ?? before);
  perform({ kind: "tag", label: name, shown: shown === before ? null : shown });
}

function count(name, number) {
  perform({ kind: "count", label: name, count: number });
}

function setPoint(point) {
  const near = ([x, y]) => Math.hypot(x - point[0], y - point[1]) * stage.view.scale < 9;
  const index = state.points.findIndex((each) => near(each.point));
  const inside = [[point[0], current.width], [point[1], current.height]].map(([at, most]) => Math.min(Math.max(at, 0), most));
  perform(index < 0 ? { kind: "point", label, point: inside } : { kind: "unpoint", index });
}

function acceptAll() {
  if (!current) return;
  const complete = byId("complete").checked;
  const missing = classesWithoutBox(current.start, state, classes);
  if (complete && missing.length && confirmed !== current.id) {
    confirmed = current.id;
    return message(`No box of ${missing.join(", ")}, as the tags say. Enter again if there is none.`);
  }
  record({ kind: "accept_all", complete, least: least() });
  return next();
}

function skip() {
  if (!current) return;
  record({ kind: "skip" });
  return next();
}

function undo(kind) {
  const { done, undone } = effective(current?.actions ?? []);
  if (!(kind === "undo" ? done : undone).length) return message(`Nothing to ${kind} in this image.`);
  series = null;
  perform({ kind });
}

function nudge(dx, dy, resize) {
  const box = selected && find(state, selected);
  if (box) perform({ kind: "change", id: box.id, box: drag(box.box, resize ? "se" : "move", [dx, dy], current), how: "keys" });
}

const least = () => Number(byId("least").value);

function setLeast(value) {
  byId("least").value = value;
  byId("least-text").textContent = least().toFixed(2);
}

// A least score that the person chooses stays; else each new image has that which the reviewed ones suggest.
function chooseLeast(value) {
  setLeast(value);
  byId("auto-least").checked = false;
  localStorage.setItem("least score", least());
  if (current) refresh();
}

function suggestLeast(event) {
  event.target.blur();
  if (event.target.checked) localStorage.removeItem("least score");
  else localStorage.setItem("least score", least());
}

function step(by) {
  const left = stage.boxes;
  if (!left.length) return;
  const index = left.findIndex((box) => box.id === selected);
  const from = index < 0 && by < 0 ? 0 : index;
  choose(left[(from + by + left.length) % left.length].id);
}

function toggle(id, on) {
  byId(id).setAttribute("aria-pressed", on);
}

function setPoints(on) {
  setting = on;
  toggle("points", on);
  byId("stage").classList.toggle("points", on);
}

function magnify() {
  const on = byId("magnifier").getAttribute("aria-pressed") !== "true";
  toggle("magnifier", on);
  stage.magnifier(on);
}

async function setGrid(on) {
  toggle("mode", on);
  byId("grid").hidden = !on;
  byId("stage").hidden = on;
  document.querySelector("main").classList.toggle("grid-shown", on);
  if (on) return grid.load(label).catch((error) => message(error.message));
  await outbox.flush();
  upcoming = [];
  if (current) {
    Object.assign(current, await ask(`/api/images/${current.id}`).catch(() => ({})));
    state = replay(current.start, current.actions);
    refresh();
  }
  return fill();
}

// --- keys ---

const inGrid = () => !byId("grid").hidden;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const KEYS = {
  Enter: acceptAll,
  n: skip,
  PageUp: back,
  PageDown: () => (place < past.length - 1 ? next() : message("This is the last image. N skips it.")),
  x: () => decide("reject"),
  Delete: () => decide("reject"),
  Backspace: () => decide("reject"),
  a: () => decide("accept"),
  s: snap,
  e: () => (stage.point ? propose(stage.point) : message("Point at an object.")),
  ",": () => step(-1),
  ".": () => step(1),
  "[": () => chooseLeast(least() - 0.05),
  "]": () => chooseLeast(least() + 0.05),
  b: () => byId("complete").click(),
  t: () => tag(label),
  p: () => setPoints(!setting),
  f: () => stage.fit(),
  m: magnify,
  "+": () => stage.zoom(1.3),
  "=": () => stage.zoom(1.3),
  "-": () => stage.zoom(1 / 1.3),
  "/": () => byId("filter").focus(),
  Escape: () => choose(null),
};

addEventListener("keydown", (event) => {
  if (byId("keys").open || event.target.matches("select, input:not([type=checkbox], [type=range])")) return;
  const command = event.ctrlKey || event.metaKey;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const run = (action) => {
    event.preventDefault();
    action();
  };
  if (command) {
    if (inGrid() || (key !== "z" && key !== "y")) return;
    run(() => undo(key === "y" || event.shiftKey ? "redo" : "undo"));
  } else if (key === "?") run(() => byId("keys").showModal());
  else if (key === "g") run(() => setGrid(!inGrid()));
  else if (inGrid()) {
    if (key === "Enter") run(() => grid.accept());
  } else if (event.altKey && !ARROWS[key]) return;
  else if (key === " " && event.target === document.body) run(() => (stage.panning = true));
  else if (!current) {
    if (key === "PageUp") run(() => place >= 0 && show(past[place]));
  } else if (ARROWS[key]) {
    const far = event.shiftKey ? 10 : 1;
    if (selected) run(() => nudge(ARROWS[key][0] * far, ARROWS[key][1] * far, event.altKey));
  } else if (/^[1-9]$/.test(key)) run(() => classes[key - 1] && take(classes[key - 1]));
  else if (KEYS[key] && !(key === "Enter" && event.target.matches("aside button, header button"))) run(KEYS[key]);
});
addEventListener("keyup", (event) => event.key === " " && (stage.panning = false));

byId("filter").addEventListener("keydown", (event) => {
  const first = byId("classes").querySelector("button.class");
  if (event.key === "Enter") first?.click();
  if (event.key !== "Enter" && event.key !== "Escape") return;
  event.preventDefault();
  event.stopPropagation();
  byId("filter").value = "";
  byId("filter").blur();
  if (current) refresh();
});
byId("filter").oninput = () => current && refresh();

const CLICKS = {
  "accept-all": acceptAll, skip, back, undo: () => undo("undo"), redo: () => undo("redo"), magnifier: magnify,
  points: () => setPoints(!setting), fit: () => stage.fit(), help: () => byId("keys").showModal(),
  mode: () => setGrid(!inGrid()), reject: () => decide("reject"), accept: () => decide("accept"), snap,
  theme: () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"),
};
for (const [id, action] of Object.entries(CLICKS)) {
  byId(id).addEventListener("click", (event) => {
    action();
    if (event.detail) event.currentTarget.blur(); // after a click of the mouse, Enter is a key of the page again
  });
}
byId("order").onchange = (event) => {
  event.target.blur();
  reorder();
};
byId("least").oninput = (event) => chooseLeast(event.target.value);
byId("auto-least").onchange = suggestLeast;
byId("brightness").oninput = (event) => stage.brightness(event.target.value);
byId("complete").onchange = (event) => event.target.blur();

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  localStorage.setItem("theme", name);
}

setLeast(localStorage.getItem("least score") ?? 0.3);
byId("auto-least").checked = localStorage.getItem("least score") === null;
setTheme(localStorage.getItem("theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
setInterval(() => {
  if (document.hidden) return;
  askNumbers(); // what is learned meanwhile
  if (!current && !coming && !filling && !inGrid()) next(); // what somebody else has given back
}, 5000);
addEventListener("pageshow", (event) => event.persisted && location.reload()); // its images are of others by now
addEventListener("pagehide", () => {
  fetch("/api/release", {
    method: "POST", keepalive: true, body: JSON.stringify({ person }), headers: { "content-type": "application/json" },
  });
});
document.title = `Review of ${session.title}`;
byId("title").textContent = `Review of ${session.title}`;
await outbox.flush();
await next();
