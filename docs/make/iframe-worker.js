// The site's search runs in a Web Worker, which browsers refuse to a page that was opened from the disk (file:).
// There this class takes the place of Worker: it runs the worker's script in a hidden frame of the page.
// The theme looks for the names IFrameWorker (window) and importScripts (frame).
if (location.protocol === "file:") {
  const load = (frame, url) =>
    new Promise((resolve, reject) => {
      const script = frame.contentDocument.createElement("script");
      Object.assign(script, { src: url, onload: resolve, onerror: reject });
      frame.contentDocument.head.append(script);
    });

  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = (this.frame = document.createElement("iframe"));
      frame.hidden = true;
      this.ready = new Promise((resolve) => (frame.onload = resolve)).then(() => {
        frame.contentWindow.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        frame.contentWindow.importScripts = async (...urls) => {
          for (const script of urls) await load(frame, script);
        };
        return load(frame, url);
      });
      document.body.append(frame);
    }

    postMessage(data) {
      const event = new MessageEvent("message", { data });
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(event));
    }

    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
