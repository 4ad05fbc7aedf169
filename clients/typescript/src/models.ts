// Replies of the server as objects.

const TABLE = "application/vnd.woma.table+json";
const CHART = "application/vnd.woma.chart+json";
const PLOTLY = "application/vnd.plotly.v1+json";
const SVG = "image/svg+xml";

export type Json = any;
export type JsonObject = Record<string, Json>;

/** How far code is: `progress(0.4, "message")` in it, or a bar of tqdm. */
export interface Progress {
  fraction: number;
  message: string;
}

/** Something that running code has shown. */
export interface Display {
  mimeType: string;
  data: string | Uint8Array | JsonObject;
  isResult: boolean;
}

/** How code failed. */
export interface ExecutionError {
  name: string;
  message: string;
  traceback: string;
  category: string | undefined;
  line: number | undefined;
  hint: string | undefined;
}

/** A picture or a figure that code has shown. */
export interface Chart {
  /** Pictures by media type. */
  images: Record<string, Uint8Array>;
  png: Uint8Array | undefined;
  /** Titles, axes and series, where the server knows them. */
  spec: JsonObject | undefined;
  /** The figure of Plotly, with `data` and `layout`. */
  plotly: JsonObject | undefined;
}

/** A data frame that code has shown: its first 100 rows and 50 columns. */
export interface Table {
  columns: string[];
  dtypes: Record<string, string>;
  rows: JsonObject[];
  rowsTotal: number;
  columnsTotal: number;
  html: string | undefined;
}

/** A file that a run has written; `url` needs no key until `expiresAt`. */
export interface OutputFile {
  path: string;
  url: string | undefined;
  size: number | undefined;
  mimeType: string | undefined;
  expiresAt: Date | undefined;
}

/** What became of a run. */
export interface Execution {
  id: string;
  sessionId: string | undefined;
  success: boolean;
  outcome: string;
  /** The value of the last expression as text. */
  text: string | undefined;
  /** The value of the last expression as JSON, or as text if it has no JSON. */
  result: Json;
  stdout: string;
  stderr: string;
  error: ExecutionError | undefined;
  charts: Chart[];
  tables: Table[];
  files: OutputFile[];
  warnings: string[];
  exitCode: number;
  seconds: number;
  /** Names and types of the session's variables. */
  variables: Record<string, string>;
  /** Texts that are shortened in this reply; `Sandbox.output` reads all of them. */
  truncated: { stream: string; charsTotal: number; nextOffset: number }[];
  raw: JsonObject;
}

export interface FileInfo {
  path: string;
  size: number;
  mimeType: string;
  modified: Date | undefined;
}

export type JobStatus = "pending" | "running" | "completed" | "failed" | "cancelled" | "timeout";

export interface DatasetInfo {
  name: string;
  columns: { name: string; type: string }[];
  rowCount: number;
  sizeBytes: number;
  format: string;
  createdAt: Date;
  warnings: string[];
  raw: JsonObject;
}

export interface QueryResult {
  rows: JsonObject[];
  columns: string[];
  types: string[];
  hasMore: boolean;
  total: number | undefined;
}

export interface Health {
  status: string;
  version: string;
  problems: string[];
  raw: JsonObject;
}

export type Picture = [mimeType: string, content: Uint8Array];

function bytes(text: string): Uint8Array {
  return new Uint8Array(Buffer.from(text, "base64"));
}

function imagesOf(data: JsonObject): Record<string, Uint8Array> {
  const images: Record<string, Uint8Array> = {};
  for (const [mimeType, value] of Object.entries(data)) {
    if (!mimeType.startsWith("image/") || typeof value !== "string") continue;
    images[mimeType] = mimeType === SVG ? new TextEncoder().encode(value) : bytes(value);
  }
  return images;
}

/** How many pictures a reply has links to, if it lacks some of them; else 0. */
export function missingPictures(reply: JsonObject): number {
  const linked: number = reply["inline_images"]?.length ?? 0;
  const displays: JsonObject[] = reply["displays"] ?? [];
  const held = displays.reduce((sum, one) => sum + Object.keys(imagesOf(one["data"])).length, 0);
  return linked > held ? linked : 0;
}

function chart(images: Record<string, Uint8Array>, data: JsonObject): Chart {
  return { images, png: images["image/png"], spec: data[CHART], plotly: data[PLOTLY] };
}

function chartsOf(displays: JsonObject[], pictures: Picture[] | undefined): Chart[] {
  const shown: JsonObject[] = displays.map((one) => one["data"]);
  const isChart = (data: JsonObject) =>
    CHART in data || PLOTLY in data || Object.keys(data).some((kind) => kind.startsWith("image/"));
  const described = shown.filter(isChart);
  if (pictures === undefined) return described.map((data) => chart(imagesOf(data), data));
  // If descriptions are missing too, it is not known which picture each of the others describes.
  const isWhole = described.length === pictures.length;
  return pictures.map(([mimeType, content], index) => {
    const data = (isWhole ? described[index] : undefined) ?? {};
    return chart({ ...imagesOf(data), [mimeType]: content }, data);
  });
}

