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

/** Return the response to a request, or the error if there is none, for components that show the error themselves. */
export async function outcomeOf<T>(request: Promise<T>): Promise<T | Error> {
  try {
    return await request;
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
}
