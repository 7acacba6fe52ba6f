// Crops of one class: a click rejects, Enter accepts the others.

import { byId, element } from "./panel.mjs";

const COUNT = 40;

export class Grid {
  // `person`, `ask` and `act(image, action, detector)` as in app.mjs; `settled` waits for the server to have all actions.
  constructor({ classes, person, ask, act, settled, message }) {
    Object.assign(this, { person, ask, act, settled, message, boxes: [], wrong: new Set() });
    byId("grid-class").replaceChildren(...classes.map((name) => element("option", { value: name, textContent: name })));
    byId("grid-class").onchange = () => this.load();
    byId("grid-accept").onclick = () => this.accept();
  }

  async load(label = byId("grid-class").value) {
    byId("grid-class").value = label;
    this.#show([]); // a click on what is about to be replaced would be lost
    byId("grid-text").textContent = "Loading …";
    await this.settled();
    const given = { person: this.person, label, count: COUNT };
    this.#show((await this.ask("/api/grid", given)).boxes);
    byId("crops").querySelector("button")?.focus();
  }

  #show(boxes) {
    this.boxes = boxes;
    this.wrong.clear();
    byId("crops").replaceChildren(...boxes.map((box) => this.#crop(box)));
    this.#text();
  }

  #crop(box) {
    const score = box.score === null ? "" : `score ${box.score.toFixed(2)}`;
    const text = element("span", { textContent: score });
    const image = element("img", { src: `/api/images/${box.image}/crops/${box.id}`, alt: "", loading: "lazy" });
    const button = element("button", {}, image, text);
    const show = () => {
      const wrong = this.wrong.has(box);
      button.setAttribute("aria-pressed", wrong);
      button.setAttribute("aria-label", `${box.label}, ${score}, ${wrong ? "rejected" : "to accept"}`);
      text.textContent = wrong ? "✗ rejected" : score;
    };
    button.onclick = () => {
      if (!this.wrong.delete(box)) this.wrong.add(box);
      show();
      this.#text();
    };
    show();
    return button;
  }

  #text() {
    const count = this.boxes.length;
    byId("grid-accept").disabled = !count;
    byId("grid-text").textContent = count
      ? `${count} boxes, ${this.wrong.size} rejected. A click rejects.`
      : "No box of this class is left to decide.";
  }

  async accept() {
    if (!this.boxes.length) return;
    for (const box of this.boxes) this.act(box.image, { kind: this.wrong.has(box) ? "reject" : "accept", id: box.id }, box.detector);
    const done = `${this.boxes.length - this.wrong.size} accepted, ${this.wrong.size} rejected`;
    await this.load();
    this.message(done);
  }
}
