// The parts that all screens share: headings, tables, states, dialogs, messages.

import { h, append, replace, update, icon, newID } from "./dom.js";
import * as api from "./api.js";
import { ago, exactTime, integer, none } from "./format.js";

/// A screen: its heading with actions, and its content.
export function page(title, { above, below, actions = [] } = {}, ...content) {
	return h("div",
		h("header.head",
			above && h("p.above", above),
			h("div.headline",
				h("h1", { tabindex: "-1" }, title),
				h("div.actions", actions, curlButton())),
			below && h("p.below", below)),
		content);
}

export const link = (hash, ...content) => h("a", { href: hash }, content);
/// The address of a screen, with the project if there are several.
export const to = (screen, ...parts) => `#/${[screen, ...parts.map(encodeURIComponent)].join("/")}${api.project.named() === null ? "" : `?project=${encodeURIComponent(api.project.named())}`}`;

export function button(label, onclick, kind = "") {
	return h("button", { class: `button ${kind}`, onclick }, label);
}

/// A button for a change that can be cancelled: `done` is called if `action` resolves with something. It is left out if the
/// caller lacks the `scope`.
export const doing = (label, action, done, kind, scope = "admin") => api.may(scope) && button(label, async () => { if (await action()) done(); }, kind);

/// A link to the form of something new.
export const newLink = (screen, name) => api.may("admin") && h("a.button.primary", { href: `#/${screen}?new=1` }, icon("plus"), `New ${name}`);

/// A switch that asks before it changes something.
export const toggle = (label, isOn, isDisabled, action, done) => h("button.switch", { role: "switch", "aria-checked": String(isOn), label, disabled: isDisabled || !api.may("admin"),
	onclick: async () => { if (await action()) done(); } }, h("span"));

export const submitButton = (label, kind = "primary") => h("button", { type: "submit", class: `button ${kind}` }, label);
export const iconButton = (symbol, label, onclick) => h("button.button.quiet", { label, onclick }, icon(symbol));

/// The first elements of a list, and how many more there are.
export const few = (list, draw, count = 3) => [list.slice(0, count).map((each, index) => [index > 0 && ", ", draw(each)]), list.length > count && ` and ${list.length - count} more`];

/// Whether the window has the width of a phone.
export const isPhone = () => matchMedia("(max-width: 560px)").matches;

/// A section of a screen. `isFolded` folds it on a phone, so that the sections that decide are near.
export function section(title, { actions, note, isFolded }, ...content) {
	const id = newID("section");
	if (isFolded && isPhone()) return h("section.section.folded", { "aria-labelledby": id }, h("details", h("summary", h("h2", { id }, title)), note && h("p.note", note), actions && h("div.actions", actions), content));
	return h("section.section", { "aria-labelledby": id },
		h("div.section-head", h("h2", { id }, title), note && h("p.note", note), h("div.actions", actions)),
		content);
}

export const dash = () => h("span.faint.dash", none);
export const card = (...content) => h("div.card", content);

/// A time relative to now, with the exact time as its title.
export const moment = text => text
	? h("time", { datetime: text, title: exactTime(text) }, ago(text)) : dash();

/// A `details` element whose content is created when it is first opened.
export function lazily(summary, make, kind = "details") {
	const box = h("div");
	const element = h(kind, { ontoggle: () => { if (element.open && !box.firstChild) replace(box, element.make()); } }, h("summary", summary), box);
	element.make = make;
	element.adopt = successor => {
		update(element.firstChild, [...successor.firstChild.childNodes]);
		element.make = successor.make;
		if (element.open) update(box, element.make()); else box.replaceChildren();
	};
	return element;
}

export const code = text => h("code", text);

/// A key that is copied by a click.
export const keyChip = key => h("button.badge.chip", { title: "Copy the key", onclick: () => copy(key, `The key ${key} was copied.`) }, h("code", key), icon("copy"));

export function status(name) {
	const kind = { running: "good", paused: "warn", on: "good" }[name] ?? "idle";
	return h("span", { class: `status ${kind}` }, name.replaceAll("_", " "));
}

export const badge = (text, kind = "") => h("span", { class: `badge ${kind}` }, text);

