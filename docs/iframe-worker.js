// The search runs in a worker, which browsers do not start from a folder (file://). There, and only there, a hidden frame takes its place.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.documentElement.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        this.onmessage?.(event);
      };
      const script = inside.document.createElement("script");
      script.src = address;
      script.onload = () => {
        for (const data of this.waiting.splice(0)) this.deliver(data);
        this.waiting = null;
      };
      script.onerror = (event) => this.onerror?.(event);
      inside.document.body.append(script);
    }
    deliver(data) {
      const inside = this.frame.contentWindow;
      inside.dispatchEvent(new inside.MessageEvent("message", { data }));
    }
    postMessage(data) {
      this.waiting ? this.waiting.push(data) : this.deliver(data);
    }
    terminate() {
      this.frame.remove();
    }
  };
}
