// Ctrl+K: finds screens, experiments, flags and users.

import { h, replace, icon, newID } from "./dom.js";
import * as api from "./api.js";
import { to } from "./parts.js";

let isOpen = false;

/// Opens the palette. `text` was typed while it was loaded.
export function openPalette(screens, text) {
	if (isOpen || document.querySelector("dialog[open]")) return;
	isOpen = true;
	const id = newID("palette");
	const opener = document.activeElement;
	let entries = [], chosen = 0, named = [], timer, asked = 0;
	const list = h("ul", { id, role: "listbox", label: "Results" });
	const input = h("input", { type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": id, "aria-autocomplete": "list",
		label: "Find users, experiments, flags and screens", placeholder: "Find users, experiments, flags, screens",
		oninput: () => { chosen = 0; show(); clearTimeout(timer); timer = setTimeout(search, 120); }, onkeydown: key });
	const element = h("dialog.palette", { label: "Find", onclose: () => {
		isOpen = false;
		element.remove();
		if (opener?.isConnected) opener.focus();
	}, onclick: event => { if (event.target === element) element.close(); } }, h("div.palette-input", icon("search"), input), list);

	function key(event) {
		if (event.key === "ArrowDown" || event.key === "ArrowUp") {
			event.preventDefault();
			chosen = (chosen + (event.key === "ArrowDown" ? 1 : -1) + entries.length) % Math.max(1, entries.length);
			mark();
		} else if (event.key === "Enter") {
			event.preventDefault();
			go(entries[chosen]);
		}
	}

	function go(entry) {
		if (!entry) return;
		element.close();
		location.hash = entry.hash;
	}

	/// Draws the entries for the text.
	function show() {
		const text = input.value.trim(), wanted = text.toLowerCase();
		const rank = name => { const at = name.toLowerCase().indexOf(wanted); return at < 0 ? -1 : at === 0 ? 2 : 1; };
		// The server also looks at tags, owners and texts; what is found by its name or key comes first.
		const found = named.map(e => ({ ...e, rank: Math.max(rank(e.name), rank(e.key)) })).filter(e => e.rank > 0 || e.q === text).sort((a, b) => b.rank - a.rank);
		entries = [...found.slice(0, 8),
			...screens.map(s => ({ name: s.name, kind: "Screen", icon: s.icon, hash: to(s.path) })).filter(e => rank(e.name) > 0)];
		if (text) entries.push({ name: text, kind: "Look up the user", icon: "user", hash: to("users", text) });
		replace(list, entries.map((entry, index) => h("li", { id: `${id}-${index}`, role: "option", onclick: () => go(entry),
			onmousemove: () => { if (chosen !== index) { chosen = index; mark(); } } },
			icon(entry.icon), h("span.palette-name", entry.name, entry.more && h("span.faint.small", ` ${entry.more}`)), h("span.faint", entry.kind))));
		mark();
	}

	/// Marks the chosen entry.
	function mark() {
		[...list.children].forEach((item, index) => item.setAttribute("aria-selected", String(index === chosen)));
		list.children[chosen]?.scrollIntoView({ block: "nearest" });
		if (entries.length) input.setAttribute("aria-activedescendant", `${id}-${chosen}`); else input.removeAttribute("aria-activedescendant");
	}

	/// Asks the server for experiments and flags with the text in their key, name or tags.
	async function search() {
		const q = input.value.trim(), number = asked += 1;
		const find = async (path, kind, symbol) => {
			try {
				const elements = (await api.get(`/v1/${path}`, { q, limit: 40 }, { silent: true }))[path];
				return elements.map(e => ({ name: e.name ?? e.key, more: [e.name && e.key, ...e.tags ?? []].filter(Boolean).join(", "), key: e.key, kind: e.status && e.status !== "running" ? `${kind} · ${e.status.replaceAll("_", " ")}` : kind, icon: symbol, q, hash: to(path, e.key) }));
			} catch { return []; /* Without experiments and flags there is nothing to find. */ }
		};
		const found = (await Promise.all([find("experiments", "Experiment", "experiment"), find("flags", "Flag", "flag")])).flat();
		if (number !== asked || !element.open) return;
		named = found;
		show();
	}

	input.value = text;
	document.body.append(element);
	element.showModal();
	input.focus();
	show();
	search();
}