function tableOf(data: JsonObject): Table {
  const { columns, data: values, rows_shown, rows_total, columns_total } = data[TABLE];
  const names: string[] = columns.map((column: JsonObject) => column["name"]);
  const row = (_: unknown, at: number) => Object.fromEntries(names.map((n) => [n, values[n][at]]));
  return {
    columns: names,
    dtypes: Object.fromEntries(columns.map((one: JsonObject) => [one["name"], one["dtype"]])),
    rows: Array.from({ length: rows_shown }, row),
    rowsTotal: rows_total,
    columnsTotal: columns_total,
    html: data["text/html"],
  };
}

function errorOf(reply: JsonObject): ExecutionError | undefined {
  if (reply["success"]) return undefined;
  // A server that stands for an older system has a text in `error`.
  const found = reply["error_detail"] ?? reply["error"];
  const detail = found !== null && typeof found === "object" ? found : undefined;
  // Code that was stopped ends in an exception too, but the outcome names the cause.
  const raised = reply["outcome"] === "raised" ? detail : undefined;
  return {
    name: raised?.type ?? reply["outcome"],
    message: raised?.message ?? reply["error_message"] ?? "",
    traceback: reply["error_traceback"] ?? "",
    category: detail?.category,
    line: detail?.line,
    hint: reply["hint"],
  };
}

function filesOf(reply: JsonObject): OutputFile[] {
  const links: JsonObject[] = reply["download_urls"] ?? [];
  const paths: string[] = [...(reply["files_created"] ?? []), ...(reply["files_modified"] ?? [])];
  return paths.map((path) => {
    const name = path.slice(path.lastIndexOf("/") + 1);
    const found = links.filter((one) => one["filename"] === path || one["filename"] === name);
    // Links of two files of one name cannot be told apart.
    const link = found.length === 1 ? found[0] : undefined;
    return {
      path,
      url: link?.["url"],
      size: link?.["size"],
      mimeType: link?.["mime_type"],
      expiresAt: time(link?.["expires_at"]),
    };
  });
}

export function execution(reply: JsonObject, pictures?: Picture[]): Execution {
  const displays: JsonObject[] = reply["displays"] ?? [];
  const shown = displays.find((one) => one["role"] === "result")?.["data"];
  const result = reply["result"];
  return {
    // A job that was cancelled while it waited has no execution.
    id: reply["execution_id"] ?? "",
    sessionId: reply["session_id"],
    success: reply["success"],
    outcome: reply["outcome"],
    text: typeof result === "string" ? result : shown?.["text/plain"],
    result,
    stdout: reply["stdout"],
    stderr: reply["stderr"],
    error: errorOf(reply),
    charts: chartsOf(displays, pictures),
    tables: displays
      .map((one) => one["data"])
      .filter((data) => TABLE in data)
      .map(tableOf),
    files: filesOf(reply),
    warnings: reply["warnings"] ?? [],
    exitCode: reply["exit_code"] ?? (reply["success"] ? 0 : 1),
    seconds: reply["execution_time"] ?? 0,
    variables: reply["variable_types"] ?? {},
    truncated: (reply["truncated"] ?? []).map((one: JsonObject) => ({
      stream: one["stream"],
      charsTotal: one["chars_total"],
      nextOffset: one["next_offset"],
    })),
    raw: reply,
  };
}

export function fileInfo(reply: JsonObject): FileInfo {
  const { path, size_bytes: size, mime_type: mimeType } = reply;
  return { path, size, mimeType, modified: time(reply["modified"]) };
}

export function dataset(reply: JsonObject): DatasetInfo {
  return {
    name: reply["name"],
    columns: reply["columns"],
    rowCount: reply["row_count"],
    sizeBytes: reply["size_bytes"],
    format: reply["format"],
    createdAt: new Date(reply["created_at"]),
    warnings: reply["warnings"] ?? [],
    raw: reply,
  };
}

export function progress(reply: JsonObject): Progress {
  return { fraction: reply["fraction"], message: reply["message"] ?? "" };
}

/** The display of an event, if it is one. */
export function display(event: JsonObject): Display | undefined {
  if ("text" in event) {
    const isResult = event["stream"] === "result";
    return { mimeType: "text/plain", data: event["text"], isResult };
  }
  if ("image" in event) {
    const types: Record<string, string> = { svg: SVG, jpg: "image/jpeg" };
    const mimeType = types[event["format"]] ?? `image/${event["format"]}`;
    return { mimeType, data: bytes(event["image"]), isResult: false };
  }
  if ("html" in event) return { mimeType: "text/html", data: event["html"], isResult: false };
  if ("plotly" in event) return { mimeType: PLOTLY, data: event["plotly"], isResult: false };
  return undefined;
}

export function time(text: string | undefined): Date | undefined {
  return text === undefined ? undefined : new Date(text);
}
