// The picture with its boxes: what is drawn, and what the pointer does to it.

import { boxBetween, drag, fit, smallestAt, toImage, zoom } from "./geometry.mjs";
import { Keyed } from "./keyed.mjs";

const SVG = "http://www.w3.org/2000/svg";
const HANDLES = { nw: [0, 0], n: [0.5, 0], ne: [1, 0], e: [1, 0.5], se: [1, 1], s: [0.5, 1], sw: [0, 1], w: [0, 0.5] };
const SLOP = 4; // pixels of the screen that a click may move
const LENS = 4; // times that the magnifier enlarges what the screen shows

export function make(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const SHAPES = {
  box({ id, x, y, width, height, top, color, text, status, selected }) {
    const label = make("text", { x: x + 4, y: top + 12.5 }, text);
    return make("g", { class: `box ${status}${selected ? " selected" : ""}`, "data-id": id },
      make("rect", { class: "under", x, y, width, height }),
      make("rect", { x, y, width, height, stroke: color }),
      make("rect", { class: "plate", x: x - 1, y: top, width: text.length * 6.6 + 10, height: 17, fill: color }),
      label);
  },
  handles({ x, y, width, height, color }) {
    const circles = Object.entries(HANDLES).map(([name, [u, v]]) =>
      make("circle", { class: `handle ${name}`, "data-handle": name, stroke: color, cx: x + u * width, cy: y + v * height, r: 5 }));
    return make("g", {}, ...circles);
  },
  point: ({ x, y, color, label }) =>
    make("path", { class: "point", d: `M${x - 7} ${y}h14M${x} ${y - 7}v14`, stroke: color }, make("title", {}, label)),
  preview: ({ x, y, width, height }) => make("rect", { class: "preview", x, y, width, height }),
};

export class Stage {
  // `on` has what the person did, in pixels of the image: select(id), draw(box), change(id, box), click(point) beside
  // all boxes, and again(point), a click into the chosen box.
  constructor(root, on) {
    Object.assign(this, { root, on, image: null, view: null, boxes: [], points: [], pointer: null, gesture: null });
    this.shown = new Keyed(root.querySelector("svg"));
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
    new ResizeObserver(() => this.image && this.fit()).observe(root);
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

  get screen() {
    return { width: this.root.clientWidth, height: this.root.clientHeight };
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

  // boxes: [{id, label, box, color, text, status}]; points: [{point, color, label}].
  draw(boxes, points, selected) {
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

  #render() {
    if (!this.view) return;
    const plates = [];
    const items = this.boxes.map(({ id, box, color, text, status }) => {
      const [x, y, width, height] = this.#onScreen((this.gesture?.id === id && this.gesture.box) || box);
      let top = Math.max(0, y - 17);
      while (plates.some((each) => Math.abs(each[0] - x) < 40 && Math.abs(each[1] - top) < 14)) top += 17;
      plates.push([x, top]);
      return { kind: "box", id, x, y, width, height, top, color, text, status, selected: id === this.selected };
    });
    const chosen = items.find((each) => each.selected);
    if (chosen) items.push({ ...chosen, kind: "handles", id: "handles" });
    this.points.forEach(({ point, color, label }, i) => {
      const [x, y] = this.#onScreen([...point, ...point]);
      items.push({ kind: "point", id: `point ${i}`, x, y, color, label });
    });
    if (this.gesture?.preview) {
      const [x, y, width, height] = this.#onScreen(this.gesture.preview);
      items.push({ kind: "preview", id: "preview", x, y, width, height });
    }
    this.shown.show(items, (item) => SHAPES[item.kind](item));
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
    const handle = event.target.dataset?.handle;
    const start = toImage(this.view, place);
    const chosen = this.boxes.find((each) => each.id === this.selected);
    if (handle && chosen) this.gesture = { kind: handle, id: chosen.id, from: chosen.box, start };
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
      gesture.far ||= Math.hypot(place[0] - x, place[1] - y) > SLOP;
      if (!gesture.far) return;
      const point = toImage(this.view, place);
      if (gesture.kind === "draw") gesture.preview = boxBetween(gesture.start, point, this.image, 0);
      else {
        const moved = [point[0] - gesture.start[0], point[1] - gesture.start[1]];
        gesture.box = drag(gesture.from, gesture.kind, moved, this.image);
      }
      this.#render();
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
