// A page image that is moved and zoomed: one transform for picture and shapes, drawn at most once a frame.
// The server offers the image at several sizes; the one that the zoom needs is loaded, the smallest stays below it.

const MOST = 16; // screen pixels for one of the image
const SETTLE = 120; // ms without a change of zoom before a sharper picture is fetched

export class Viewport {
  /** `host` gets the pictures; `onDraw(view)` is called in the same frame, with {x, y, scale}. */
  constructor(host, onDraw) {
    this.host = host;
    this.onDraw = onDraw;
    this.view = { x: 0, y: 0, scale: 1 };
    this.width = 1;
    this.height = 1;
    this.levels = [];
    this.pictures = new Map(); // of a level's URL: its <img>
    this.shown = null;
    this.frame = 0;
    this.timer = 0;
    this.fitted = true;
    this.resizing = new ResizeObserver(() => (this.fitted ? this.fit() : this.draw()));
    this.resizing.observe(host);
  }

  close() {
    this.resizing.disconnect();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.timer);
    for (const picture of this.pictures.values()) picture.remove();
  }

  /** `levels`: [{url, width}], any order. `alt`: what a screen reader says. */
  open(width, height, levels, alt) {
    for (const picture of this.pictures.values()) picture.remove();
    this.pictures.clear();
    this.shown = null;
    Object.assign(this, { width, height, alt, levels: [...levels].sort((a, b) => a.width - b.width) });
    this.fit();
    this.load(this.levels[0], true);
    this.settle(0);
  }

  get size() {
    return { width: this.host.clientWidth, height: this.host.clientHeight };
  }

  get least() {
    const { width, height } = this.size;
    return Math.min(width / this.width, height / this.height, 1) * 0.5;
  }

  fit() {
    const { width, height } = this.size;
    if (!width || !height) return;
    const scale = Math.min(width / this.width, height / this.height) * 0.97;
    this.set({ scale, x: (width - this.width * scale) / 2, y: (height - this.height * scale) / 2 });
    this.fitted = true;
  }

  fitWidth() {
    const { width } = this.size;
    const scale = (width / this.width) * 0.98;
    this.set({ scale, x: (width - this.width * scale) / 2, y: Math.min(this.view.y, 8) });
  }

  set(view) {
    this.fitted = false;
    const scale = Math.min(Math.max(view.scale, this.least || view.scale), MOST);
    const { width, height } = this.size;
    const margin = 80; // so much of the page always stays in sight
    const x = Math.min(Math.max(view.x, margin - this.width * scale), width - margin);
    const y = Math.min(Math.max(view.y, margin - this.height * scale), height - margin);
    const zoomed = scale !== this.view.scale;
    this.view = { x, y, scale };
    this.draw();
    if (zoomed) this.settle();
  }

  moveBy(dx, dy) {
    this.set({ ...this.view, x: this.view.x + dx, y: this.view.y + dy });
  }

  /** Zooms by `factor`; the place at (x, y) of the host stays where it is. */
  zoomBy(factor, x = this.size.width / 2, y = this.size.height / 2) {
    const scale = Math.min(Math.max(this.view.scale * factor, this.least), MOST);
    const ratio = scale / this.view.scale;
    this.set({ scale, x: x - (x - this.view.x) * ratio, y: y - (y - this.view.y) * ratio });
  }

  /** Brings a box of the image into sight, moving as little as needed; zooms in only if `zoom` says so. */
  reveal([left, top, right, bottom], zoom = false) {
    const { width, height } = this.size;
    let { x, y, scale } = this.view;
    if (zoom) {
      const tools = 56; // the toolbar lies over the left edge
      scale = Math.min((width - 2 * tools) / Math.max(right - left, 1), (height * 0.5) / Math.max(bottom - top, 1), 2);
      x = (width + tools) / 2 - ((left + right) / 2) * scale;
      y = height / 2 - ((top + bottom) / 2) * scale;
    } else {
      const pad = 24;
      if (bottom * scale + y > height - pad || top * scale + y < pad) y = height / 2 - ((top + bottom) / 2) * scale;
      if ((right - left) * scale > width - 2 * pad) {
        if (left * scale + x > width / 2 || right * scale + x < width / 2) x = pad - left * scale;
      } else if (right * scale + x > width - pad) x = width - pad - right * scale;
      else if (left * scale + x < pad) x = pad - left * scale;
    }
    if (x !== this.view.x || y !== this.view.y || scale !== this.view.scale) {
      const fitted = this.fitted;
      this.set({ x, y, scale });
      this.fitted = fitted && scale === this.view.scale && !zoom;
    }
  }

  /** A place of the window as a place of the image. */
  toImage(clientX, clientY) {
    const box = this.host.getBoundingClientRect();
    return [(clientX - box.left - this.view.x) / this.view.scale, (clientY - box.top - this.view.y) / this.view.scale];
  }

  toHost([x, y]) {
    return [x * this.view.scale + this.view.x, y * this.view.scale + this.view.y];
  }

  draw() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      for (const picture of this.pictures.values()) this.place(picture);
      this.onDraw(this.view);
    });
  }

  place(picture) {
    const { x, y, scale } = this.view;
    picture.style.transform = `translate(${x}px, ${y}px) scale(${(scale * this.width) / picture.levelWidth})`;
  }

  settle(after = SETTLE) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const wanted = this.width * this.view.scale * Math.min(window.devicePixelRatio || 1, 2);
      const level = this.levels.find((one) => one.width >= wanted * 0.9) ?? this.levels[this.levels.length - 1];
      if (level) this.load(level, false);
    }, after);
  }

  async load(level, below) {
    if (this.pictures.has(level.url)) return this.raise(level.url, below);
    const picture = new Image();
    picture.levelWidth = level.width;
    picture.draggable = false;
    picture.alt = below ? this.alt : "";
    picture.className = "viewer-picture";
    picture.width = level.width;
    picture.height = Math.round((this.height * level.width) / this.width);
    picture.src = level.url;
    this.pictures.set(level.url, picture);
    try {
      await picture.decode(); // away from the main thread: no stutter when it appears
    } catch {
      if (this.pictures.get(level.url) === picture) this.pictures.delete(level.url);
      return;
    }
    if (this.pictures.get(level.url) !== picture) return; // another page was opened meanwhile
    this.place(picture);
    below ? this.host.prepend(picture) : this.raise(level.url, false);
  }

  /** Shows this picture over the smallest, and drops others: memory. */
  raise(url, below) {
    const smallest = this.levels[0].url;
    if (!below) this.shown = url;
    for (const [other, picture] of this.pictures) {
      if (other === url || other === smallest || !picture.isConnected) continue;
      picture.remove();
      this.pictures.delete(other);
    }
    const picture = this.pictures.get(url);
    if (!picture || !picture.complete || url === smallest) return;
    const base = this.pictures.get(smallest);
    if (base?.isConnected) base.after(picture);
    else this.host.prepend(picture);
  }
}
