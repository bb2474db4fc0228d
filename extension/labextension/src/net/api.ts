/**
 * The REST API and the websocket of Farandole's server extension.
 *
 * Requests contain Jupyter's cookie and XSRF token. The page never receives the server's token for the hub.
 */

import { URLExt } from "@jupyterlab/coreutils";
import { ServerConnection } from "@jupyterlab/services";

import type * as wire from "../wire";
import { query, tableQuery, type Filter, type Sort, type TableFilter } from "./filters";
import { RequestError } from "./requestError";

const ROOT = "farandole/panel";
const MOST_MATCHES = 1000;
const FOREIGN = "The notebook server did not send this response. Reload the page, and log in if it asks for it.";

/** A path relative to the home, or the path of a file in JupyterLab's file browser, relative to the server's root. */
export type FilePlace = { readonly path: string } | { readonly file: string };

export class Api {
  constructor(readonly settings: ServerConnection.ISettings) {}

  state(): Promise<wire.State> {
    return this.request<wire.State>("GET", "state");
  }

  startCluster(request: wire.StartCluster): Promise<wire.Cluster> {
    return this.request<wire.Cluster>("POST", "clusters", request);
  }

  scaleCluster(name: string, request: wire.ScaleCluster): Promise<wire.Cluster> {
    return this.request<wire.Cluster>("PATCH", `clusters/${encodeURIComponent(name)}`, request);
  }

  /** Stop a cluster. The server refuses this while a run is active on the cluster, unless `stopRuns` is true. */
  stopCluster(name: string, stopRuns: boolean): Promise<wire.Cluster | null> {
    const path = `clusters/${encodeURIComponent(name)}${stopRuns ? "?stop_runs=1" : ""}`;
    return this.request<wire.Cluster | null>("DELETE", path);
  }

  async stopEndpoint(name: string): Promise<true> {
    await this.request<null>("DELETE", endpointPath(name));
    return true;
  }

  /** Return a request that the model of an endpoint accepts. */
  endpointExample(name: string): Promise<wire.EndpointRequest> {
    return this.request<wire.EndpointRequest>("GET", `${endpointPath(name)}/example`);
  }

  callEndpoint(name: string, request: wire.EndpointRequest): Promise<wire.EndpointAnswer> {
    return this.request<wire.EndpointAnswer>("POST", `${endpointPath(name)}/infer`, request);
  }

  runs(filter: Filter, offset: number, limit: number): Promise<wire.RunPage> {
    return this.request<wire.RunPage>("GET", `runs?${new URLSearchParams(query(filter, offset, limit)).toString()}`);
  }

  /** Return a page of the table of runs, whose rows have the first columns and those in `added`. */
  table(
    filter: TableFilter,
    sort: Sort,
    added: readonly string[],
    offset: number,
    limit: number,
  ): Promise<wire.RunTable> {
    const parameters = tableQuery(filter, sort, added, offset, limit);
    return this.request<wire.RunTable>("GET", `table?${parameters.toString()}`);
  }

  run(id: string): Promise<wire.RunDetail> {
    return this.request<wire.RunDetail>("GET", `runs/${encodeURIComponent(id)}`);
  }

  usage(id: string, byRank: boolean): Promise<wire.RunUsage> {
    return this.request<wire.RunUsage>("GET", `runs/${encodeURIComponent(id)}/usage${byRank ? "?by_rank=1" : ""}`);
  }

  /** Return the part of a rank's log that begins at a byte. */
  log(id: string, rank: number, offset: number, limit: number): Promise<wire.LogPart> {
    return this.request<wire.LogPart>("GET", `${logPath(id, rank)}?offset=${offset}&limit=${limit}`);
  }

  /** Return the part of a rank's log that begins with the line printed at a time, in seconds since the epoch. */
  logAt(id: string, rank: number, time: number): Promise<wire.LogPart> {
    return this.request<wire.LogPart>("GET", `${logPath(id, rank)}?time=${time}&limit=4`);
  }

  /**
   * Return the lines that contain a text in the logs of `ranks`, such as `0,2-3`, or of all ranks. If the request is
   * aborted, the server ends the search.
   */
  searchLogs(id: string, text: string, ranks: string, signal: AbortSignal): Promise<wire.LogMatches> {
    const query = new URLSearchParams({ text, limit: String(MOST_MATCHES), ...(ranks && { ranks }) });
    const path = `runs/${encodeURIComponent(id)}/search?${query.toString()}`;
    return this.request<wire.LogMatches>("GET", path, undefined, signal);
  }

  stopRun(id: string): Promise<wire.RunSummary> {
    return this.request<wire.RunSummary>("POST", `runs/${encodeURIComponent(id)}/stop`);
  }

  /** Change a run whose texts are still those in `before`, and return its row with all of its notes. */
  editRun(id: string, edit: Partial<wire.RunTexts>, before: Partial<wire.RunTexts>): Promise<wire.RunRow> {
    const unchanged: wire.RunTexts = { name: null, tags: null, notes: null };
    const body: wire.RunEdit = { ...unchanged, ...edit, before: { ...unchanged, ...before } };
    return this.request<wire.RunRow>("PATCH", `runs/${encodeURIComponent(id)}`, body);
  }

  /** Delete the folder of a run. The server refuses this while the run goes on. */
  async deleteRun(id: string): Promise<true> {
    await this.request<null>("DELETE", `runs/${encodeURIComponent(id)}`);
    return true;
  }

