// The functions of the page that need no browser: node --test tests/review/page.test.mjs

import assert from "node:assert/strict";
import test from "node:test";

import * as geometry from "../../detector/review/page/geometry.mjs";
import { Keyed } from "../../detector/review/page/keyed.mjs";
import { effortText, learningText, linePoints } from "../../detector/review/page/learning.mjs";
import { Failure, Outbox } from "../../detector/review/page/server.mjs";
import { classesWithoutBox, effective, likelyMissing, replay, shownClasses } from "../../detector/review/page/state.mjs";

const image = { width: 100, height: 50 };
const close = (found, expected) => found.forEach((each, i) => assert.ok(Math.abs(each - expected[i]) < 1e-9));

test("overlap is 0 for boxes that touch, and 1 for equal ones", () => {
  assert.equal(geometry.iou([0, 0, 10, 10], [10, 0, 20, 10]), 0);
  assert.equal(geometry.iou([0, 0, 10, 10], [0, 0, 10, 10]), 1);
  assert.equal(geometry.iou([0, 0, 10, 10], [5, 0, 15, 10]), 1 / 3);
});

test("a box between two corners is in the image, in any direction, and not tiny", () => {
  assert.deepEqual(geometry.boxBetween([120, 60], [10, -5], image), [10, 0, 100, 50]);
  assert.equal(geometry.boxBetween([10, 10], [11, 30], image), null);
});

test("a dragged box keeps its size at the border, a resized one its other side", () => {
  assert.deepEqual(geometry.drag([10, 10, 30, 30], "move", [90, -90], image), [80, 0, 100, 20]);
  assert.deepEqual(geometry.drag([10, 10, 30, 30], "nw", [90, -90], image), [28, 0, 30, 30]);
  assert.deepEqual(geometry.drag([10, 10, 30, 30], "se", [500, 500], image), [10, 10, 100, 50]);
});

test("the smallest box under the pointer is found", () => {
  const boxes = [{ box: [0, 0, 90, 40] }, { box: [5, 5, 20, 20] }, { box: [50, 5, 60, 20] }];
  assert.equal(geometry.smallestAt(boxes, [10, 10]), boxes[1]);
  assert.equal(geometry.smallestAt(boxes, [95, 45]), null);
});

test("a drawn box is most like the one that it overlaps most, or like none", () => {
  const boxes = [{ box: [0, 0, 20, 20] }, { box: [4, 0, 24, 20] }, { box: [60, 0, 80, 20] }];
  assert.equal(geometry.mostLike(boxes, [5, 0, 25, 20]), boxes[1]);
  assert.equal(geometry.mostLike(boxes, [30, 0, 50, 20]), null);
  assert.equal(geometry.mostLike([], [0, 0, 1, 1]), null);
});

test("a box that is drawn around one of its class is of that one, too", () => {
  const head = { label: "fox", box: [20, 10, 30, 20] };
  const around = [10, 5, 90, 45];
  assert.equal(geometry.mostLike([head], around, "fox"), head);
  assert.equal(geometry.mostLike([head], around, "owl"), null);
  assert.equal(geometry.mostLike([head], around), null); // of another class: it may lie in front
  assert.equal(geometry.mostLike([{ label: "fox", box: [0, 0, 20, 20] }], around, "fox"), null); // sticks out
});

test("the nearest handle within reach is taken; the middle of a small box is free", () => {
  const place = [10, 10, 100, 50]; // x, y, width, height
  assert.equal(geometry.handleAt(place, [5, 12], 8), "nw");
  assert.equal(geometry.handleAt(place, [108, 61], 8), "se");
  assert.equal(geometry.handleAt(place, [60, 35], 22), null);
  assert.equal(geometry.handleAt(place, [60, 70], 8), null);
  assert.equal(geometry.handleAt([10, 10, 12, 12], [16, 16], 22), null);
  assert.equal(geometry.handleAt([10, 10, 12, 12], [30, 30], 22), "se");
});

test("a box snaps to the nearest candidate under the pointer that is another box", () => {
  const candidates = [[0, 0, 20, 20, 0, 0.1], [1, 1, 21, 21, 0, 0.9], [0, 0, 12, 20, 0, 0.5], [60, 0, 80, 20, 0, 1]];
  const box = [0, 0, 20, 20];
  assert.deepEqual(geometry.snapTargets(box, candidates, [15, 15]), [[1, 1, 21, 21]]);
  assert.deepEqual(geometry.snapTargets(box, candidates, null), [[1, 1, 21, 21], [0, 0, 12, 20]]);
});

