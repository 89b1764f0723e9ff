// Files that take a while to come, with how much of them is there.

const [MEGABYTE, GIGABYTE] = [1e6, 1e9];
/** Most bytes that are counted in kilobytes. */
const FEW = 1e6;

/** @param {number} n_bytes */
export function sizeOf(n_bytes) {
  if (n_bytes < FEW) return `${Math.round(n_bytes / 1000)} kB`;
  return n_bytes < GIGABYTE ? `${(n_bytes / MEGABYTE).toFixed(1)} MB` : `${(n_bytes / GIGABYTE).toFixed(2)} GB`;
}

/**
 * The bytes of a file beside this script. What is told counts them unpacked.
 * @param {string} file
 * @param {(n_bytes: number) => void} tell
 */
export async function fetched(file, tell) {
  tell(0);
  const response = await fetch(new URL(file, import.meta.url)).catch(() => { throw new Error("the connection failed"); });
  if (!response.ok || !response.body) throw new Error(`the server answers ${response.status} ${response.statusText}`.trimEnd());
  const parts = [];
  let n_bytes = 0;
  const reader = response.body.getReader();
  for (;;) {
    const { done, value } = await reader.read().catch(() => { throw new Error("the connection broke off"); });
    if (done) break;
    parts.push(value);
    n_bytes += value.length;
    tell(n_bytes);
  }
  const bytes = new Uint8Array(n_bytes);
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}