/// What stands in the place of an empty list, perhaps with a command that fills it.
export function empty(title, text, command, ...actions) {
	return h("div.empty", h("p.empty-title", title), text && h("p", text),
		actions.some(Boolean) && h("div.actions", actions), command && h("details.curl", h("summary", "With curl"), commandLine(command)));
}

/// Shows how to create the first item of an empty list.
export const invitation = (title, text, action, path, body) => empty(title, text, `curl -X PUT ${here(path)} -d '${body}'`, action);

function commandLine(text) {
	return h("div.command", h("pre", { tabindex: "0" }, h("code", text)),
		iconButton("copy", "Copy the command", () => copy(text, "The command was copied.")));
}

/// The URL of a path of the API.
export const here = path => new URL("../" + path.replace(/^\//, ""), document.baseURI).href;

export function banner(kind, title, ...content) {
	return h("div", { class: `banner ${kind}`, role: kind === "bad" ? "alert" : "note" }, icon(kind === "good" ? "check" : "warning"),
		h("div", h("strong", title), content));
}

/// Shows an error of a request.
export function failure(error) {
	if (error instanceof api.Unreachable) return banner("bad", error.message, h("p", "The console retries automatically."));
	if (error.status === 202) return banner("warn", "The change is proposed", h("p", error.message, " ", link(to("proposals"), "Approvals")));
	const isProblem = error instanceof api.Problem;
	if (!isProblem) console.error(error);
	return banner("bad", isProblem && error.status === 403 ? "The token does not permit this" : "Request failed",
		h("p", error.message),
		isProblem && error.errors.length > 1 && h("ul", error.errors.map(e => h("li", e.pointer && [code(e.pointer), " "], e.detail))));
}

/// Content that is fetched; `reload()` of the element fetches it again.
export function pending(load, placeholder = "Loading…") {
	const element = h("div", { "aria-busy": "true" }, h("p.loading", placeholder));
	element.reload = async () => {
		try {
			const content = await load();
			if (content !== undefined) replace(element, content);
		} catch (error) {
			if (error.name === "AbortError") return;
			replace(element, failure(error));
			if (error instanceof api.Unreachable) api.server.addEventListener("found", () => { if (element.isConnected) element.reload(); }, { once: true });
		}
		element.removeAttribute("aria-busy");
	};
	element.loaded = element.reload();
	return element;
}

/// A list that the server has in pages, with a button for the next one. `load` takes the `next` of a page, and resolves with the following `rows` and `next`;
/// `first` is the first page, if it was read before.
export function older(load, render, { label = "Older", first } = {}) {
	const place = h("div");
	const add = async (former, after) => {
		const { rows, next } = first ?? await load(after), all = [...former, ...rows];
		first = undefined;
		replace(place, render(all), next !== null && h("div.buttons", button(label, async () => {
			try { await add(all, next); } catch (error) { place.append(failure(error)); }
			place.lastChild.querySelector("button, a")?.focus();
		})));
		return place;
	};
	return pending(() => add([]));
}

/// Shows a message for a few seconds; a screen reader announces it.
export function message(kind, text, request) {
	const element = h("div", { class: `toast ${kind}` }, h("p", icon(kind === "bad" ? "warning" : "check"), text),
		iconButton("close", "Close the message", () => remove()),
		request?.url && button("Copy as curl", () => copy(api.curl(request), "The command was copied."), "quiet copy"));
	const list = document.getElementById("toasts");
	// On a phone the page makes room for the messages.
	const measure = () => document.documentElement.style.setProperty("--toasts", `${list.offsetHeight}px`);
	const remove = () => { element.remove(); measure(); };
	while (list.children.length > 2) list.firstChild.remove();
	list.append(element);
	measure();
	setTimeout(remove, kind === "bad" ? 15_000 : 7_000);
}

export async function copy(text, done = "Copied.") {
	try {
		await navigator.clipboard.writeText(text);
	} catch {
		// Without HTTPS there is no clipboard API.
		const area = h("textarea.hidden", { readonly: true, value: text });
		(document.querySelector("dialog[open]") ?? document.body).append(area);
		area.select();
		document.execCommand("copy");
		area.remove();
	}
	message("good", done);
}

function curlButton() {
	return h("button.button.quiet.copies-curl", { title: "The requests behind this screen", onclick: () => dialog("As curl", close => [
			h("p.note", api.token.get() ? ["The requests that this screen has sent. ", code("HOLDFAST_TOKEN"), " is a variable with your token; the secret is not in the commands."] : "The requests that this screen has sent."),
			api.requests.length ? h("ol.commands", [...api.requests].reverse().map(r => h("li", commandLine(api.curl(r))))) : h("p", "No request yet."),
			h("div.buttons",
				button("Close", close, "primary")),
		], "wide") }, icon("copy"), "Copy as curl");
}

/// The storage of what is typed in a form or dialog and not sent yet. The tab keeps it until the user signs out.
export const typedIn = (name, key = `holdfast.draft ${name}`) => ({
	get() { try { return JSON.parse(sessionStorage.getItem(key)); } catch { return null; } },
	set(value) { try { sessionStorage.setItem(key, JSON.stringify(value)); } catch { /* There is no room. */ } },
	forget: () => sessionStorage.removeItem(key),
});

/// Opens a dialog. `content` receives the function that closes it, whose argument is the result.
export function dialog(title, content, kind = "") {
	return new Promise(resolve => {
		const id = newID("dialog");
		const opener = document.activeElement;
		const element = h("dialog", { class: kind, "aria-labelledby": id, onclose: () => {
			element.remove();
			if (opener?.isConnected) opener.focus();
			resolve(element.result);
		}, onclick: event => { if (event.target === element && !element.querySelector("form")) element.close(); } });
		const close = result => { element.result = result instanceof Event ? undefined : result; element.close(); };
		element.append(append(h("div.dialog-body", h("h2", { id }, title)), [content(close, element)]));
		document.body.append(element);
		element.showModal();
	});
}

/// Asks before it runs `action`, and shows the error if it fails. `done` makes a message from the response;
/// if there is a `word`, the user must type it. Resolves with the response; `undefined` if the user cancels.
export async function confirm(title, text, { label, danger = false, action, done, fields = [], word, kind }) {
	const inputs = fields.filter(f => f?.isField && f.input?.matches?.("input, textarea, select"));
	// What was typed comes back, unless what the dialog shows has changed meanwhile.
	const initial = JSON.stringify(inputs.map(f => f.input.value)), typed = typedIn(title), kept = typed.get();
	const keep = () => {
		const values = inputs.map(f => f.input.value);
		if (JSON.stringify(values) === initial) typed.forget(); else typed.set({ initial, values });
	};
	if (kept?.initial === initial) inputs.forEach((f, index) => { f.input.value = kept.values[index]; });
	let response = await dialog(title, close => {
		const problems = h("div");
		const check = word && field("Type " + word + " to confirm", h("input", { autocomplete: "off", oninput: () => update() }));
		const submit = h("button", { type: "submit", class: `button ${danger ? "danger" : "primary"}` }, label);
		const update = () => { if (word) submit.disabled = check.input.value !== word; };
		update();
		return h("form", { method: "dialog", oninput: keep, onchange: keep, onsubmit: async event => {
			event.preventDefault();
			submit.disabled = true;
			try { close(await action()); } catch (error) {
				if (error.status === 202) return close(error);
				showProblem(error, fields, problems);
			} finally { submit.disabled = false; }
		} },
			text && h("div.prose", text), fields, check, problems,
			h("div.buttons", button("Cancel", () => close()), submit));
	}, kind);
	if (response) typed.forget();
	if (response?.status === 202 && response instanceof api.Problem) {
		proposed(response.request);
		return { data: {} };
	}
	const told = response && done?.(response);
	if (told) message("good", told, response.request);
	return response;
}

/// Shows the message that a change waits for a second person.
export const proposed = request => message("good", ["Proposed: it waits for a second person, who finds it at ", h("a", { href: to("proposals") }, "Approvals"), "."], request);

/// The proposals that change an experiment or flag.
export const waitingOf = key => api.proposals.filter(p => p.status === "pending" && (p.experiments.includes(key) || p.changes.some(c => c.target === key)));

/// Changes a definition; asks before it moves enrolled users. `method` is `PUT` by default.
export async function change(path, { method = "PUT", ...options }) {
	try { return await api.call(method, path, options); } catch (error) {
		if (!error.moves || !await dialog("Move users?", close => [h("p", error.message),
			h("div.buttons", button("Cancel", () => close()), button("Move them", () => close(true), "danger"))])) throw error;
		return api.call(method, path, { ...options, query: { moves: "allow" } });
	}
}

/// Saves an element of the project, unless somebody else has changed it since `original` was read. The ETag is that of
/// the whole project, so after a change of other elements the request is sent again with the newest. If the element
/// itself has changed, the user chooses. `load` reads it with its ETag, `define` picks what the form edits.
///
/// Resolves with the response, `"theirs"` to begin again from the newest, or `undefined` to go on editing.
export async function saveUnlessChanged(noun, path, body, { etag, original, load, define }) {
	for (;;) {
		try {
			return await change(path, { body, ifMatch: etag });
		} catch (error) {
			if (error.status !== 412) throw error;
			const newest = await load(), now = await define(newest.data);
			const choice = JSON.stringify(now) === JSON.stringify(original) ? "mine" : await askWhose(noun, original, now);
			if (choice !== "mine") return choice;
			etag = newest.etag;
		}
	}
}

const askWhose = async (noun, original, now) => {
	const { compared } = await import("./sentences.js");
	return dialog(`The ${noun} has changed meanwhile`, close => [
	h("p", `While you were editing, somebody else changed the ${noun}. Your changes are not saved yet.`),
	compared(original, now, ["When you began", "As it is now"]),
	h("div.buttons", button("Keep editing", () => close()), button("Start again from the newest", () => close("theirs")), button(noun === "experiment" ? "Save my changes, too" : "Save mine over it", () => close("mine"), "danger"))], "wide");
};

/// Sends a request that creates an element, or previews that, unless there is one with this key.
export async function create(method, noun, path, body, options) {
	try {
		return await change(path, { method, body, ifNoneMatch: "*", ...options });
	} catch (error) {
		if (error.status !== 412) throw error;
		const detail = `There is another ${noun} with this key. Choose another key, or edit that one.`;
		throw new api.Problem(412, { detail, pointer: "/key" }, error.request);
	}
}

/// The banner of a form that shows a draft, with a button to discard it.
export const restored = context => banner("", "What you typed is here again", h("p", "It was not saved when the page was left. ",
	button("Begin again", () => { context.draft.forget(); context.isChanged = () => false; context.reload(); }, "quiet")));

/// Asks for confirmation, then deletes an item.
export const confirmDelete = (screen, kind, name, text) => confirm(`Delete ${name}?`, h("p", text), {
	label: "Delete", danger: true, done: () => `Deleted the ${kind} ${name}.`, action: () => api.call("DELETE", api.path(screen, name)) });

/// A labelled control. `pointer` is the JSON pointer to its value in errors of the server.
export function field(label, input, { hint, pointer, after } = {}) {
	const id = input.id || newID("field");
	input.id = id;
	const notes = [hint && `${id}-hint`, `${id}-error`].filter(Boolean).join(" ");
	input.setAttribute("aria-describedby", notes);
	const element = h("div.field", h("label", { for: id }, label),
		h("div.control", input, after),
		hint && h("p.hint", { id: `${id}-hint` }, hint), h("p.error", { id: `${id}-error`, hidden: true }));
	return Object.assign(element, { input, pointer, isField: true });
}

export function select(options, value, properties = {}) {
	const element = h("select", properties, options.map(option => {
		const [key, label] = Array.isArray(option) ? option : [option, option];
		return h("option", { value: key, selected: key === value }, label);
	}));
	if (value !== undefined) element.value = value;
	return element;
}

/// Shows each fault at the field that its pointer names, and the others above the fields.
export function showProblem(error, fields, rest) {
	// Fields may be nested.
	const all = [...new Set(fields.flat(Infinity).filter(f => f instanceof Element).flatMap(f => [f, ...f.querySelectorAll(".field")]))].filter(f => f.isField);
	for (const each of all) setError(each, null);
	const left = [];
	let first = null;
	for (const { pointer, detail } of error.errors ?? []) {
		const match = all.filter(f => f.pointer && (pointer === f.pointer || pointer?.startsWith(f.pointer + "/")))
			.sort((a, b) => b.pointer.length - a.pointer.length)[0];
		if (!match) { left.push(detail); continue; }
		match.input = match.pick?.(pointer) ?? match.input;
		setError(match, detail);
		first ??= match;
	}
	if (!first || left.length) replace(rest, failure(error)); else rest.replaceChildren();
	if (first) first.input.focus();
	else rest.scrollIntoView?.({ block: "nearest" });
}

function setError(field, text) {
	const note = field.querySelector(".error");
	note.hidden = !text;
	note.textContent = text ?? "";
	if (text) field.input.setAttribute("aria-invalid", "true"); else field.input.removeAttribute("aria-invalid");
}

/// A field for several names of a list. Chosen names stand above the input. `isOpen` allows names that the list lacks.
export function picker(label, initial, options, { isOpen = false, ...rest } = {}) {
	const chosen = [...initial], chips = h("div.chips"), list = h("datalist", { id: newID("options") });
	const input = h("input", { list: list.id, placeholder: options.slice(0, 3).join(", "), onchange: () => { add(); }, onkeydown: event => { if (event.key === "Enter" && add()) event.preventDefault(); } });
	const typed = () => input.value.split(",").map(name => name.trim()).filter(name => name && (isOpen || options.includes(name)) && !chosen.includes(name));
	function add() {
		const found = typed();
		if (found.length === 0) return false;
		chosen.push(...found);
		input.value = "";
		draw();
		return true;
	}
	function draw() {
		replace(chips, chosen.map((name, index) => h("button.badge.chip", { label: `Remove ${name}`, onclick: () => { chosen.splice(index, 1); draw(); input.focus(); } }, name, icon("close"))));
		chips.hidden = chosen.length === 0;
		replace(list, options.filter(name => !chosen.includes(name)).slice(0, 500).map(name => h("option", { value: name })));
	}
	draw();
	const element = field(label, input, { ...rest, after: list });
	element.insertBefore(chips, element.children[1]);
	return Object.assign(element, { read: () => [...chosen, ...typed()] });
}

/// A select without a visible label.
export const choose = (label, options, value, set) => select(options, value, { label: label, onchange: e => set(e.target.value) });

export function searchField(label, value, onchange) {
	let timer;
	return h("div.search-field", icon("search"), h("input", { type: "search", value, label: label, placeholder: label,
		oninput: event => { clearTimeout(timer); const text = event.target.value; timer = setTimeout(() => onchange(text), 250); } }));
}

/// A table. A column is an array: its name, a function from a row to the content of its cell, its classes (`number`,
/// `row-actions`), the name by which `sorting` orders rows, and the content below its name. The first column names its row.
/// `groups` are names with their rows, in place of `rows`. On a phone each row is a card.
/// Roles are named, because a browser forgets those of elements that are laid out as cards.
export function table(caption, columns, rows, { sorting, groups, kind: tableKind } = {}) {
	const cell = (tag, role, [name, , kind], content, scope) => h(tag, { class: kind, scope, role, "data-label": tag === "td" && kind !== "row-actions" ? name : null }, tag === "td" && kind !== "row-actions" ? h("div.cell", content) : content);
	const heading = column => {
		const [name, , kind, by, below] = column;
		if (below) return cell("th", "columnheader", column, [name, below], "col");
		if (kind === "row-actions") return cell("th", "columnheader", column, h("span.hidden", name), "col");
		if (!sorting || !by) return cell("th", "columnheader", column, name, "col");
		const isChosen = sorting.by === by;
		const element = cell("th", "columnheader", column, h("button.sort", { onclick: () => sorting.sort(by) }, name, h("span", { "aria-hidden": "true" }, isChosen ? sorting.isDescending ? " ↓" : " ↑" : "")), "col");
		if (isChosen) element.setAttribute("aria-sort", sorting.isDescending ? "descending" : "ascending");
		return element;
	};
	const line = row => h("tr", { role: "row" }, columns.map((c, index) => index === 0 ? cell("th", "rowheader", c, c[1](row), "row") : cell("td", "cell", c, c[1](row))));
	return h("div", { class: `table ${tableKind ?? ""}`.trim(), tabindex: "0", role: "region", label: caption }, h("table", { role: "table" }, h("caption", caption),
		h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map(heading))),
		(groups ?? [[null, rows]]).map(([name, some]) => h("tbody", { role: "rowgroup" }, name && h("tr.group", { role: "row" }, h("th", { role: "columnheader", scope: "rowgroup", colspan: columns.length }, name)), some.map(line)))));
}

