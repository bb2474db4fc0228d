import type { Problem } from "../wire";

/** Raised when the server refuses a request, or does not answer. */
export class RequestError extends Error {
  constructor(
    readonly problem: Problem,
    readonly status: number,
  ) {
    super(problem.message);
  }
}
