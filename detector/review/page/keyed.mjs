// Shows items as children of an element; the children of items that are as before stay, which is what takes time.
export class Keyed {
  constructor(parent) {
    this.parent = parent;
    this.made = new Map(); // by the ids of the items
  }

  // items: objects with an `id`, of which `make` makes an element each, in this order.
  show(items, make) {
    const made = new Map();
    for (const item of items) {
      const text = JSON.stringify(item);
      const before = this.made.get(item.id);
      const now = before?.text === text ? before : { text, node: make(item) };
      if (before && before !== now) before.node.replaceWith(now.node);
      made.set(item.id, now);
    }
    for (const [id, { node }] of this.made) if (!made.has(id)) node.remove();
    this.made = made;
    let place = this.parent.firstChild;
    for (const { node } of made.values()) {
      if (node === place) place = place.nextSibling;
      else this.parent.insertBefore(node, place);
    }
  }
}
