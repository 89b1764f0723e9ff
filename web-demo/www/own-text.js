// A text of the visitor's own: it is read in this page, and never leaves it.

import { sizeOf } from "./fetched.js";

/** Most bytes that the engine takes. */
const MOST = 4_000_000;

/**
 * The text of a file, in UTF-8. Windows also writes it in UTF-16, which its first bytes tell.
 * @param {File} file
 */
export async function ownText(file) {
  if (file.size > MOST) throw new Error(`${file.name} has ${sizeOf(file.size)}, and ${sizeOf(MOST)} are the most: choose a part of it`);
  const bytes = new Uint8Array(await file.arrayBuffer().catch(() => { throw new Error(`${file.name} can’t be read`); }));
  const form = { fffe: "utf-16le", feff: "utf-16be" }[[...bytes.slice(0, 2)].map((byte) => byte.toString(16)).join("")] ?? "utf-8";
  let text = "\0";
  try {
    text = new TextDecoder(form, { fatal: true }).decode(bytes);
  } catch {
    // Refused below.
  }
  if (text.includes("\0")) throw new Error(`${file.name} is no plain text: save it as one, as .txt`);
  return new TextEncoder().encode(text);
}

/**
 * Takes a file that is chosen, or dropped on an element, while the choice is open.
 * @param {HTMLInputElement} input
 * @param {HTMLElement} element
 * @param {(file: File) => void} take
 */
export function takesFiles(input, element, take) {
  const give = (/** @type {File | undefined} */ file) => { if (file && !input.disabled) take(file); };
  input.addEventListener("change", () => {
    const [file] = input.files ?? [];
    // The same file can be chosen again.
    input.value = "";
    give(file);
  });
  const holdsFiles = (/** @type {DragEvent} */ { dataTransfer }) => dataTransfer?.types.includes("Files") ?? false;
  element.addEventListener("dragover", (event) => {
    if (holdsFiles(event)) event.preventDefault();
    element.classList.toggle("takes", holdsFiles(event));
  });
  for (const end of ["dragleave", "drop"]) element.addEventListener(end, () => element.classList.remove("takes"));
  element.addEventListener("drop", (event) => {
    const file = event.dataTransfer?.files[0];
    if (!file) return;
    event.preventDefault();
    give(file);
  });
}
