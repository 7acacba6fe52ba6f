// Sliders of the section "Thresholds": they update its table and hide boxes of its pictures.
const part = document.querySelector(".thresholds");
const stops = part.dataset.stops.split(" ").map(Number);
const rows = [...part.querySelectorAll("tr.class")];
const boxes = [...part.querySelectorAll("g[data-score]")];
const limits = rows.map(row => Number(row.dataset.value));
const whole = part.querySelector(".all input");
const percent = (share, total) => total ? Math.round(100 * share / total) : "-";

// The counts of a row begin with those of the threshold that was chosen; those of stop i are at i + 1.
function update(label, place) {
  const row = rows[label], data = row.dataset;
  const count = name => Number(data[name].split(" ")[place]);
  limits[label] = place ? stops[place - 1] : Number(data.value);
  row.querySelector("input").value = place ? place - 1 : data.stop;
  const tagged = count("tagged"), untagged = count("untagged"), objects = Number(data.objects);
  const shown = [tagged + untagged, data.images > 0 ? (tagged / data.images).toFixed(1) : "-", untagged];
  if (data.right) {
    const right = count("right"), judged = count("judged");
    shown.push(percent(right, judged), percent(right, objects), percent(2 * right, judged + objects));
  }
  row.querySelector("output").value = limits[label].toFixed(limits[label] < 0.1 ? 3 : 2);
  shown.forEach((text, column) => { row.cells[column + 2].textContent = text; });
  for (const box of boxes)
    if (Number(box.dataset.label) === label) box.classList.toggle("below", Number(box.dataset.score) <= limits[label]);
}

rows.forEach((row, label) => {
  row.querySelector("input").addEventListener("input", event => update(label, Number(event.target.value) + 1));
});
whole.addEventListener("input", () => rows.forEach((_, label) => update(label, Number(whole.value) + 1)));
part.querySelector("button").addEventListener("click", () => rows.forEach((_, label) => update(label, 0)));
part.querySelectorAll(":disabled").forEach(control => { control.disabled = false; });
