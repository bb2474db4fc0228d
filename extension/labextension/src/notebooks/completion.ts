/** Prepares the code of cells that run on the ranks, so that the notebook's own kernel can complete it. */

const MAGIC = /^\s*%%distributed(_train)?\b[^\n]*/;

/** Code and the position of the cursor. `offset` counts code points, as the kernel does. */
export interface Completion {
  readonly code: string;
  readonly offset: number;
}

/** Return whether a cell with this source runs on the ranks. */
export function isDistributed(source: string): boolean {
  return MAGIC.test(source);
}

/** Return whether an offset is in the line of the magic. JupyterLab's own provider completes this line. */
export function isInMagic(source: string, offset: number): boolean {
  return offset <= (MAGIC.exec(source)?.[0].length ?? -1);
}

/**
 * Return the code to complete for an offset in a distributed cell, and how far offsets in the reply are shifted.
 *
 * The imports and variables of distributed cells exist only on the ranks, not in the notebook's kernel. The returned
 * code therefore begins with the sources of all earlier distributed cells, with their magics replaced by comments.
 */
export function completionCode(
  earlier: readonly string[],
  source: string,
  offset: number,
): Completion & { shift: number } {
  const body = (cell: string) => cell.replace(MAGIC, (line) => `#${" ".repeat(Array.from(line).length - 1)}`);
  const before = earlier
    .filter(isDistributed)
    .map((cell) => `${body(cell)}\n`)
    .join("");
  const shift = Array.from(before).length;
  return { code: before + body(source), offset: shift + offset, shift };
}
