// What the last images needed, and what the detector learns meanwhile.

export const ENOUGH = { images: 30, corrections: 0.3 }; // of the last images, from which a person can stop
const SVG = "http://www.w3.org/2000/svg";
const SIZE = { width: 240, height: 64, edge: 6 };

export function make(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// recent: [{corrections, boxes, actions}] of the last images that were reviewed.
export function effortText(recent) {
  if (!recent.length) return "None reviewed yet.";
  const sum = (key) => recent.reduce((total, each) => total + each[key], 0);
  const mean = sum("corrections") / recent.length;
  const images = recent.length === 1 ? "image" : `${recent.length} images`;
  if (recent.length >= ENOUGH.images && mean < ENOUGH.corrections) {
    return `You can stop: the last ${images} needed ${mean.toFixed(1)} corrections each.`;
  }
  const actions = (sum("actions") / Math.max(1, sum("boxes"))).toFixed(1);
  return `The last ${images}: ${mean.toFixed(1)} corrections each, ${actions} actions a box.`;
}

// learning: {every, doing, error, rounds: [{images, held_out, ap, ap_first, kept}]}; decided: images so far.
export function learningText({ every, doing, error, rounds }, decided) {
  const last = rounds.at(-1);
  const left = (last?.images ?? 0) + every - decided;
  const texts = [];
  if (last && last.ap === null) texts.push("No image measures AP yet: one in five is kept for it.");
  else if (last) {
    texts.push(`AP50 ${last.ap.toFixed(1)} on ${last.held_out} reviewed images that were not trained on`);
    texts[0] += rounds.length > 1 || last.kept ? `; ${last.ap_first.toFixed(1)} at first.` : ".";
    if (!last.kept) texts.push("The last round was no gain and is undone.");
  }
  if (error) texts.push(error);
  else if (doing === "training") texts.push("Learning from what you reviewed …");
  else if (doing === "finding boxes") texts.push("Finding boxes in the images that you have not seen …");
  else if (left > 0) texts.push(`It learns again after ${left} more image${left === 1 ? "" : "s"}.`);
  return texts.join(" ");
}

// The points of a line through the AP of each round, in pixels; rounds without AP have none.
export function linePoints(rounds, key) {
  const most = Math.max(...rounds.map((each) => each.images), 1);
  const { width, height, edge } = SIZE;
  return rounds.filter((each) => each[key] !== null).map((each) => [
    edge + ((width - 2 * edge) * each.images) / most,
    height - edge - ((height - 2 * edge) * each[key]) / 100,
  ]);
}

// The line of AP over the reviewed images; dashed, that of the first detector on the same images.
export function showLearning(learning, decided) {
  const section = document.getElementById("learning");
  section.hidden = !learning;
  if (!learning) return;
  const line = (key, name) => make("path", { class: name, d: `M${linePoints(learning.rounds, key).map((each) => each.join(" ")).join("L")}` });
  const measured = learning.rounds.some((each) => each.ap !== null);
  const dots = linePoints(learning.rounds, "ap").map(([cx, cy]) => make("circle", { cx, cy, r: 3 }));
  document.getElementById("ap").toggleAttribute("hidden", !measured);
  document.getElementById("ap").replaceChildren(...(measured ? [line("ap_first", "first"), line("ap", "now"), ...dots] : []));
  document.getElementById("learning-text").textContent = learningText(learning, decided);
}
