// Prints, as JSON, what Node.js is and can do where it was started. Names of the things to try are its arguments.
'use strict';
const child_process = require('node:child_process');
const dns = require('node:dns');
const https = require('node:https');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const worker_threads = require('node:worker_threads');

const once = (emitter, event) => new Promise((resolve, reject) => {
  emitter.once(event, (...values) => resolve(values[0]));
  emitter.once('error', reject);
});

async function fork() {
  const child = child_process.fork(__filename, ['--answer'], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  child.send({ question: [6, 7] });
  const answer = await once(child, 'message');
  answer.status = await once(child, 'exit');
  return answer;
}

async function thread() {
  const worker = new worker_threads.Worker(__filename, { workerData: [6, 7] });
  return once(worker, 'message');
}

// The servers' keys and certificates, and the authority that signed one of them, lie beside this program;
// NODE_EXTRA_CA_CERTS names that authority.
async function tls() {
  const get = (name) => new Promise((resolve) => {
    const key = fs.readFileSync(path.join(__dirname, `${name}.key`));
    const cert = fs.readFileSync(path.join(__dirname, `${name}.pem`));
    const server = https.createServer({ key, cert }, (request, response) => response.end(`hello from ${name}`));
    server.listen(0, '127.0.0.1', () => {
      const request = https.get({ host: 'localhost', port: server.address().port, agent: false }, (response) => {
        response.setEncoding('utf8');
        let text = '';
        response.on('data', (piece) => { text += piece; });
        response.on('end', () => { server.close(); resolve({ text, protocol: response.socket.getProtocol() }); });
      });
      request.on('error', (error) => { server.close(); resolve({ error: error.code }); });
    });
  });
  return { trusted: await get('trusted'), stranger: await get('stranger') };
}

async function names() {
  const callback = await new Promise((resolve, reject) => {
    dns.lookup('localhost', { family: 4 }, (error, address) => (error ? reject(error) : resolve(address)));
  });
  return { callback, promise: (await dns.promises.lookup('localhost', { family: 4 })).address };
}

function tools() {
  const bin = path.join(process.argv[2], 'bin');
  return Object.fromEntries(['node', 'npm', 'npx', 'seal-tree', 'capsule-exec'].map((name) => {
    const done = child_process.spawnSync(path.join(bin, name), ['--version'], { encoding: 'utf8' });
    return [name, done.error ? String(done.error) : (done.stdout + done.stderr).trim()];
  }));
}

// `export -p` is the shell's own command: an image may hold no `env`.
function shell() {
  const done = child_process.spawnSync('/bin/sh', ['-c', 'export -p; command -v node npm; true'], { encoding: 'utf8' });
  return { status: done.status, text: done.stdout + done.stderr };
}

function libraries() {
  return process.report.getReport().sharedObjects.filter((name) => !name.startsWith('linux-vdso'));
}

function self() {
  return {
    version: process.version,
    versions: process.versions,
    execPath: process.execPath,
    exe: fs.readlinkSync('/proc/self/exe'),
    argv0: process.argv[0],
    uid: process.getuid(),
    home: process.env.HOME === undefined ? null : process.env.HOME,
    user: (() => { try { return os.userInfo().username; } catch (error) { return error.code; } })(),
    ld: Object.keys(process.env).filter((name) => name.startsWith('LD_')),
  };
}

function temporary() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'facts-'));
  fs.writeFileSync(path.join(folder, 'file'), 'written');
  return fs.readFileSync(path.join(folder, 'file'), 'utf8');
}

const ALL = { self, fork, thread, tls, names, tools, shell, libraries, temporary };

async function main() {
  if (!worker_threads.isMainThread) {
    const [a, b] = worker_threads.workerData;
    worker_threads.parentPort.postMessage({ product: a * b, thread: worker_threads.threadId });
    return;
  }
  if (process.argv[2] === '--answer') {
    process.once('message', ({ question: [a, b] }) => {
      process.send({ product: a * b, execPath: process.execPath, pid: process.pid }, () => process.disconnect());
    });
    return;
  }
  const facts = {};
  for (const name of process.argv.slice(3)) {
    facts[name] = await ALL[name]();
  }
  process.stdout.write(`${JSON.stringify(facts)}\n`);
}

main().catch((error) => { console.error(error); process.exitCode = 1; });
