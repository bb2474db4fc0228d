import type { Problem } from "../wire";

/** Thrown if the server refuses a request or does not answer. `status` is 0 if there was no response. */
export class RequestError extends Error {
  constructor(
    readonly problem: Problem,
    readonly status: number,
  ) {
    super(problem.message);
  }
}