  /** Return the newest snapshots of the home. */
  snapshots(limit: number): Promise<wire.SnapshotPage> {
    return this.request<wire.SnapshotPage>("GET", `snapshots?limit=${limit}`);
  }

  async takeSnapshot(request: wire.TakeSnapshot): Promise<wire.SnapshotJob> {
    return this.finished(await this.request<wire.SnapshotJob>("POST", "snapshots", request));
  }

  /** Wait until a job is done, and return its result. Throws a `RequestError` if it has failed. */
  async snapshotJob(id: string): Promise<wire.SnapshotJob> {
    return this.finished(await this.request<wire.SnapshotJob>("GET", `snapshots/jobs/${encodeURIComponent(id)}`));
  }

  snapshotChanges(id: string): Promise<wire.SnapshotChanges> {
    return this.request<wire.SnapshotChanges>("GET", `${snapshotPath(id)}/changes`);
  }

  /** Return a part of a folder in a snapshot. The path is relative to the home. */
  snapshotFiles(id: string, path: string, offset: number, limit: number): Promise<wire.SnapshotFolder> {
    const query = new URLSearchParams({ path, offset: String(offset), limit: String(limit) });
    return this.request<wire.SnapshotFolder>("GET", `${snapshotPath(id)}/files?${query.toString()}`);
  }

  /** Return the snapshots that have a file. */
  fileVersions(place: FilePlace): Promise<wire.SnapshotVersions> {
    return this.request<wire.SnapshotVersions>(
      "GET",
      `snapshots/versions?${new URLSearchParams({ ...place }).toString()}`,
    );
  }

  async restoreFile(id: string, request: wire.RestoreFile): Promise<wire.SnapshotJob> {
    return this.finished(await this.request<wire.SnapshotJob>("POST", `${snapshotPath(id)}/restore`, request));
  }

  templates(): Promise<wire.Templates> {
    return this.request<wire.Templates>("GET", "templates");
  }

  /** Create a notebook from a template, and return its path. */
  createNotebook(template: string, request: wire.CreateNotebook): Promise<wire.CreatedNotebook> {
    return this.request<wire.CreatedNotebook>("POST", `templates/${encodeURIComponent(template)}`, request);
  }

  /** Return the URL from which the reports of a run can be downloaded as CSV. */
  csvUrl(id: string): string {
    return this.url(`runs/${encodeURIComponent(id)}/csv`);
  }

  /** Return the URL of TensorBoard with the series of a run. Its filter is a regular expression. */
  tensorBoardUrl(id: string): string {
    const filter = id.replace(/[^\w-]/g, "\\$&");
    return `${URLExt.join(this.settings.baseUrl, "tensorboard")}/?runFilter=${encodeURIComponent(filter)}#timeseries`;
  }

  /** Open the websocket. The browser sends the login cookie. JupyterLab's settings may require the token as well. */
  openStream(): WebSocket {
    const { wsUrl, appendToken, token, WebSocket } = this.settings;
    const url = URLExt.join(wsUrl, ROOT, "events");
    return new WebSocket(appendToken && token ? `${url}?token=${encodeURIComponent(token)}` : url);
  }

  /** Ask for the result of a job until it is done. The server waits with each of its responses. */
  private async finished(job: wire.SnapshotJob): Promise<wire.SnapshotJob> {
    if (job.problem) throw new RequestError(job.problem, 200);
    return job.done ? job : this.snapshotJob(job.id);
  }

  private url(path: string): string {
    return URLExt.join(this.settings.baseUrl, ROOT) + `/${path}`;
  }

  private async request<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
    const init = { method, ...(signal && { signal }), ...(body === undefined ? {} : { body: JSON.stringify(body) }) };
    let response: Response;
    try {
      response = await ServerConnection.makeRequest(this.url(path), init, this.settings);
    } catch (error) {
      throw unreachable(String(error), 0);
    }
    if (response.status === 204) return null as T;
    const text = await textOf(response);
    if (!response.ok) throw new RequestError(problemOf(response, text), response.status);
    try {
      return JSON.parse(text) as T;
    } catch {
      // A proxy or a login page may answer in place of the server extension.
      throw unreachable(FOREIGN, response.status);
    }
  }
}

function unreachable(message: string, status: number): RequestError {
  return new RequestError({ code: "unreachable", message, runs: [] }, status);
}

/** Return the body of a response. Throws a `RequestError` if the connection ends before the body is complete. */
async function textOf(response: Response): Promise<string> {
  try {
    return await response.text();
  } catch (error) {
    throw unreachable(String(error), response.status);
  }
}

function endpointPath(name: string): string {
  return `endpoints/${encodeURIComponent(name)}`;
}

function snapshotPath(id: string): string {
  return `snapshots/${encodeURIComponent(id)}`;
}

function logPath(id: string, rank: number): string {
  return `runs/${encodeURIComponent(id)}/logs/${rank}`;
}

/** Return why a request was refused. The response may come from a proxy instead of the server extension. */
function problemOf(response: Response, text: string): wire.Problem {
  let value: Partial<wire.Problem> = {};
  try {
    value = JSON.parse(text) as Partial<wire.Problem>;
  } catch {
    // The response is not JSON, e.g. because it is a proxy's HTML page. Only its status then says what went wrong.
  }
  const message = value.message || `${response.status} ${response.statusText}`;
  return { code: value.code ?? "failed", message, runs: value.runs ?? [] };
}
