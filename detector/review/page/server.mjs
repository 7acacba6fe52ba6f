// Requests to the server, and the actions that it has not confirmed yet: they outlive the page and the server.

export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  };
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Failure(0, "The server does not answer.");
  }
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Failure(answer.status, content.error ?? `The server answers ${answer.status}.`);
  return content;
}

const WAIT = 2000; // milliseconds until another try

// Sends actions in their order. What is not confirmed is kept in the browser, under a name of this review, with who
// did it: another tab, or the page after it was loaded again, sends it if this one cannot. An action has a key of its
// own, so that the server takes it once.
export class Outbox {
  constructor({ person, name, onChange, onRefused, send = ask, storage = localStorage }) {
    Object.assign(this, { person, onChange, onRefused, send, storage, sending: null, failure: "" });
    const prefix = `detector-review ${name} `;
    this.key = prefix + person;
    this.waiting = []; // [{person, image, action}]
    for (const key of Object.keys(storage).filter((each) => each.startsWith(prefix))) {
      this.waiting.push(...JSON.parse(storage.getItem(key)));
      storage.removeItem(key);
    }
    this.#keep();
  }

  get length() {
    return this.waiting.length;
  }

  // The actions of an image that the server may not have yet.
  of(image) {
    return this.waiting.filter((each) => each.image === image).map((each) => each.action);
  }

  // `detector` found the boxes that the person saw: the server refuses the action where there are others by now.
  add(image, action, detector) {
    this.waiting.push({ person: this.person, image, detector, action });
    this.#keep();
    return this.flush();
  }

  // Sends all that waits; done when it is sent, or could not be and is tried again later.
  flush() {
    this.sending ??= this.#sendAll().finally(() => (this.sending = null));
    return this.sending;
  }

  async #sendAll() {
    while (this.waiting.length && (await this.#sendFirst()));
  }

  // Sends the first actions that are of one image; whether to go on.
  async #sendFirst() {
    const { person, image, detector } = this.waiting[0];
    const other = this.waiting.findIndex((each) => each.image !== image || each.person !== person || each.detector !== detector);
    const run = this.waiting.slice(0, Math.min(other < 0 ? this.waiting.length : other, 50));
    this.failure = "";
    try {
      await this.send("/api/actions", { person, image, detector, actions: run.map((each) => each.action) });
      this.waiting.splice(0, run.length);
    } catch (error) {
      if (error.status !== 400 && error.status !== 409) {
        this.failure = error.message;
        setTimeout(() => this.flush(), WAIT);
        this.#keep();
        return false;
      }
      this.waiting = this.waiting.filter((each) => each.image !== image); // trying again would not help
      this.onRefused(image, error.message);
    }
    this.#keep();
    return true;
  }

  #keep() {
    if (this.waiting.length) this.storage.setItem(this.key, JSON.stringify(this.waiting));
    else this.storage.removeItem(this.key);
    this.onChange(this);
  }
}