/// The buttons below a page of a long list. `turn` is called with -1 or 1.
export function pager(first, count, total, turn) {
	if (count >= total) return null;
	const step = (label, isDisabled, by) => h("button.button", { disabled: isDisabled, onclick: () => turn(by) }, label);
	return h("nav.pages", { label: "Pages" }, step("Previous", first === 0, -1), h("span", `${integer(first + 1)}–${integer(first + count)} of ${integer(total)}`), step("Next", first + count >= total, 1));
}

/// Shows a long list in pages; `render` receives the rows of one.
export function paged(rows, size, start, render, onpage) {
	const pages = Math.max(1, Math.ceil(rows.length / size));
	const element = h("div");
	const show = (number, isMove) => {
		number = Math.min(Math.max(1, number || 1), pages);
		const first = (number - 1) * size, part = rows.slice(first, first + size);
		replace(element, render(part), pager(first, part.length, rows.length, by => show(number + by, true)));
		if (isMove) {
			onpage?.(number);
			const buttons = element.querySelectorAll(".pages button");
			[...buttons].find(b => !b.disabled)?.focus();
		}
	};
	show(start);
	return element;
}

/// A table in pages, for the results of a search.
export const found = (caption, columns, rows, size = 25, start, onpage) => rows.length ? paged(rows, size, start, part => table(caption, columns, part), onpage) : empty("No match", "Change the search.");

