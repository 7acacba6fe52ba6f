// What is known of an image: its start and its actions, as detector/data/formats/review_file.py applies them.

export function startState(start) {
  return {
    boxes: start.boxes.map((box) => ({ ...box })),
    tags: {},
    points: [],
    counts: {},
    complete: start.complete,
    decided: start.complete,
    skipped: false,
  };
}

const changes = {
  add(state, action) {
    const { id, label, box } = action;
    const flags = { doubtful: false, difficult: false, truncated: false };
    state.boxes.push({ id, label, box: [...box], score: null, status: "accepted", ...flags });
  },
  change(state, action) {
    const box = find(state, action.id);
    if (action.label !== undefined) box.label = action.label;
    if (action.box !== undefined) box.box = [...action.box];
    Object.assign(box, { status: "accepted", score: null, doubtful: false });
  },
  accept: (state, action) => void (find(state, action.id).status = "accepted"),
  reject: (state, action) => void (find(state, action.id).status = "rejected"),
  accept_all(state, action) {
    const low = lowBoxes(state, action.least ?? 0);
    for (const box of state.boxes) if (box.status === "proposed") box.status = low.has(box.id) ? "rejected" : "accepted";
    Object.assign(state, { complete: action.complete, decided: true, skipped: false });
  },
  tag(state, action) {
    if (action.shown === null) delete state.tags[action.label];
    else state.tags[action.label] = action.shown;
    if (action.shown !== false) return;
    for (const box of state.boxes) {
      if (box.label === action.label && box.status === "proposed") box.status = "rejected";
    }
  },
  point: (state, action) => void state.points.push({ label: action.label, point: [...action.point] }),
  unpoint: (state, action) => void state.points.splice(action.index, 1),
  count(state, action) {
    if (action.count === null) delete state.counts[action.label];
    else state.counts[action.label] = action.count;
  },
  skip: (state) => void (state.skipped = true),
};

// The ids of undecided boxes that score less than `least`, except the best of each class.
export function lowBoxes(state, least) {
  const best = {};
  for (const { label, score, status } of state.boxes) {
    if (status !== "rejected") best[label] = Math.max(best[label] ?? 0, score ?? 1);
  }
  const low = state.boxes.filter(
    ({ label, score, status }) => status === "proposed" && score !== null && score < Math.min(least, best[label]),
  );
  return new Set(low.map((box) => box.id));
}

export function find(state, id) {
  return state.boxes.find((box) => box.id === id);
}

// The actions that count, and those that `redo` would bring back, the next one last.
export function effective(actions) {
  const done = [];
  const undone = [];
  for (const action of actions) {
    if (action.kind === "undo") undone.push(done.pop());
    else if (action.kind === "redo") done.push(undone.pop());
    else {
      done.push(action);
      undone.length = 0;
    }
  }
  return { done, undone };
}

export function replay(start, actions) {
  const state = startState(start);
  for (const action of effective(actions).done) changes[action.kind](state, action);
  return state;
}

// Classes that the image shows, by its tags and their corrections.
export function shownClasses(start, state, classes) {
  return classes.filter((name) => state.tags[name] ?? start.tags.includes(name));
}

// Classes that the image is tagged with and that no box has: "complete" would contradict them.
export function classesWithoutBox(start, state, classes) {
  const boxed = new Set(state.boxes.filter((box) => box.status !== "rejected").map((box) => box.label));
  return shownClasses(start, state, classes).filter((name) => !boxed.has(name));
}

// The tagged class that most likely lacks a box: one that has none, else the one whose best box is the least sure; null
// if all have a box that was accepted.
export function likelyMissing(start, state, classes) {
  const sure = (name) => Math.max(-1, ...state.boxes.map(({ label, status, score }) =>
    label !== name || status === "rejected" ? -1 : status === "accepted" ? 2 : score ?? 1));
  const rated = shownClasses(start, state, classes).map((name) => ({ name, sure: sure(name) })).filter((each) => each.sure < 2);
  return rated.sort((one, other) => one.sure - other.sure)[0]?.name ?? null;
}
