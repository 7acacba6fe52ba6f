// The picture with its boxes: what is drawn, and what the pointer does to it.

import { boxBetween, drag, fit, HANDLES, handleAt, smallestAt, toImage, zoom } from "./geometry.mjs";

// In pixels of the screen: how far a click may move, and how near a handle takes it. A finger is less exact.
const SLOP = { mouse: 4, touch: 10 };
const REACH = { mouse: 8, touch: 22 };
const LENS = 4; // times that the magnifier enlarges what the screen shows
const CURSORS = { nw: "nwse-resize", se: "nwse-resize", ne: "nesw-resize", sw: "nesw-resize",
  n: "ns-resize", s: "ns-resize", e: "ew-resize", w: "ew-resize" };
const DARK = "#10131a";

const exactness = (event) => (event.pointerType === "touch" ? "touch" : "mouse");

const textPlace = (text, x, top) => [x, top, text.length * 6.6 + 10, 17];

// The whole pixels of the screen around places [x, y, width, height], with their lines and handles.
function around(places) {
  const [left, top] = [0, 1].map((axis) => Math.min(...places.map((each) => each[axis])) - 7);
  const [right, bottom] = [0, 1].map((axis) => Math.max(...places.map((each) => each[axis] + each[axis + 2])) + 7);
  const [x1, y1] = [left, top].map((value) => Math.floor(value * devicePixelRatio) / devicePixelRatio);
  const [x2, y2] = [right, bottom].map((value) => Math.ceil(value * devicePixelRatio) / devicePixelRatio);
  return [x1, y1, x2 - x1, y2 - y1];
}

const meet = (a, b) => a[0] < b[0] + b[2] && b[0] < a[0] + a[2] && a[1] < b[1] + b[3] && b[1] < a[1] + a[3];

function paintText(pen, text, x, top, color) {
  pen.fillStyle = color;
  pen.fillRect(...textPlace(text, x, top));
  pen.fillStyle = DARK;
  pen.fillText(text, x + 5, top + 12.5);
}

function paintBox(pen, [x, y, width, height], top, { color, text, status }, chosen, aimed) {
  pen.setLineDash([]);
  Object.assign(pen, { lineWidth: 4, strokeStyle: "#000a", fillStyle: "#ffffff1c" });
  pen.strokeRect(x, y, width, height);
  if (chosen || aimed) pen.fillRect(x, y, width, height);
  if (status === "proposed") pen.setLineDash([7, 4]);
  Object.assign(pen, { lineWidth: chosen ? 3 : 2, strokeStyle: color });
  pen.strokeRect(x, y, width, height);
  paintText(pen, text, x - 1, top, color);
}

function paintHandles(pen, [x, y, width, height], color) {
  pen.setLineDash([]);
  Object.assign(pen, { lineWidth: 2, strokeStyle: color, fillStyle: "#fff" });
  for (const [u, v] of Object.values(HANDLES)) {
    pen.beginPath();
    pen.arc(x + u * width, y + v * height, 5, 0, 2 * Math.PI);
    pen.fill();
    pen.stroke();
  }
}

function paintPoint(pen, [x, y], { color, label }) {
  pen.setLineDash([]);
  for (const [lineWidth, strokeStyle] of [[7, "#000a"], [4, color]]) {
    Object.assign(pen, { lineWidth, strokeStyle });
    pen.stroke(new Path2D(`M${x - 7} ${y}h14M${x} ${y - 7}v14`));
  }
  paintText(pen, label, x + 10, y - 8, color);
}

function paintPreview(pen, place) {
  pen.setLineDash([3, 3]);
  Object.assign(pen, { lineWidth: 2, strokeStyle: "#fff", fillStyle: "#ffffff22" });
  pen.fillRect(...place);
  pen.strokeRect(...place);
}

