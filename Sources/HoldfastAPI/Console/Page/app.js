// The entry point of the console: signs in, shows the screen of an address, and keeps the frame around it.
//
// Each screen is a module with `show(context)`, which returns its elements, and perhaps `ahead(address)`, which sends its first
// reads early.

import { h, replace, icon } from "./dom.js";
import * as api from "./api.js";
import { banner, button, dialog, failure, field, link, message, page, submitButton, to, typedIn } from "./parts.js";

/// All screens by group: path, name, icon, module (default: the path), and the scope that a caller needs for it.
const screens = Object.entries({
	Test: [["today", "Today", "today"], ["experiments", "Experiments", "experiment"], ["flags", "Flags", "flag"], ["holdouts", "Holdouts", "holdout", "catalog"]],
	Data: [["metrics", "Metrics", "metric", "catalog"], ["users", "Users", "user"], ["segments", "Segments", "segment", "attributes"], ["attributes", "Attributes", "attribute"], ["live", "Live", "live"]],
	Administration: [["proposals", "Approvals", "check", "proposals", "admin"], ["audit", "Audit log", "audit", "audit", "admin"], ["webhooks", "Webhooks", "webhook", "webhooks", "admin"], ["datafiles", "Datafiles", "datafile"], ["projects", "Projects", "project", "catalog"], ["tokens", "Tokens", "token", "catalog", "admin"]],
}).flatMap(([group, list]) => list.map(([path, name, icon, module = path, scope = "read"]) => ({ group, path, name, icon, module: `./${module}.js`, scope })));
/// The screens that the caller may use.
const offered = () => screens.filter(s => s.scope === "read" ? api.may("read") : api.mayAll(s.scope));

const main = document.getElementById("main");
const bar = document.querySelector(".bar");
const connection = document.getElementById("connection");
/// The context of the screen that is shown, and its address.
let current = null, shown = null;
/// A screen with unsaved changes, kept while its user signs in again: its context, elements and address.
let kept = null;
let isFirst = true;
/// Whether a screen is being loaded. Until it is there, scrolling concerns the screen before.
let isArriving = false;