test("a click proposes the best box around it that is not there yet", () => {
  const candidates = [[0, 0, 40, 40, 1, 0.9], [0, 0, 100, 50, 0, 0.8], [1, 1, 40, 40, 1, 0.7]];
  assert.deepEqual(geometry.candidatesAt(candidates, [20, 20], [])[0], { box: [0, 0, 40, 40], label: 1, value: 0.9 });
  assert.equal(geometry.candidatesAt(candidates, [20, 20], []).length, 2);
  const [other] = geometry.candidatesAt(candidates, [20, 20], [[0, 0, 40, 40]]);
  assert.deepEqual(other.box, [0, 0, 100, 50]);
  assert.deepEqual(geometry.candidatesAt(candidates, [300, 300], []), []);
});

test("a drawn box is of the class that was found there, unless the announced one is about as likely", () => {
  const box = [0, 0, 40, 40];
  const candidates = [[0, 0, 40, 40, 1, 0.5], [1, 0, 40, 40, 2, 0.49], [90, 0, 99, 9, 3, 1]];
  assert.equal(geometry.likelyClass(candidates, box, 0), 1);
  assert.equal(geometry.likelyClass(candidates, box, 2), 2);
  assert.equal(geometry.likelyClass(candidates, [200, 0, 240, 40], 3), 3); // nothing was found there
  assert.equal(geometry.likelyClass([[0, 0, 40, 40, 1, 0.04]], box, 0), 0);
});

test("zooming keeps the place under the pointer", () => {
  const view = geometry.fit(image, { width: 232, height: 132 });
  assert.deepEqual(view, { scale: 2, x: 16, y: 16 });
  const before = geometry.toImage(view, [50, 40]);
  close(geometry.toImage(geometry.zoom(view, 3, [50, 40]), [50, 40]), before);
  assert.equal(geometry.zoom(view, 1e9, [0, 0]).scale, 64);
});

const start = {
  boxes: [{ id: "d0", label: "cat", box: [0, 0, 9, 9], score: 0.9, status: "proposed", doubtful: false, difficult: false }],
  tags: ["cat", "dog"],
  unknown: [],
  complete: false,
};

test("undo takes back, redo repeats, and something new ends what can be redone", () => {
  const accept = { kind: "accept", id: "d0" };
  const reject = { kind: "reject", id: "d0" };
  const status = (...actions) => replay(start, actions).boxes[0].status;
  assert.equal(status(accept, reject), "rejected");
  assert.equal(status(accept, reject, { kind: "undo" }), "accepted");
  assert.equal(status(accept, reject, { kind: "undo" }, { kind: "undo" }, { kind: "redo" }), "accepted");
  assert.deepEqual(effective([accept, { kind: "undo" }, reject]).undone, []);
});

test("tags are corrected, and a class without a box is named", () => {
  const classes = ["cat", "dog", "cow"];
  const state = replay(start, [{ kind: "tag", label: "cow", shown: true }, { kind: "tag", label: "cat", shown: false }]);
  assert.deepEqual(shownClasses(start, state, classes), ["dog", "cow"]);
  assert.deepEqual(classesWithoutBox(start, replay(start, []), classes), ["dog"]);
  assert.equal(state.boxes[0].status, "rejected");
});

class Memory {
  getItem(key) {
    return this[key] ?? null;
  }
  setItem(key, value) {
    this[key] = value;
  }
  removeItem(key) {
    delete this[key];
  }
}

test("actions that were not confirmed are kept and sent again, in their order", async () => {
  const storage = new Memory();
  let down = true;
  const sent = [];
  const send = async (_, body) => {
    if (down) throw new Failure(0, "down");
    sent.push([body.person, body.image, body.actions.map((each) => each.key)]);
  };
  const options = { person: "p", name: "r", onChange: () => {}, onRefused: assert.fail, send, storage };
  const first = new Outbox(options);
  await first.add(1, { key: "a" });
  await first.add(1, { key: "b" });
  await first.add(2, { key: "c" });
  assert.equal(first.length, 3);
  assert.deepEqual(first.of(1), [{ key: "a" }, { key: "b" }]);
  down = false;
  const next = new Outbox({ ...options, person: "q" }); // the page was loaded again
  await next.flush();
  assert.deepEqual(sent, [["p", 1, ["a", "b"]], ["p", 2, ["c"]]]);
  assert.equal(new Outbox(options).length, 0);
  await first.flush(); // the timer of the first page
});

test("actions on boxes of two detectors are sent apart", async () => {
  const sent = [];
  const send = async (_, { detector, actions }) => sent.push([detector, actions.length]);
  const outbox = new Outbox({ person: "p", name: "r", onChange: () => {}, onRefused: assert.fail, send, storage: new Memory() });
  await Promise.all([outbox.add(1, { key: "a" }, "x-0"), outbox.add(1, { key: "b" }, "x-0"), outbox.add(1, { key: "c" }, "x-1")]);
  assert.deepEqual(sent, [["x-0", 1], ["x-0", 1], ["x-1", 1]]);
});

