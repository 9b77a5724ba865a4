/* Lets the search work for pages opened from disk, where browsers refuse workers: the worker's script
   runs in a hidden frame instead. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const base = new URL(url, document.baseURI);
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.scope = frame.contentWindow;
      this.scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const load = (source) =>
        new Promise((resolve, reject) => {
          const script = this.scope.document.createElement("script");
          script.onload = resolve;
          script.onerror = reject;
          script.src = new URL(source, base).href;
          this.scope.document.body.append(script);
        });
      this.scope.importScripts = (...sources) =>
        sources.reduce((loaded, source) => loaded.then(() => load(source)), Promise.resolve());
      this.ready = load(base);
    }
    postMessage(data) {
      this.ready.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.scope.frameElement.remove();
    }
  };
}
