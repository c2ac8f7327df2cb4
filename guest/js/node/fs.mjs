// `fs`, over WASI: what a task may open is decided there, by the folders that it was granted.

import preopens from "wasi:filesystem/preopens@0.2.0";
import { decode, encode, view } from "../bytes.mjs";
import process from "./process.mjs";
import { Buffer } from "unenv/node/buffer";

// By WASI's name: POSIX's name, and what it means.
const ERRORS = {
  access: ["EACCES", "permission denied"],
  busy: ["EBUSY", "resource busy or locked"],
  exist: ["EEXIST", "file already exists"],
  "file-too-large": ["EFBIG", "file too large"],
  "illegal-byte-sequence": ["EILSEQ", "illegal byte sequence"],
  invalid: ["EINVAL", "invalid argument"],
  io: ["EIO", "i/o error"],
  "is-directory": ["EISDIR", "illegal operation on a directory"],
  loop: ["ELOOP", "too many symbolic links encountered"],
  "name-too-long": ["ENAMETOOLONG", "name too long"],
  "no-entry": ["ENOENT", "no such file or directory"],
  "insufficient-space": ["ENOSPC", "no space left on device"],
  "not-directory": ["ENOTDIR", "not a directory"],
  "not-empty": ["ENOTEMPTY", "directory not empty"],
  unsupported: ["ENOTSUP", "operation not supported"],
  "not-permitted": ["EPERM", "operation not permitted"],
  "read-only": ["EROFS", "read-only file system"],
  "cross-device": ["EXDEV", "cross-device link not permitted"],
};
const FOLLOW = { symlinkFollow: true };
const PIECE = 1 << 20;
const O = { read: true };

let folders = null;

function failure(name, call, path) {
  const [code, text] = ERRORS[name] ?? ["EIO", name];
  const error = new Error(`${code}: ${text}, ${call} '${path}'`);
  return Object.assign(error, { code, syscall: call, path });
}

/** Return the folder that a path lies in, and the path within it. */
function find(path, call) {
  const text = path instanceof URL ? decodeURIComponent(path.pathname) : typeof path === "string" ? path : decode(view(path));
  folders ??= preopens.getDirectories().map(([folder, name]) => ({ folder, parts: name.split("/").filter(Boolean) }));
  const whole = text.startsWith("/") ? text : `${process.cwd()}/${text}`;
  const parts = whole.split("/").filter((part) => part !== "" && part !== ".");
  let best = null;
  for (const one of folders) {
    if (one.parts.every((part, at) => parts[at] === part) && one.parts.length >= (best?.parts.length ?? 0)) best = one;
  }
  if (best === null || text.includes("\0")) throw failure("no-entry", call, text);
  const rest = parts.slice(best.parts.length).join("/");
  return { folder: best.folder, rest: rest || ".", text };
}

/** Do something in the folder that a path lies in; WASI's errors become Node's. */
function at(path, call, act) {
  const found = find(path, call);
  try {
    return act(found.folder, found.rest);
  } catch (error) {
    throw typeof error?.payload === "string" ? failure(error.payload, call, found.text) : error;
  }
}

function using(descriptor, act) {
  try {
    return act(descriptor);
  } finally {
    descriptor[Symbol.dispose]();
  }
}

const encodingOf = (options) => (typeof options === "string" ? options : options?.encoding) ?? null;

function readFileSync(path, options) {
  const pieces = at(path, "open", (folder, rest) =>
    using(folder.openAt(FOLLOW, rest, {}, O), (file) => {
      const found = [];
      for (let offset = 0; ; ) {
        const [bytes, end] = file.read(PIECE, offset);
        found.push(view(bytes));
        offset += bytes.length;
        if (end || bytes.length === 0) return found;
      }
    }),
  );
  const whole = pieces.length === 1 ? Buffer.from(pieces[0].buffer, pieces[0].byteOffset, pieces[0].length) : Buffer.concat(pieces);
  const encoding = encodingOf(options);
  if (encoding === null || encoding === "buffer") return whole;
  return /^utf-?8$/i.test(encoding) ? decode(whole) : whole.toString(encoding);
}

function bytesOf(data, options) {
  if (typeof data !== "string") return view(data);
  const encoding = encodingOf(options) ?? "utf8";
  return /^utf-?8$/i.test(encoding) ? encode(data) : view(Buffer.from(data, encoding));
}

function writeFileSync(path, data, options) {
  const flag = (typeof options === "object" && options?.flag) || "w";
  const bytes = bytesOf(data, options);
  const how = { create: true, truncate: flag.startsWith("w"), exclusive: flag.includes("x") };
  at(path, "open", (folder, rest) =>
    using(folder.openAt(FOLLOW, rest, how, { read: true, write: true }), (file) => {
      let offset = flag.startsWith("a") ? Number(file.stat().size) : 0;
      for (let start = 0; start < bytes.length; ) {
        const written = Number(file.write(bytes.slice(start, start + PIECE), offset));
        start += written;
        offset += written;
      }
    }),
  );
}

const appendFileSync = (path, data, options) =>
  writeFileSync(path, data, { encoding: encodingOf(options), flag: "a" });

