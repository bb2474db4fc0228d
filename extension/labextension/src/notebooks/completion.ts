/** Code of cells that run on the ranks, in the form in which the notebook's own kernel completes it. */

const MAGIC = /^\s*%%distributed(_train)?\b[^\n]*/;

/** Code with a cursor, counted in code points like in the kernel. */
export interface Completion {
  readonly code: string;
  readonly offset: number;
}

/** Return whether a cell runs on the ranks. */
export function isDistributed(source: string): boolean {
  return MAGIC.test(source);
}

/** Return whether an offset is in the line of the magic, which the kernel completes by itself. */
export function isInMagic(source: string, offset: number): boolean {
  return offset <= (MAGIC.exec(source)?.[0].length ?? -1);
}

/**
 * Return the code to complete for an offset in a distributed cell, and the shift of offsets in the answer.
 *
 * Imports and variables of such cells exist on the ranks, and the notebook's kernel does not know them. So the sources
 * of the distributed cells before this one precede it, without their magics, as if all were one cell.
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