/// Splits an address: `#/experiments/checkout?goal=purchase` is `["experiments", "checkout"]` and its query.
function parse(hash) {
	const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
	const decode = part => { try { return decodeURIComponent(part); } catch { return part; } };
	return { parts: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

/// Runs an automatic update; a failure is not shown.
const quietly = async action => { try { await action(); } catch { /* It is tried again. */ } };

/// The number of failed loads of modules. A browser remembers that an address could not be loaded, so the next try uses another
/// address.
let failures = 0;

/// Loads a module of the page. Throws `Unreachable` while the server is away, like a request.
async function load(name) {
	try { return await import(failures ? `${name}?again=${failures}` : name); } catch (error) {
		if (!(error instanceof TypeError)) throw error;
		failures += 1;
		throw new api.Unreachable();
	}
}

/// Makes the address name the project, so that a link shows the same to everybody.
function nameProject(query) {
	const given = query.get("project");
	if (given !== null && given !== api.project.named()) {
		api.project.set(given);
		showAccount();
	}
	const named = api.project.named();
	if (named === null || given === named) return;
	query.set("project", named);
	history.replaceState(history.state, "", `${location.hash.split("?")[0]}?${query}`);
}

/// Scrolls to where the page was when its entry of the history was left. Scrolls again while the page grows, until the user does.
function restoreScroll(top) {
	scrollTo(0, top);
	if (top === 0) return;
	const observer = new ResizeObserver(() => { if (scrollY < top) scrollTo(0, top); });
	const stop = () => observer.disconnect();
	observer.observe(main);
	for (const event of ["wheel", "pointerdown", "keydown", "hashchange"]) addEventListener(event, stop, { once: true });
	setTimeout(stop, 3_000);
}

/// The draft of the form at an address. The tab keeps it until it is saved or given up, so a reload or a crash loses nothing.
const draftOf = address => typedIn(address.replace(/[?&]project=[^&]*/, "").split("&")[0] + (api.project.get() ?? ""));

/// Shows the screen of the present address.
async function navigate(isReload) {
	const { parts, query } = parse(location.hash);
	const screen = screens.find(s => s.path === parts[0]);
	if (!screen) return location.replace(to("today"));
	const top = history.state?.scroll ?? 0;
	isArriving = true;
	nameProject(query);
	current?.controller.abort();
	document.querySelectorAll("dialog[open]").forEach(d => d.close());
	shown = location.hash;
	const controller = new AbortController();
	const context = current = {
		/// Whether the screen has changes that are not saved. A form replaces it.
		isChanged: () => false,
		controller, parts: parts.slice(1), query, signal: controller.signal, screen: screen.path,
		/// Stores choices of the screen in the query of the address.
		setQuery(changes) {
			for (const [name, value] of Object.entries(changes)) {
				if (value == null || value === "") query.delete(name); else query.set(name, value);
			}
			// Another screen's address, whose event has yet to come, stays as it is.
			if (location.hash !== shown) return;
			const text = query.toString();
			shown = location.hash.split("?")[0] + (text ? `?${text}` : "");
			history.replaceState(history.state, "", shown);
		},
		/// Calls `action` when a datafile changes, for as long as the screen is shown.
		onChange(action) { api.server.addEventListener("changed", e => { if (!e.detail.isFirst) quietly(action); }, { signal: controller.signal }); },
		every(milliseconds, action) {
			const timer = setInterval(() => quietly(action), milliseconds);
			controller.signal.addEventListener("abort", () => clearInterval(timer));
		},
		reload: () => navigate(true),
		draft: draftOf(location.hash),
	};
	api.begin(controller.signal);
	markScreen(screen);
	let content;
	const received = api.wait();
	try {
		if ((query.has("new") || parts[2] === "edit") && !api.may("admin")) {
			content = page(parts[1] ?? screen.name, { above: link(to(screen.path), screen.name) },
				banner("warn", "Only admins may change this", h("p", `${api.me.name} may read. What is there now: `, link(to(screen.path, ...parts[1] ? [parts[1]] : []), parts[1] ?? screen.name), ".")));
		} else {
			const module = await load(screen.module);
			if (controller.signal.aborted) return;
			content = await module.show(context);
		}
	} catch (error) {
		if (controller.signal.aborted) return;
		content = page(parts[1] ?? screen.name, { above: parts[1] && link(to(screen.path), screen.name) }, failure(error));
		context.hasFailed = true;
	} finally {
		received();
		api.forgetEarly();
	}
	if (controller.signal.aborted) return;
	replace(main, content);
	const heading = main.querySelector("h1");
	document.title = `${heading?.textContent ?? screen.name} · Holdfast`;
	// The first screen leaves the focus at the beginning of the page, and a redrawn one where it was.
	if (!(isReload && document.activeElement !== document.body)) (main.querySelector("[data-focus]") ?? (isFirst ? null : heading))?.focus({ preventScroll: true });
	isArriving = false;
	if (!isReload) restoreScroll(top);
	isFirst = false;
}

/// Draws the list of screens, and marks the present one.
function markScreen(screen) {
	const shownScreens = offered(), entry = s => h("li",
		h("a", { href: to(s.path), "aria-current": s === screen ? "page" : null }, icon(s.icon), s.name, s.path === "proposals" && api.proposals.length > 0 && h("span.badge.warn.count", { title: "that wait" }, api.proposals.length)));
	replace(document.getElementById("screens"), [...new Set(shownScreens.map(s => s.group))].map(group => h("li.group", h("span.group-name", { "aria-hidden": "true" }, group), h("ul", { label: group }, shownScreens.filter(s => s.group === group).map(entry)))));
	openMenu(false);
}

/// Opens or closes the list of screens, which is a menu on a phone.
function openMenu(isOpen) {
	bar.classList.toggle("open", isOpen);
	document.getElementById("open-menu").setAttribute("aria-expanded", String(isOpen));
}

document.getElementById("open-menu").addEventListener("click", () => openMenu(!bar.classList.contains("open")));

/// The number of calls of `showAccount`.
let shownAccounts = 0;

/// Draws who is signed in, and the choice of a project.
async function showAccount() {
	const keys = [...api.projects.keys()], number = shownAccounts += 1;
	// Without the permission to list projects, the first of them is shown as the choice.
	const known = keys.length > 1 ? await api.list("/v1/projects", "projects", { silent: true, signal: null }).catch(() => []) : [];
	// A later call knows more projects.
	if (number !== shownAccounts) return;
	api.project.default = known.find(project => project.default)?.sdk_key ?? api.project.default;
	const chosen = api.project.get() ?? api.project.default;
	const { query } = parse(location.hash);
	if (shown !== null && shown === location.hash && current && !query.has("project")) {
		nameProject(query);
		shown = location.hash;
	}
	replace(document.getElementById("account"),
		keys.length > 1 && h("label.project", h("span", "Project"),
			h("select", { onchange: async e => {
				if (!await mayLeave()) return showAccount();
				const { parts } = parse(location.hash);
				api.project.set(e.target.value);
				// Another project need not have the element that is shown.
				location.hash = `#/${parts[0]}?project=${encodeURIComponent(e.target.value)}`;
			} },
				keys.map(key => h("option", { value: key, selected: key === chosen }, key)))),
		api.token.get() && [h("p.signed-in", icon("user"), h("span", h("strong", api.me.name), " ", h("span.badge", api.me.scope), api.me.projects && h("span.small.faint", ` only ${api.me.projects.join(", ")}`))),
			h("button", { class: "button quiet", onclick: signOut, title: "In all tabs" }, icon("out"), "Sign out")]);
}

/// Signs out in all tabs.
async function signOut() {
	if (!await mayLeave()) return;
	current.isChanged = () => false;
	api.signOutEverywhere();
	leave();
}

/// Ends the session of this tab. A form with changes is kept until its user signs in again.
function leave() {
	api.token.forget();
	api.stopFollowing();
	api.projects.clear();
	for (const key of Object.keys(sessionStorage)) if (key.startsWith("holdfast.draft ")) sessionStorage.removeItem(key);
	showSignIn();
}

api.server.addEventListener("out", () => { if (api.token.get()) leave(); });

/// Shows the screens if the server accepts the token. The module and reads of the first screen are loaded at the same time.
async function enter() {
	const { parts: [path, ...parts], query } = parse(location.hash || "#/today");
	const screen = screens.find(s => s.path === path);
	// Most modules import these two. Importing them here loads all modules at the same time.
	if (screen && !kept && parts.length > 0) for (const name of ["sentences", "conditions"]) import(`./${name}.js`).catch(() => { /* It is imported again. */ });
	if (screen && !kept) import(screen.module).then(module => module.ahead?.({ parts, query })).catch(() => { /* The screen says what is wrong. */ });
	await api.identify();
	if (api.renewal.get()) import("./sign-in.js").then(signIn => signIn.keepSignedIn());
	bar.hidden = false;
	showAccount();
	api.follow();
	setTimeout(api.readProposals, 300);
	const former = kept;
	kept = null;
	if (former?.address !== location.hash) {
		former?.context.controller.abort();
		return navigate();
	}
	current = former.context;
	api.begin(current.signal);
	replace(main, former.elements);
}

let isAsking = false;

/// Asks whether changes that are not saved may be lost, if there are any.
async function mayLeave() {
	if (!current?.isChanged()) return true;
	if (isAsking) return false;
	isAsking = true;
	const answer = await dialog("Leave without saving?", close => [h("p", "What you have changed here is not saved."),
		h("div.buttons", button("Stay", () => close(), "primary"), button("Leave without saving", () => close("leave"), "danger"))]);
	isAsking = false;
	if (answer === "leave") current.draft.forget();
	return answer === "leave";
}

/// Shows the form for a token, and a button for the identity provider if the server has one. `problem` is the error of the last
/// attempt.
function showSignIn(problem) {
	document.querySelectorAll("dialog[open]").forEach(d => d.close());
	if (current?.isChanged()) kept = { context: current, elements: [...main.childNodes], address: shown };
	else {
		current?.controller.abort();
		api.begin(undefined);
	}
	current = null;
	bar.hidden = true;
	const input = h("input", { type: "password", required: true });
	const token = field("Access token", input, { hint: "Kept until the last tab of the console is closed. The console can do what the token may do, and nothing else." });
	const notice = h("div", problem && banner("bad", problem instanceof api.Problem ? "The server refuses the token" : "Nobody was signed in", h("p", problem.message)));
	const provider = h("div");
	import("./sign-in.js").then(async signIn => {
		const settings = await signIn.settings();
		if (settings) replace(provider, button(`Sign in with ${new URL(settings.issuer).host}`, () => signIn.start(settings).catch(error => replace(notice, failure(error))), "primary"));
	}).catch(() => { /* A token lets in, too. */ });
	const form = h("form.sign-in", { onsubmit: async event => {
		event.preventDefault();
		api.token.set(input.value.trim());
		isFirst = false;
		try { await enter(); } catch (error) {
			if (!(error instanceof api.Problem)) api.token.forget();
			replace(notice, failure(error));
		}
	} },
		h("img", { src: "icon.svg", alt: "", width: 40, height: 40 }),
		h("h1", { tabindex: "-1" }, "Holdfast"),
		h("p.note", "Sign in with one of the server’s access tokens."),
		notice, provider, token, submitButton("Sign in"));
	replace(main, form);
	document.title = "Sign in · Holdfast";
	input.focus();
}

api.server.addEventListener("proposals", () => {
	const { parts } = parse(location.hash);
	if (!bar.hidden) markScreen(screens.find(s => s.path === parts[0]));
});
setInterval(() => { if (!bar.hidden && !document.hidden) api.readProposals(); }, 20_000);

history.scrollRestoration = "manual";
let scrolling;
addEventListener("scroll", () => {
	clearTimeout(scrolling);
	// The position is stored before the address changes, while the entry that will be left is still the present one.
	scrolling = setTimeout(() => { if (shown === location.hash && !isArriving) history.replaceState({ scroll: Math.round(scrollY) }, ""); }, 60);
}, { passive: true });

let isLost = false;

/// Tells whether the server responds, and how fast.
function showConnection() {
	document.getElementById("progress").hidden = api.waiting.slow === 0;
	const notice = isLost ? ["The server does not respond.", "What you see may be outdated. The console retries automatically."]
		: api.waiting.stalled > 0 ? ["The server takes long to respond.", "The request is not lost: the console goes on waiting."] : null;
	if (connection.textContent === (notice ?? []).join("")) return;
	replace(connection, notice && banner("warn", notice[0], h("p", notice[1])));
}

api.server.addEventListener("waiting", showConnection);
api.server.addEventListener("lost", () => { isLost = true; showConnection(); });

api.server.addEventListener("found", () => {
	if (!isLost) return;
	isLost = false;
	showConnection();
	message("good", "The server responds again.");
	if (current?.hasFailed) navigate();
});

api.server.addEventListener("refused", event => {
	const hadToken = api.token.get() !== null;
	api.token.forget();
	api.stopFollowing();
	showSignIn(hadToken ? event.detail : null);
});

api.server.addEventListener("changed", () => {
	if (document.getElementById("account").querySelectorAll("option").length !== api.projects.size) showAccount();
});

addEventListener("hashchange", async () => {
	if (bar.hidden || location.hash === shown) return;
	if (await mayLeave()) return navigate();
	// The screen stays, so the address becomes that of the screen again.
	history.pushState(null, "", shown);
});

addEventListener("beforeunload", event => { if (current?.isChanged() || kept) event.preventDefault(); });

addEventListener("keydown", event => {
	if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && !bar.hidden) {
		event.preventDefault();
		openPalette();
	}
});
const openPalette = async () => {
	// Keys that are pressed while the palette is loaded belong to it.
	let typed = "";
	const keep = event => {
		if (event.key.length !== 1 || event.ctrlKey || event.metaKey || event.altKey) return;
		event.preventDefault();
		typed += event.key;
	};
	addEventListener("keydown", keep, true);
	try {
		const palette = await load("./palette.js");
		palette.openPalette(offered(), typed);
	} catch (error) { message("bad", error.message); } finally { removeEventListener("keydown", keep, true); }
};
document.getElementById("open-palette").addEventListener("click", openPalette);
document.querySelector(".skip").addEventListener("click", event => { event.preventDefault(); main.focus(); });

/// Whether the identity provider has sent the browser back.
const isReturn = /[?&](code|error)=/.test(location.search);

/// Enters with the token of this tab, of the identity provider that has sent the browser back, or of another tab.
async function begin() {
	if (isReturn) {
		try { await (await import("./sign-in.js")).finish(); } catch (error) { return showSignIn(error); }
	}
	try { await enter(); } catch (error) {
		const other = error.status === 401 ? await api.tokenOfOtherTab() : null;
		if (!other) throw error;
		api.token.set(other);
		await enter();
	}
}

// Without a token, too: a server without tokens accepts everybody.
try { await begin(); } catch (error) {
	if (error.status !== 401) replace(main, failure(error), button("Try again", () => location.reload(), "primary"));
}
