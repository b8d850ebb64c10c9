// The public API of this server. `call` also records each request, so that it can be shown as a curl command.

const root = new URL("../", document.baseURI);
const tokenKey = "holdfast.token";
/// The refresh token of an identity provider. Only the tab that signed in has it.
const renewalKey = "holdfast.renewal";
const projectKey = "holdfast.project";

/// Dispatches events to the screens: `lost` and `found` when the server stops or starts to respond, `waiting` when the number
/// of slow requests changes, `changed` for a new datafile, `refused` for a refused token, `proposals` for other proposals,
/// and `token` and `out` from other tabs.
export const server = new EventTarget();
const tell = (name, detail) => server.dispatchEvent(new CustomEvent(name, { detail }));

/// The error that the server responded with (RFC 9457, or the Agent's format).
export class Problem extends Error {
	constructor(status, body, request) {
		super(body?.detail ?? body?.error ?? body?.title ?? `the server responded with status ${status}`);
		this.status = status;
		this.request = request;
		this.pointer = body?.pointer ?? null;
		this.moves = body?.moves;
		this.errors = body?.errors ?? (this.pointer === null ? [] : [{ pointer: this.pointer, detail: this.message }]);
	}
}

/// The error for a request without a response.
export class Unreachable extends Error {
	constructor() { super("The server does not respond."); }
}

/// The access token, kept by the tab.
export const token = {
	get: () => sessionStorage.getItem(tokenKey),
	set: value => sessionStorage.setItem(tokenKey, value),
	forget() { [tokenKey, renewalKey].forEach(key => sessionStorage.removeItem(key)); },
};

/// What is needed to renew the token: the refresh token, and when the token expires.
export const renewal = {
	get: () => JSON.parse(sessionStorage.getItem(renewalKey)),
	set: value => sessionStorage.setItem(renewalKey, JSON.stringify(value)),
};

/// The person or program that is signed in: `name`, `scope`, and `scopes`, the scopes whose routes it may call.
export let me = { scopes: [] };
/// Asks the server who is signed in.
export async function identify() { me = await get("/v1/whoami", null, { silent: true }); }

/// Whether the caller may call routes of a scope. Screens do not offer actions that would be refused.
export const may = scope => me.scopes.includes(scope);
/// Whether the caller may call routes of a scope that concern all projects.
export const mayAll = scope => may(scope) && me.projects === null;

/// Shares the token between the tabs of a browser: a new tab asks the others for theirs. Messages are `"token?"`, `"out"` (to
/// sign out), `{ token }` as the response, and `{ former, token }` for a renewed token.
const session = new BroadcastChannel(`holdfast.session ${root.pathname}`);
session.onmessage = ({ data }) => {
	if (data === "token?") { if (token.get()) session.postMessage({ token: token.get() }); }
	else if (data === "out") tell("out");
	else if (data.former) { if (token.get() === data.former) token.set(data.token); }
	else tell("token", data.token);
};

/// Resolves with the token of another tab, or with `null` if none has one.
export const tokenOfOtherTab = () => new Promise(resolve => {
	const timer = setTimeout(() => resolve(null), 200);
	server.addEventListener("token", event => { clearTimeout(timer); resolve(event.detail); }, { once: true });
	session.postMessage("token?");
});

/// Replaces the token in all tabs that have it.
export function renewToken(renewed) {
	session.postMessage({ former: token.get(), token: renewed });
	token.set(renewed);
}

export const signOutEverywhere = () => session.postMessage("out");

/// The projects that the stream of changes has named, by SDK key, with the revisions of their datafiles.
export const projects = new Map();
/// The project that the console shows.
export const project = {
	/// The default project's key; null while it is not known, or if there is only one project.
	default: null,
	/// The project that addresses of screens name; null if there is only one.
	named: () => project.get() ?? (projects.size > 1 ? project.default : null),
	/// The chosen project; null for the default one.
	get() {
		const chosen = sessionStorage.getItem(projectKey);
		return chosen && (projects.size === 0 || projects.has(chosen)) ? chosen : null;
	},
	set: key => sessionStorage.setItem(projectKey, key),
};

/// The signal of the current screen, which aborts its reads when it is left.
let screen;

/// The requests of the current screen, oldest first.
export let requests = [];
/// Begins a screen, whose requests are collected from now on.
export function begin(signal) {
	screen = signal;
	requests = [];
}

/// The path of a resource. Throws a `Problem` if a browser cannot send it: browsers remove `.` and `..` from addresses,
/// however they are encoded.
export function path(...parts) {
	const dots = parts.find(part => part === "." || part === "..");
	if (dots) throw new Problem(0, { detail: `A browser cannot send the name “${dots}” in an address. The command curl --path-as-is can.` });
	return "/v1/" + parts.map(encodeURIComponent).join("/");
}

