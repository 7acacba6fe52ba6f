// Functions on boxes [x1, y1, x2, y2] in pixels of the image; half-open, as everywhere in detector.

export const area = ([x1, y1, x2, y2]) => Math.max(0, x2 - x1) * Math.max(0, y2 - y1);

const shared = (a, b) => area([Math.max(a[0], b[0]), Math.max(a[1], b[1]), Math.min(a[2], b[2]), Math.min(a[3], b[3])]);

export function iou(a, b) {
  const union = area(a) + area(b) - shared(a, b);
  return union > 0 ? shared(a, b) / union : 0;
}

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

export const contains = (box, [x, y]) => box[0] <= x && x <= box[2] && box[1] <= y && y <= box[3];

// The box between two corners, in the image; null if it is smaller than `least` pixels on a side.
export function boxBetween([ax, ay], [bx, by], { width, height }, least = 2) {
  const box = [
    clamp(Math.min(ax, bx), 0, width),
    clamp(Math.min(ay, by), 0, height),
    clamp(Math.max(ax, bx), 0, width),
    clamp(Math.max(ay, by), 0, height),
  ];
  return box[2] - box[0] >= least && box[3] - box[1] >= least ? box : null;
}

// The box after a drag of one of its handles: "move", or the sides that follow the pointer, such as "nw" or "e".
export function drag(box, handle, [dx, dy], { width, height }, least = 2) {
  let [x1, y1, x2, y2] = box;
  if (handle === "move") {
    dx = clamp(dx, -x1, width - x2);
    dy = clamp(dy, -y1, height - y2);
    return [x1 + dx, y1 + dy, x2 + dx, y2 + dy];
  }
  if (handle.includes("w")) x1 = clamp(x1 + dx, 0, x2 - least);
  if (handle.includes("e")) x2 = clamp(x2 + dx, x1 + least, width);
  if (handle.includes("n")) y1 = clamp(y1 + dy, 0, y2 - least);
  if (handle.includes("s")) y2 = clamp(y2 + dy, y1 + least, height);
  return [x1, y1, x2, y2];
}

// Where the handles of a box are, as shares of its width and height.
export const HANDLES = { nw: [0, 0], n: [0.5, 0], ne: [1, 0], e: [1, 0.5], se: [1, 1], s: [0.5, 1], sw: [0, 1], w: [0, 0.5] };

// The handle of a box [x, y, width, height] of the screen that is nearest to a place and within reach; null: none. The
// middle of a small box is left free, so that it can be moved.
export function handleAt([x, y, width, height], [px, py], reach) {
  const inside = contains([x, y, x + width, y + height], [px, py]);
  let least = inside ? Math.min(reach, width / 3, height / 3) : reach;
  let nearest = null;
  for (const [name, [u, v]] of Object.entries(HANDLES)) {
    const away = Math.hypot(px - x - u * width, py - y - v * height);
    if (away <= least) [nearest, least] = [name, away];
  }
  return nearest;
}

// The smallest of the boxes under a point: a small one is not hidden by a large one.
export function smallestAt(boxes, point) {
  const under = boxes.filter((each) => contains(each.box, point));
  return under.reduce((best, each) => (best && area(best.box) <= area(each.box) ? best : each), null);
}

// Of boxes {box, label}, the one that `box` is drawn over: by an IoU of at least `least`, or, of the class `label`, inside
// of it, as a found head is inside of the animal; null if there is none. Without `label`, of any class.
export function mostLike(boxes, box, label, least = 0.3) {
  const rated = boxes.filter((each) => label === undefined || each.label === label).map((each) => ({ each, overlap: iou(each.box, box) }));
  const inside = ({ each }) => label !== undefined && shared(each.box, box) >= 0.8 * area(each.box);
  const fit = rated.filter((one) => one.overlap >= least || inside(one));
  return fit.sort((a, b) => b.overlap - a.overlap)[0]?.each ?? null;
}

// The candidates [x1, y1, x2, y2, class, score] that a box may snap to, the nearest first: those under the pointer,
// or all without one, that overlap it by at least 0.3.
export function snapTargets(box, candidates, point, least = 0.3) {
  return candidates
    .filter((each) => !point || contains(each, point))
    .map((each) => ({ box: each.slice(0, 4), overlap: iou(box, each) }))
    .filter(({ overlap }) => least <= overlap && overlap < 0.999)
    .sort((a, b) => b.overlap - a.overlap)
    .map((each) => each.box);
}

// The candidates around a point, the best first: by score, less for those whose middle is far from the point.
// Those that overlap a box that is there already by more than 0.5 are left out, as are near copies.
export function candidatesAt(candidates, point, boxes, most = 8) {
  const rated = candidates
    .filter((each) => contains(each, point) && boxes.every((box) => iou(box, each) <= 0.5))
    .map((each) => {
      const [x1, y1, x2, y2] = each;
      const away = Math.hypot((point[0] - (x1 + x2) / 2) / (x2 - x1), (point[1] - (y1 + y2) / 2) / (y2 - y1));
      return { box: [x1, y1, x2, y2], label: each[4], value: each[5] * Math.exp(-4 * away * away) };
    })
    .sort((a, b) => b.value - a.value);
  const chosen = [];
  for (const each of rated) {
    if (chosen.length === most) break;
    if (chosen.every((other) => iou(other.box, each.box) < 0.8)) chosen.push(each);
  }
  return chosen;
}

// The class of the candidate that is most like a box, by score and IoU; `announced`, the number of the class that is
// expected, unless another one is clearly more likely.
export function likelyClass(candidates, box, announced, margin = 0.05) {
  let [found, most] = [announced, margin];
  for (const each of candidates) {
    const overlap = iou(box, each);
    const value = each[5] * overlap ** 2 + (each[4] === announced ? margin : 0);
    if (overlap >= 0.3 && value > most) [found, most] = [each[4], value];
  }
  return found;
}

// A view is the scale of the image on the screen and the place of its corner there.
export function fit(image, screen, margin = 16) {
  const scale = Math.min((screen.width - 2 * margin) / image.width, (screen.height - 2 * margin) / image.height);
  const safe = Math.max(scale, 0.01);
  return { scale: safe, x: (screen.width - image.width * safe) / 2, y: (screen.height - image.height * safe) / 2 };
}

// The view after zooming by a factor around a place of the screen, which stays where it is.
export function zoom(view, factor, [x, y], least = 0.02, most = 64) {
  const scale = clamp(view.scale * factor, least, most);
  const ratio = scale / view.scale;
  return { scale, x: x - (x - view.x) * ratio, y: y - (y - view.y) * ratio };
}

export const toImage = (view, [x, y]) => [(x - view.x) / view.scale, (y - view.y) / view.scale];
