// Small things that every part of the page needs of the document.

/** A part of the page that is loaded when it is first used did not come. */
export const NOT_LOADED = "This part of the page could not be loaded: check the connection, and try again.";

/**
 * The element of that id; it is part of lab/index.html.
 * @template {Element} T
 * @param {string} id
 * @param {new () => T} kind
 * @returns {T}
 */
export function byId(id, kind) {
  const element = document.getElementById(id);
  if (!(element instanceof kind)) throw new Error(`lab/index.html needs a ${kind.name} #${id}`);
  return element;
}

/**
 * The one below `root` that a selector finds.
 * @template {Element} T
 * @param {ParentNode} root
 * @param {string} selector
 * @param {new () => T} kind
 * @returns {T}
 */
export function within(root, selector, kind) {
  const element = root.querySelector(selector);
  if (!(element instanceof kind)) throw new Error(`a ${kind.name} ${selector} is needed`);
  return element;
}

/**
 * A new element with properties and children.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Partial<Omit<HTMLElementTagNameMap[K], "style">>} [properties]
 * @param {(Node | string)[]} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/**
 * Sets text only where it is another: screen readers and layout notice each write.
 * @param {Element} element
 * @param {string} text
 */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * A canvas and its context, with as many pixels as the screen has for its size in the page.
 * @param {HTMLCanvasElement} canvas
 * @returns {{ context: CanvasRenderingContext2D, width: number, height: number, ratio: number }}
 */
export function sized(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.round(canvas.clientWidth * ratio);
  const height = Math.round(canvas.clientHeight * ratio);
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  return { context: context2d(canvas), width, height, ratio };
}

/**
 * @param {HTMLCanvasElement} canvas
 * @returns {CanvasRenderingContext2D}
 */
export function context2d(canvas) {
  const context = canvas.getContext("2d");
  if (!context) throw new Error("this browser draws on no canvas");
  return context;
}

/**
 * A colour of page.css as it is now, light or dark.
 * @param {string} name Without the dashes: `ink`.
 */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/**
 * Calls back when the scheme turns light or dark.
 * @param {() => void} callback
 * @param {AbortSignal} [signal] Ends that.
 */
export function onScheme(callback, signal) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", callback, { signal });
}

/**
 * Calls `draw` soon after each call of what it returns, at most each `least_ms`, and never in a hidden page.
 * @param {() => void} draw
 * @param {number} least_ms
 * @returns {() => void}
 */
export function paced(draw, least_ms) {
  let last_ms = -Infinity;
  let is_waiting = false;
  return () => {
    if (is_waiting) return;
    is_waiting = true;
    setTimeout(
      () =>
        requestAnimationFrame(() => {
          is_waiting = false;
          last_ms = performance.now();
          draw();
        }),
      Math.max(0, last_ms + least_ms - performance.now()),
    );
  };
}

/** Bits of a nat: losses of a text are told in bits. */
export const BITS = 1 / Math.LN2;

/**
 * Milliseconds for people: `0.42`, `4.2`, `42`.
 * @param {number} value
 */
export function short(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  return value.toFixed(size >= 20 ? 0 : size >= 2 ? 1 : 2);
}

/** @param {number} value */
export function whole(value) {
  return Math.round(value).toLocaleString("en-US");
}

/** @param {number} part */
export function percent(part, digits = 1) {
  return `${(100 * part).toFixed(digits)} %`;
}