/// The number of requests that have had no response for 300 ms, and for 5 s.
export const waiting = { slow: 0, stalled: 0 };

/// Counts as waiting until the returned function is called.
export function wait() {
	const counted = [];
	const count = (name, by) => { waiting[name] += by; tell("waiting"); };
	const timers = [["slow", 300], ["stalled", 5_000]].map(([name, after]) => setTimeout(() => { counted.push(name); count(name, 1); }, after));
	return () => {
		timers.forEach(timer => clearTimeout(timer));
		for (const name of counted.splice(0)) count(name, -1);
	};
}

/// The responses of reads that were sent before their screen was loaded, by their addresses.
const early = new Map();

/// Sends a read that a screen will ask for, while its module and the user's name are being loaded.
export function ahead(path, query) {
	const url = addressOf(path, query);
	early.set(url.href, fetch(url, { headers: { ...projectHeader(), ...credential() }, cache: "no-store", credentials: "omit" }).then(response => response.ok ? response : null, () => null));
}

/// Forgets early responses that no screen has asked for.
export const forgetEarly = () => early.clear();

/// Takes the early response to a read; `null` if the read was not sent early, or failed.
async function takeEarly(method, { href }) {
	if (method !== "GET" || !early.has(href)) return null;
	const response = early.get(href);
	early.delete(href);
	return response;
}

/// The URL of a path. Query parameters without a value are left out; those with an array are repeated.
function addressOf(path, query) {
	const url = new URL(path.slice(1), root);
	for (const [name, value] of Object.entries(query ?? {})) {
		for (const each of [value].flat()) if (each !== null && each !== undefined && each !== "") url.searchParams.append(name, each);
	}
	return url;
}

function projectHeader(sdkKey) {
	const key = sdkKey ?? project.get();
	return key ? { "X-Optimizely-SDK-Key": key } : {};
}

/// Sends a request with the token, and returns `{ status, data, etag, request }`. Throws a `Problem` if the server refuses it,
/// or if it was stored as a proposal (202), and `Unreachable` without a response.
///
/// `options`: `query`, `body` (an object), `ifMatch`, `ifNoneMatch`, `text` (whether to return the response as text),
/// `lines` (as JSON lines), `sdkKey` (of another project than the chosen one), `silent` (not among the curl commands).
export async function call(method, path, options = {}) {
	const url = addressOf(path, options.query), headers = projectHeader(options.sdkKey);
	if (options.ifMatch) headers["If-Match"] = options.ifMatch;
	if (options.ifNoneMatch) headers["If-None-Match"] = options.ifNoneMatch;
	const body = options.body === undefined ? undefined : JSON.stringify(options.body);
	const request = { method, url: url.href, headers, body };
	if (!options.silent) remember(request);
	let response, text;
	const received = wait();
	try {
		response = await takeEarly(method, url) ?? await fetch(url, { method, headers: { ...headers, ...credential() }, body, signal: method === "GET" ? "signal" in options ? options.signal : screen : undefined, cache: "no-store", credentials: "omit" });
		text = await response.text();
	} catch (error) {
		if (error.name === "AbortError") throw error;
		tell("lost");
		throw new Unreachable();
	} finally { received(); }
	tell("found");
	if (!response.ok) {
		const problem = new Problem(response.status, parse(text), request);
		if (response.status === 401) tell("refused", problem);
		throw problem;
	}
	if (response.status === 202 && parse(text)?.proposal) {
		readProposals();
		throw new Problem(202, { detail: "It changes a running experiment, so a second person must approve it." }, request);
	}
	const data = options.text ? text : options.lines ? text.split("\n").filter(Boolean).map(parse) : parse(text);
	return { status: response.status, data, etag: response.headers.get("ETag"), request };
}

/// Reads a resource, and returns its data.
export const get = async (path, query, options) => (await call("GET", path, { query, ...options })).data;

/// The changes that wait for a second person, if the caller may approve them. `server` dispatches `proposals` when they change.
export let proposals = [];

/// Reads the proposals again.
export async function readProposals() {
	// A server that needs no second person has no proposals.
	if (!may("admin") || me.approvals === 1) return;
	// A new server has no project.
	const { proposals: found = [], approvals } = (await get("/v1/proposals", { status: "pending", limit: 100 }, { silent: true, signal: null }).catch(() => null)) ?? {};
	// An edge learns from its upstream whether a second person is needed.
	me.approvals ??= approvals;
	if (found.length > 0) {
		const { proposed } = await import("./sentences.js");
		for (const p of found) p.said = p.changes.map(proposed).join("; ");
	}
	const isSame = JSON.stringify(found) === JSON.stringify(proposals);
	proposals = found;
	if (!isSame) tell("proposals");
}