export class Stage {
  // `on` has what the person did, in pixels of the image: select(id), draw(box), change(id, box), click(point) beside
  // all boxes, and again(point), a click into the chosen box.
  constructor(root, on) {
    Object.assign(this, { root, on, image: null, view: null, boxes: [], points: [], pointer: null, rest: null, gesture: null });
    this.canvas = root.querySelector("canvas"); // not SVG: its texts are laid out anew at each change of one of them
    this.painting = null; // the next frame, if it has something new
    this.painted = { marks: new Map() }; // what the canvas shows
    this.lens = root.querySelector(".lens");
    this.picture = null;
    this.touches = new Map();
    this.panning = false; // while the space bar is down
    root.addEventListener("pointerdown", (event) => this.#down(event));
    root.addEventListener("pointermove", (event) => this.#move(event));
    root.addEventListener("pointerup", (event) => this.#up(event));
    root.addEventListener("pointercancel", (event) => this.#cancel(event));
    root.addEventListener("pointerleave", () => this.#leave());
    root.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    root.addEventListener("contextmenu", (event) => event.preventDefault());
    this.screen = { width: root.clientWidth, height: root.clientHeight }; // asking for it later would lay the page out
    new ResizeObserver(([{ contentRect }]) => this.#resize(contentRect)).observe(root);
  }

  show(image, picture) {
    this.picture?.remove();
    Object.assign(this, { image, picture, gesture: null });
    picture.className = "picture";
    picture.alt = "";
    picture.draggable = false;
    this.root.prepend(picture);
    this.lens.style.backgroundImage = `url("${picture.src}")`;
    this.fit();
  }

  clear() {
    this.picture?.remove();
    this.image = null;
    this.draw([], [], null);
  }


  fit() {
    this.view = fit(this.image, this.screen);
    this.#place();
  }

  zoom(factor, place = [this.screen.width / 2, this.screen.height / 2]) {
    this.view = zoom(this.view, factor, place);
    this.#place();
  }

  // Where the pointer is in the image; null: outside of the stage.
  get point() {
    return this.pointer && this.image && toImage(this.view, this.pointer);
  }

  // The smallest box under the pointer.
  get under() {
    return this.point && smallestAt(this.boxes, this.point);
  }

  // The box that a key is for: the one under the pointer if that moved since a box was chosen, else the chosen one.
  get aimed() {
    const { pointer, rest } = this;
    const moved = pointer && (!rest || Math.hypot(pointer[0] - rest[0], pointer[1] - rest[1]) > SLOP.mouse);
    return (moved && this.under) || this.boxes.find((each) => each.id === this.selected) || this.under;
  }

  // boxes: [{id, label, box, color, text, status}]; points: [{point, color, label}].
  draw(boxes, points, selected) {
    if (selected !== this.selected) this.rest = this.pointer;
    Object.assign(this, { boxes, points, selected });
    this.#render();
  }

  #place() {
    const { scale, x, y } = this.view;
    const style = this.picture.style;
    style.width = `${this.image.width * scale}px`;
    style.height = `${this.image.height * scale}px`;
    style.transform = `translate(${x}px, ${y}px)`;
    style.imageRendering = scale > 3 ? "pixelated" : "auto";
    this.#render();
    this.#magnify();
  }

  #onScreen([x1, y1, x2, y2]) {
    const { scale, x, y } = this.view;
    return [x1 * scale + x, y1 * scale + y, (x2 - x1) * scale, (y2 - y1) * scale];
  }

  #resize({ width, height }) {
    this.screen = { width, height };
    Object.assign(this.canvas, { width: Math.round(width * devicePixelRatio), height: Math.round(height * devicePixelRatio) });
    if (this.image) this.fit();
  }

  #render() {
    this.painting ??= requestAnimationFrame(() => {
      this.painting = null;
      this.#paint();
    });
  }

  // Paints anew where something has changed since the last frame: without a GPU, hundreds of boxes take too long.
  #paint() {
    const { canvas, view, painted } = this;
    const { width, height } = canvas;
    const screen = [0, 0, width / devicePixelRatio, height / devicePixelRatio];
    const marks = new Map(this.image ? this.#marks().filter((mark) => meet(screen, mark.extent)).map((mark) => [mark.key, mark]) : []);
    const without = (some, others) => [...some].filter(([key]) => !others.has(key)).map(([, mark]) => mark.extent);
    const changed = [...without(painted.marks, marks), ...without(marks, painted.marks)];
    const few = changed.length < 20 && painted.view === view && painted.width === width && painted.height === height;
    this.painted = { view, width, height, marks };
    const pen = canvas.getContext("2d");
    pen.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    pen.font = "600 11px ui-monospace, monospace";
    for (const part of few ? changed : [screen]) {
      pen.save();
      pen.beginPath();
      pen.rect(...part);
      pen.clip();
      pen.clearRect(...part);
      for (const { extent, paint } of marks.values()) if (meet(part, extent)) paint(pen);
      pen.restore();
    }
  }

  // What is to be seen, the last above the others: {key, all that its look depends on; extent; paint}.
  #marks() {
    const { gesture, selected } = this;
    const marks = [];
    const mark = (extent, paint, ...look) => marks.push({ key: JSON.stringify([paint.name, ...look]), extent, paint: (pen) => paint(pen, ...look) });
    const plates = [];
    const aimed = this.pointer && this.aimed?.id;
    let handles = null;
    for (const each of this.boxes) {
      const place = this.#onScreen((gesture?.id === each.id && gesture.box) || each.box);
      const [x, y] = place;
      let top = Math.max(0, y - 17);
      while (plates.some((other) => meet(other, textPlace(each.text, x - 1, top)))) top += 17;
      const plate = textPlace(each.text, x - 1, top);
      plates.push(plate);
      mark(around([place, plate]), paintBox, place, top, each, each.id === selected, each.id === aimed);
      if (each.id === selected) handles = [place, each.color];
    }
    if (handles) mark(around([handles[0]]), paintHandles, ...handles);
    for (const { point, label, color } of this.points) {
      const [x, y] = this.#onScreen([...point, ...point]);
      mark(around([[x - 7, y - 7, 14, 14], textPlace(label, x + 10, y - 8)]), paintPoint, [x, y], { color, label });
    }
    if (gesture?.preview) mark(around([this.#onScreen(gesture.preview)]), paintPreview, this.#onScreen(gesture.preview));
    return marks;
  }

  // The chosen box, and which of its handles is at a place.
  #grip(event, place) {
    const chosen = this.boxes.find((each) => each.id === this.selected);
    return [chosen, chosen && handleAt(this.#onScreen(chosen.box), place, REACH[exactness(event)])];
  }

  #local(event) {
    const { left, top } = this.root.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  }

  #down(event) {
    if (!this.image) return;
    const place = this.#local(event);
    this.pointer = place;
    this.root.setPointerCapture(event.pointerId);
    this.touches.set(event.pointerId, place);
    if (this.touches.size === 2) {
      this.gesture = { kind: "pinch" };
      return;
    }
    if (event.button === 1 || event.button === 2 || this.panning) {
      event.preventDefault();
      this.gesture = { kind: "pan" };
      return;
    }
    const start = toImage(this.view, place);
    const [chosen, handle] = this.#grip(event, place);
    if (handle) this.gesture = { kind: handle, id: chosen.id, from: chosen.box, start };
    else {
      const inside = smallestAt(chosen ? [chosen] : [], start);
      if (inside) this.gesture = { kind: "move", id: inside.id, from: inside.box, start };
      else this.gesture = { kind: "draw", start };
    }
    this.gesture.place = place;
    this.gesture.far = false;
  }

  #move(event) {
    if (!this.image) return;
    const place = this.#local(event);
    const before = this.touches.get(event.pointerId);
    this.pointer = place;
    if (before) this.touches.set(event.pointerId, place);
    const gesture = this.gesture;
    if (gesture?.kind === "pinch" && before) this.#pinch(event.pointerId, before, place);
    else if (gesture?.kind === "pan" && before) {
      this.view = { ...this.view, x: this.view.x + place[0] - before[0], y: this.view.y + place[1] - before[1] };
      this.#place();
    } else if (gesture) {
      const [x, y] = gesture.place;
      gesture.far ||= Math.hypot(place[0] - x, place[1] - y) > SLOP[exactness(event)];
      if (!gesture.far) return;
      const point = toImage(this.view, place);
      if (gesture.kind === "draw") gesture.preview = boxBetween(gesture.start, point, this.image, 0);
      else {
        const moved = [point[0] - gesture.start[0], point[1] - gesture.start[1]];
        gesture.box = drag(gesture.from, gesture.kind, moved, this.image);
      }
      this.#render();
    } else {
      this.root.style.cursor = CURSORS[this.#grip(event, place)[1]] ?? "";
      this.#render(); // the box that the pointer is in
    }
    this.#magnify();
  }

  #pinch(id, before, after) {
    const [other] = [...this.touches].filter(([each]) => each !== id).map(([, place]) => place);
    const distance = (place) => Math.hypot(place[0] - other[0], place[1] - other[1]) || 1;
    this.view = zoom(this.view, distance(after) / distance(before), other);
    this.view.x += (after[0] - before[0]) / 2;
    this.view.y += (after[1] - before[1]) / 2;
    this.#place();
  }

  #up(event) {
    this.touches.delete(event.pointerId);
    const gesture = this.gesture;
    if (!gesture || this.touches.size) return;
    this.gesture = null;
    const point = toImage(this.view, this.#local(event));
    if (gesture.kind === "pan" || gesture.kind === "pinch") return;
    if (!gesture.far) {
      const hit = smallestAt(this.boxes, point);
      if (!hit) this.on.click(point);
      else if (hit.id === this.selected) this.on.again(point);
      else this.on.select(hit.id);
      return;
    }
    const box = gesture.kind === "draw" ? boxBetween(gesture.start, point, this.image) : gesture.box;
    if (!box) this.#render(); // without the preview
    else if (gesture.kind === "draw") this.on.draw(box);
    else this.on.change(gesture.id, box);
  }

  #cancel(event) {
    this.touches.delete(event.pointerId);
    this.gesture = null;
    this.#render();
  }

  #leave() {
    if (this.gesture) return;
    this.pointer = null;
    this.#render();
    this.#magnify();
  }

  #wheel(event) {
    event.preventDefault();
    if (this.image) this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), this.#local(event));
  }

  magnifier(on) {
    this.lens.dataset.on = on;
    this.#magnify();
  }

  #magnify() {
    const shown = this.lens.dataset.on === "true" && this.pointer && this.image;
    this.lens.hidden = !shown;
    if (!shown) return;
    const style = this.lens.style;
    const [x, y] = this.pointer;
    const [u, v] = this.point;
    const side = this.lens.clientWidth / 2;
    const scale = this.view.scale * LENS;
    style.transform = `translate(${x - side}px, ${y - side}px)`;
    style.backgroundSize = `${this.image.width * scale}px ${this.image.height * scale}px`;
    style.backgroundPosition = `${side - u * scale}px ${side - v * scale}px`;
  }

  // Brightness as a factor, 1 as in the file.
  brightness(factor) {
    this.root.style.setProperty("--brightness", factor);
  }
}