/// Formats a value as lines of JSON.
export const lines = value => value == null ? [] : JSON.stringify(value, null, 2).split("\n");

/// Two values as JSON side by side, with the differing lines marked.
export function sideBySide(before, after, names = ["Before", "After"]) {
	const left = lines(before), right = lines(after);
	const rows = nearby(compare(left, right));
	const column = (name, side, index) => h("div.side", h("p.side-name", name),
		(index === 0 ? left : right).length === 0 ? h("p.faint", "nothing") :
		h("pre", { tabindex: "0" }, rows.map(row => h("span", { class: `line ${row[side] === null ? "gap" : row.same ? "" : index === 0 ? "removed" : "added"}` },
			row[side] ?? "", "\n"))));
	return h("div.sides", column(names[0], "left", 0), column(names[1], "right", 1));
}

/// Leaves out equal lines, except for three next to each difference.
function nearby(rows) {
	const near = rows.map((_, index) => rows.slice(Math.max(0, index - 3), index + 4).some(r => !r.same));
	return rows.flatMap((row, index) => near[index] ? [row] : near[index - 1] ?? true ? [{ left: "⋯", right: "⋯", same: true }] : []);
}

/// Aligns the lines of two texts by their longest common subsequence.
export function compare(left, right) {
	// If the texts are too long for the algorithm, all lines count as different.
	const isLong = left.length * right.length > 4e6;
	const length = Array.from({ length: isLong ? 0 : left.length + 1 }, () => new Uint32Array(right.length + 1));
	for (let i = length.length - 2; i >= 0; i -= 1) for (let j = right.length - 1; j >= 0; j -= 1)
		length[i][j] = left[i] === right[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
	const rows = [];
	let i = 0, j = 0, removed = [], added = [];
	const flush = () => {
		while (removed.length || added.length) rows.push({ left: removed.shift() ?? null, right: added.shift() ?? null });
	};
	while (i < left.length || j < right.length) {
		if (i < left.length && left[i] === right[j]) { flush(); rows.push({ left: left[i++], right: right[j++], same: true }); }
		else if (j >= right.length || (i < left.length && (isLong || length[i + 1][j] >= length[i][j + 1]))) removed.push(left[i++]);
		else added.push(right[j++]);
	}
	flush();
	return rows;
}

/// Saves a text as a file.
export function download(name, type, text) {
	const url = URL.createObjectURL(new Blob([text], { type }));
	const anchor = h("a", { href: url, download: name });
	document.body.append(anchor);
	anchor.click();
	anchor.remove();
	setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