test("what the server refuses is dropped and told, and the rest goes on", async () => {
  const refused = [];
  const send = async (_, body) => {
    if (body.image === 1) throw new Failure(409, "busy");
  };
  const outbox = new Outbox({
    person: "p", name: "r", onChange: () => {}, onRefused: (...all) => refused.push(all), send, storage: new Memory(),
  });
  await Promise.all([outbox.add(1, { key: "a" }), outbox.add(2, { key: "b" })]);
  assert.deepEqual(refused, [[1, "busy"]]);
  assert.equal(outbox.length, 0);
});

const rounds = [
  { number: 1, images: 10, held_out: 0, ap: null, ap_first: null, kept: true },
  { number: 2, images: 20, held_out: 4, ap: 50, ap_first: 25, kept: true },
];

test("what is learned is told, and what comes next", () => {
  const learning = { every: 10, doing: "waiting", error: "", rounds: [] };
  assert.equal(learningText(learning, 4), "It learns again after 6 more images.");
  assert.match(learningText({ ...learning, rounds: rounds.slice(0, 1) }, 19), /^No image measures AP yet.* after 1 more image\.$/);
  const text = learningText({ ...learning, rounds }, 20);
  assert.equal(text, "AP50 50.0 on 4 reviewed images that were not trained on; 25.0 at first. It learns again after 10 more images.");
  assert.match(learningText({ ...learning, doing: "training", rounds }, 30), /Learning from what you reviewed …$/);
  const undone = { ...rounds[1], kept: false };
  assert.match(learningText({ ...learning, error: "It stopped.", rounds: [undone] }, 20), /undone\. It stopped\.$/);
});

test("the curve goes through the rounds that measured AP, from left to right", () => {
  assert.deepEqual(linePoints(rounds, "ap"), [[234, 32]]);
  assert.deepEqual(linePoints([{ ...rounds[1], images: 10, ap: 0 }, rounds[1]], "ap"), [[120, 58], [234, 32]]);
});

test("a person can stop when the last 30 images needed few corrections", () => {
  const each = (corrections, count) => Array(count).fill({ corrections, boxes: 2, actions: 3 });
  assert.equal(effortText([]), "None reviewed yet.");
  assert.equal(effortText(each(1, 1)), "The last image: 1.0 corrections each, 1.5 actions a box.");
  assert.match(effortText(each(0, 29)), /^The last 29 images/);
  const few = [...each(0, 24), ...each(1, 6)];
  assert.equal(effortText(few), "You can stop: the last 30 images needed 0.2 corrections each.");
  assert.match(effortText([...each(0, 20), ...each(1, 10)]), /^The last 30 images: 0.3/);
});

test("only what has changed is made anew, and the order is that of the items", () => {
  const parent = { children: [], get firstChild() { return this.children[0] ?? null; },
    insertBefore(node, place) {
      node.remove();
      this.children.splice(place ? this.children.indexOf(place) : this.children.length, 0, node);
    } };
  const make = (item) => ({ item,
    get nextSibling() { return parent.children[parent.children.indexOf(this) + 1] ?? null; },
    remove() { parent.children = parent.children.filter((each) => each !== this); },
    replaceWith(other) { parent.children[parent.children.indexOf(this)] = other; } });
  const keyed = new Keyed(parent);
  const shown = () => parent.children.map(({ item }) => item.id + item.text).join(" ");
  const item = (id, text) => ({ id, text });
  keyed.show([item("a", 1), item("b", 1), item("c", 1)], make);
  const [first, , last] = parent.children;
  keyed.show([item("a", 1), item("b", 2), item("c", 1), item("d", 1)], make);
  assert.equal(shown(), "a1 b2 c1 d1");
  assert.ok(parent.children[0] === first && parent.children[2] === last);
  keyed.show([item("c", 1), item("a", 1)], make);
  assert.equal(shown(), "c1 a1");
  keyed.show([], make);
  assert.equal(shown(), "");
});

test("the class that most likely lacks a box has none, or the least sure one", () => {
  const start = { tags: ["a", "b", "c"], unknown: [], complete: false, boxes: [] };
  const box = (label, status, score) => ({ label, status, score });
  const missing = (...boxes) => likelyMissing(start, { tags: {}, boxes }, ["a", "b", "c"]);
  assert.equal(missing(box("a", "proposed", 0.4), box("c", "proposed", 0.2)), "b");
  assert.equal(missing(box("a", "proposed", 0.4), box("b", "accepted", null), box("c", "proposed", 0.2), box("c", "proposed", 0.9)), "a");
  assert.equal(missing(box("a", "accepted", 0.4), box("b", "accepted", null), box("c", "rejected", 0.9)), "c");
  assert.equal(missing(...["a", "b", "c"].map((label) => box(label, "accepted", null))), null);
});
