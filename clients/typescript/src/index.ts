// Woma: live, sandboxed Python sessions.

export { Datasets, type LoadOptions, type QueryOptions } from "./datasets.js";
export {
  ApiError,
  ConnectionFailed,
  type ErrorCode,
  ExecutionFailed,
  JobWaitTimedOut,
  RequestTimedOut,
  ServerStartError,
  WomaError,
} from "./errors.js";
export { Files } from "./files.js";
export { Job, type JobEvent, type JobOptions, Jobs } from "./jobs.js";
export type {
  Chart,
  DatasetInfo,
  Display,
  Execution,
  ExecutionError,
  FileInfo,
  Health,
  JobStatus,
  Json,
  JsonObject,
  OutputFile,
  Progress,
  QueryResult,
  Table,
} from "./models.js";
export { type RunOptions, Sandbox, type SandboxOptions } from "./sandbox.js";