class Stats {
  constructor(stat) {
    const time = (when) => (when ? Number(when.seconds) * 1000 + when.nanoseconds / 1e6 : 0);
    this.kind = stat.type;
    this.size = Number(stat.size);
    this.nlink = Number(stat.linkCount);
    this.mode = { directory: 0o040755, "symbolic-link": 0o120777 }[stat.type] ?? 0o100644;
    this.atimeMs = time(stat.dataAccessTimestamp);
    this.mtimeMs = time(stat.dataModificationTimestamp);
    this.ctimeMs = time(stat.statusChangeTimestamp);
    this.atime = new Date(this.atimeMs);
    this.mtime = new Date(this.mtimeMs);
    this.ctime = new Date(this.ctimeMs);
  }
  isFile() {
    return this.kind === "regular-file";
  }
  isDirectory() {
    return this.kind === "directory";
  }
  isSymbolicLink() {
    return this.kind === "symbolic-link";
  }
}

class Dirent extends Stats {
  constructor(entry, parentPath) {
    super({ type: entry.type, size: 0, linkCount: 0 });
    this.name = entry.name;
    this.parentPath = this.path = parentPath;
  }
}

const statOf = (path, follow, call) => at(path, call, (folder, rest) => new Stats(folder.statAt(follow, rest)));

function statSync(path, options) {
  try {
    return statOf(path, FOLLOW, "stat");
  } catch (error) {
    if (options?.throwIfNoEntry === false && error.code === "ENOENT") return undefined;
    throw error;
  }
}
const lstatSync = (path) => statOf(path, {}, "lstat");

function existsSync(path) {
  try {
    statOf(path, FOLLOW, "access");
    return true;
  } catch {
    return false;
  }
}
const accessSync = (path) => void statOf(path, FOLLOW, "access");

function readdirSync(path, options) {
  const entries = at(path, "scandir", (folder, rest) =>
    using(folder.openAt(FOLLOW, rest, { directory: true }, O), (opened) =>
      using(opened.readDirectory(), (stream) => {
        const found = [];
        for (let entry; (entry = stream.readDirectoryEntry()); ) found.push(entry);
        return found;
      }),
    ),
  ).sort((a, b) => (a.name < b.name ? -1 : 1));
  const names = [];
  for (const entry of entries) {
    names.push(options?.withFileTypes ? new Dirent(entry, String(path)) : entry.name);
    if (options?.recursive && entry.type === "directory") {
      const inner = readdirSync(`${path}/${entry.name}`, options);
      names.push(...inner.map((name) => (typeof name === "string" ? `${entry.name}/${name}` : name)));
    }
  }
  return names;
}

function mkdirSync(path, options) {
  try {
    at(path, "mkdir", (folder, rest) => folder.createDirectoryAt(rest));
  } catch (error) {
    if (!options?.recursive) throw error;
    if (error.code === "ENOENT" && /[^/]\/+[^/]/.test(String(path))) {
      mkdirSync(String(path).replace(/\/+[^/]+\/*$/, ""), options);
      return mkdirSync(path, options);
    }
    if (!existsSync(path) || !statSync(path).isDirectory()) throw error;
  }
  return undefined;
}

const unlinkSync = (path) => at(path, "unlink", (folder, rest) => folder.unlinkFileAt(rest));
const rmdirSync = (path) => at(path, "rmdir", (folder, rest) => folder.removeDirectoryAt(rest));

function rmSync(path, options) {
  try {
    if (!lstatSync(path).isDirectory()) return unlinkSync(path);
    if (!options?.recursive) throw failure("is-directory", "rm", String(path));
    for (const name of readdirSync(path)) rmSync(`${path}/${name}`, options);
    return rmdirSync(path);
  } catch (error) {
    if (options?.force && error.code === "ENOENT") return undefined;
    throw error;
  }
}

const between = (call, name) => (from, to) => {
  const target = find(to, call);
  return at(from, call, (folder, rest) =>
    name === "linkAt" ? folder.linkAt({}, rest, target.folder, target.rest) : folder.renameAt(rest, target.folder, target.rest),
  );
};
const renameSync = between("rename", "renameAt");
const linkSync = between("link", "linkAt");
const symlinkSync = (target, path) => at(path, "symlink", (folder, rest) => folder.symlinkAt(String(target), rest));
const readlinkSync = (path) => at(path, "readlink", (folder, rest) => folder.readlinkAt(rest));
const copyFileSync = (from, to) => writeFileSync(to, readFileSync(from));
const truncateSync = (path, size = 0) =>
  at(path, "open", (folder, rest) => using(folder.openAt(FOLLOW, rest, {}, { read: true, write: true }), (file) => file.setSize(size)));

function utimesSync(path, accessed, modified) {
  const stamp = (time) => {
    const seconds = time instanceof Date ? time.getTime() / 1000 : Number(time);
    const whole = Math.floor(seconds);
    return { tag: "timestamp", val: { seconds: whole, nanoseconds: Math.round((seconds - whole) * 1e9) } };
  };
  at(path, "utime", (folder, rest) => folder.setTimesAt(FOLLOW, rest, stamp(accessed), stamp(modified)));
}

const sync = {
  accessSync,
  appendFileSync,
  copyFileSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  rmdirSync,
  statSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
};
/** Let go of the folders: another instance that begins with this memory has its own. */
export function rest() {
  for (const { folder } of folders ?? []) folder[Symbol.dispose]();
  folders = null;
}

const constants = { F_OK: 0, X_OK: 1, W_OK: 2, R_OK: 4 };

/** `fs/promises`. */
export const promises = { constants };
const callbacks = {};
for (const [name, act] of Object.entries(sync)) {
  const plain = name.slice(0, -"Sync".length);
  promises[plain] = async (...args) => act(...args);
  callbacks[plain] = (...args) => {
    const callback = args.pop();
    promises[plain](...args).then(
      (value) => callback(null, value),
      (error) => callback(error),
    );
  };
}

export default { ...sync, ...callbacks, existsSync, promises, constants, Stats, Dirent };