/// All elements of a list, page by page.
export async function list(path, name, options) {
	const elements = [];
	for (let after = null; ;) {
		const page = await get(path, { limit: 1000, after }, options);
		elements.push(...page[name]);
		if (page.next == null) return elements;
		after = page.next;
	}
}

const credential = () => token.get() ? { Authorization: `Bearer ${token.get()}` } : {};

function parse(text) {
	if (text === "") return null;
	try { return JSON.parse(text); } catch { return { detail: text.slice(0, 500) }; }
}

/// Adds a request to those that are shown as curl commands, each once.
function remember(request) {
	const known = requests.findIndex(other => curl(other) === curl(request));
	if (known >= 0) requests.splice(known, 1);
	requests.push(request);
	if (requests.length > 60) requests.shift();
}

/// The command that sends the request. It names the token by a variable, never by its secret.
export function curl(request) {
	const parts = ["curl"];
	if (request.method !== "GET" && !(request.method === "POST" && request.body !== undefined)) parts.push("-X", request.method);
	parts.push(quoted(request.url));
	if (token.get()) parts.push('-H "Authorization: Bearer $HOLDFAST_TOKEN"');
	for (const [name, value] of Object.entries(request.headers)) parts.push("-H", quoted(`${name}: ${value}`));
	if (request.body !== undefined) parts.push("-d", quoted(request.body));
	return parts.join(" ");
}

const quoted = text => /^[\w./:=@%+,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;

// MARK: The stream of changes

/// Aborts the reading of the stream; `null` while this tab does not follow it.
let following = null;
/// Whether this tab wants changes, and whether it is the tab that reads the stream.
let isWanted = false, isReading = false;

/// The tabs of a browser share one stream of changes, because a browser opens only six connections to a server: the tab
/// that holds the lock reads it and passes on what it reads. Without locks (plain HTTP) each tab reads its own.
const shared = `holdfast.changes ${root.pathname}`;
const tabs = new BroadcastChannel(shared);
tabs.onmessage = ({ data }) => {
	if (data === "known?") {
		if (isReading) projects.forEach((revision, sdkKey) => tabs.postMessage({ sdk_key: sdkKey, revision }));
	} else if (!isWanted) return;
	else if (typeof data === "string") tell(data);
	else noteChange(data);
};

/// Dispatches an event in all tabs.
const tellAll = name => { tell(name); tabs.postMessage(name); };

/// Follows the stream of changes until `stopFollowing`, except while the tab is hidden.
export function follow() {
	isWanted = true;
	resume();
}

export function stopFollowing() {
	isWanted = false;
	suspend();
}

document.addEventListener("visibilitychange", () => { if (document.hidden) suspend(); else if (isWanted) resume(); });

function suspend() {
	following?.abort();
	following = null;
}

async function resume() {
	suspend();
	if (document.hidden) return;
	const { signal } = following = new AbortController();
	tabs.postMessage("known?");
	try {
		if (navigator.locks) await navigator.locks.request(shared, { signal }, () => readChanges(signal));
		else await readChanges(signal);
	} catch (error) {
		if (!signal.aborted) throw error;
	}
}

/// Reads the stream of changes, and opens it again when it ends. `EventSource` cannot send a token, so the stream is
/// read by hand.
async function readChanges(signal) {
	isReading = true;
	signal.addEventListener("abort", () => { isReading = false; });
	for (let pause = 500; !signal.aborted; pause = Math.min(pause * 2, 8_000)) {
		try {
			const response = await fetch(new URL("v1/changes", root), { headers: credential(), signal, cache: "no-store", credentials: "omit" });
			if (response.status === 401 || response.status === 403) {
				isReading = false;
				return;
			}
			if (response.ok) {
				pause = 500;
				tellAll("found");
				await readEvents(response.body.pipeThrough(new TextDecoderStream()).getReader());
			}
		} catch { /* The stream is opened again. */ }
		if (signal.aborted) return;
		tellAll("lost");
		await new Promise(resolve => setTimeout(resolve, pause));
	}
}

/// Reads server-sent events until the stream ends.
async function readEvents(reader) {
	let buffer = "";
	for (;;) {
		const { done, value } = await reader.read();
		if (done) return;
		buffer += value;
		const events = buffer.split("\n\n");
		buffer = events.pop();
		for (const event of events) {
			const data = event.split("\n").filter(line => line.startsWith("data:")).map(line => line.slice(5)).join("\n");
			if (!data) continue;
			const change = JSON.parse(data);
			noteChange(change);
			tabs.postMessage(change);
		}
	}
}

/// Stores the revision of a project, and tells the screens if it is another one.
function noteChange(change) {
	const former = projects.get(change.sdk_key);
	projects.set(change.sdk_key, change.revision);
	if (former !== change.revision) tell("changed", { ...change, isFirst: former === undefined });
}
