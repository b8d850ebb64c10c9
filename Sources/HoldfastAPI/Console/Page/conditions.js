// Conditions of audiences and segments: a form that edits them, and their description in words.
//
// The form edits a tree of rows with at most one level of groups. Other conditions are edited as JSON.

import { h, replace } from "./dom.js";
import * as api from "./api.js";
import { button, choose, field, iconButton } from "./parts.js";
import { integer, plural } from "./format.js";

const matches = {
	exact: "is", substring: "contains", exists: "has a value", gt: "is more than", ge: "is at least", lt: "is less than", le: "is at most",
	semver_eq: "is version", semver_gt: "is after version", semver_ge: "is at least version", semver_lt: "is before version", semver_le: "is at most version",
	in: "is one of", not_in: "is none of", starts_with: "begins with", ends_with: "ends with", matches: "matches",
};
const ordered = ["exact", "ge", "gt", "le", "lt", "exists"], either = ["exact", "exists"];
const ofType = { number: ordered, date: ordered, time: ordered, timestamp: ordered, boolean: either, country: either, selection: ["exact", "substring", "exists"] };

const isGroup = value => Array.isArray(value);

/// Describes conditions in words.
export function inWords(value, isInner = false) {
	if (value == null || (isGroup(value) && value.length === 0)) return "everybody";
	if (typeof value === "string") return `audience ${value}`;
	if (isGroup(value)) {
		const [first, ...rest] = value;
		if (first === "not") return `not (${inWords(rest[0])})`;
		const operands = ["and", "or"].includes(first) ? rest : value;
		const text = operands.map(o => inWords(o, operands.length > 1)).join(first === "and" ? " and " : " or ");
		return isInner && operands.length > 1 ? `(${text})` : text;
	}
	if (value.segment !== undefined) return `in segment ${value.segment}`;
	const match = value.match ?? "exact";
	return match === "exists" ? `${value.name} has a value` : `${value.name} ${matches[match] ?? match} ${JSON.stringify(value.value)}`;
}

/// The attributes and segments to choose from; empty if the token may not read them.
export async function vocabulary() {
	const load = name => api.get(`/v1/${name}`, null, { silent: true }).then(d => d[name], () => []);
	const [attributes, segments] = await Promise.all([load("attributes"), load("segments")]);
	return { attributes, segments };
}

/// A form for conditions, which shows how many users match. The returned element has `read()`, which returns the conditions, or
/// `null` for everybody, and `check()`, which marks incomplete conditions and returns the fault. `segment` is the name of the
/// segment that has the conditions.
export function conditionsForm(initial, { attributes, segments, segment, pointer = "/audience", required = false }) {
	let tree = toTree(initial);
	let raw = tree === undefined ? JSON.stringify(initial, null, 2) : null;
	tree ??= { all: true, rows: [] };
	const body = h("div.conditions"), size = h("p.note", { role: "status" });
	const stored = segment && JSON.stringify(read());
	let counting;
	const types = new Map(attributes.map(a => [a.name, a]));

	const draw = () => {
		replace(body, raw !== null ? rawForm() : group(tree, true));
		onchange();
	};

	function rawForm() {
		const area = h("textarea", { rows: 8, spellcheck: "false", class: "mono", value: raw, oninput: e => { raw = e.target.value; onchange(); } });
		return [field("Conditions as JSON", area, { hint: "In the format of a datafile’s audience. Leave it empty for everybody.", pointer }),
			button("Edit as a form", () => {
				const parsed = read();
				const next = toTree(parsed);
				if (parsed === undefined || next === undefined) return area.setAttribute("aria-invalid", "true");
				raw = null; tree = next; draw();
			}, "quiet")];
	}

	function group(node, isRoot) {
		const add = row => { node.rows.push(row); draw(); [...body.querySelectorAll("li")].at(-1).querySelector("select")?.focus(); };
		return h(isRoot ? "div" : "div.inner",
			node.rows.length > 1 && h("div.join", choose("How the conditions are joined", [["and", "All of these"], ["or", "Any of these"]], node.all ? "and" : "or", value => { node.all = value === "and"; draw(); })),
			isRoot && node.rows.length === 0 && h("p.note", required ? "No condition yet." : "Everybody."),
			h("ul", node.rows.map((row, index) => h("li", row.rows ? group(row, false) : condition(row),
				iconButton("close", "Remove this condition", () => { node.rows.splice(index, 1); draw(); })))),
			h("div.adders",
				attributes.length > 0 && button("Add an attribute", () => add(blank(attributes[0].name)), "quiet"),
				segments.length > 0 && button("Add a segment", () => add({ segment: segments[0].name }), "quiet"),
				isRoot && button("Add a group", () => add({ all: !node.all, rows: [] }), "quiet"),
				isRoot && button("Edit as JSON", () => { raw = JSON.stringify(read(), null, 2); if (raw === "null") raw = ""; draw(); }, "quiet"),
				attributes.length === 0 && segments.length === 0 && h("span.note", "Define attributes or segments to choose from them.")));
	}

	const blank = name => ({ name, match: (ofType[types.get(name)?.type] ?? ["exact"])[0], value: "" });

	function condition(row) {
		const negate = choose("Negation", [["", "where"], ["not", "where not"]], row.not ? "not" : "", value => { row.not = value === "not"; onchange(); });
		if (row.segment !== undefined) {
			const names = segments.map(s => s.name);
			if (!names.includes(row.segment)) names.push(row.segment);
			return h("div.condition", negate, h("span", "in segment"), choose("Segment", names, row.segment, value => { row.segment = value; onchange(); }));
		}
		const names = attributes.map(a => a.name);
		if (!names.includes(row.name)) names.push(row.name);
		const type = types.get(row.name)?.type;
		const possible = [...(ofType[type] ?? Object.keys(matches).filter(m => m !== "in" && m !== "not_in"))];
		if (!possible.includes(row.match)) possible.push(row.match);
		return h("div.condition", negate,
			choose("Attribute", names, row.name, value => { Object.assign(row, blank(value)); draw(); }),
			choose("Comparison", possible.map(m => [m, matches[m] ?? m]), row.match, value => { row.match = value; draw(); }),
			row.match !== "exists" && valueInput(row, types.get(row.name)));
	}

	function valueInput(row, attribute) {
		const set = value => { row.value = value; onchange(); };
		const type = attribute?.type;
		if (type === "boolean") {
			if (typeof row.value !== "boolean") row.value = true;
			return choose("Value", ["true", "false"], String(row.value), value => set(value === "true"));
		}
		if (type === "selection") {
			const values = [...attribute.values];
			if (!values.includes(row.value)) { if (row.value === "") row.value = values[0]; else values.push(row.value); }
			return choose("Value", values, row.value, set);
		}
		const isNumber = type === "number" || typeof row.value === "number" || ["gt", "ge", "lt", "le"].includes(row.match) && !["date", "time", "timestamp"].includes(type);
		return h("input", { label: "Value", type: isNumber ? "number" : "text", step: "any", value: row.value, placeholder: { country: "de", date: "2026-01-31", time: "08:30", timestamp: "2026-01-31T12:00:00Z" }[type], oninput: e => e.target.removeAttribute("aria-invalid") ?? set(isNumber ? (e.target.value === "" ? "" : Number(e.target.value)) : e.target.value) });
	}

	function read() {
		if (raw === null) return fromTree(tree);
		if (raw.trim() === "") return null;
		try { return JSON.parse(raw); } catch { return undefined; }
	}

	const blanks = () => [...body.querySelectorAll("input[aria-label=Value]")].filter(input => input.value.trim() === "");

	function check() {
		if (read() === undefined) return "The conditions must be JSON.";
		const [first, ...others] = blanks();
		for (const input of [first, ...others]) input?.setAttribute("aria-invalid", "true");
		first?.focus();
		return first ? "A condition needs a value." : null;
	}

	/// Counts the users once the conditions have not changed for a moment. Readers may only count those of a stored segment.
	function onchange() {
		clearTimeout(counting);
		const audience = read();
		size.textContent = "";
		if (!audience || blanks().length) return;
		const timer = counting = setTimeout(async () => {
			const count = JSON.stringify(audience) === stored ? api.get(api.path("segments", segment), { size: true })
				: api.call("POST", "/v1/audiences/size", { body: { audience } }).then(r => r.data);
			const text = await count.then(c => `${integer(c.size)} of ${plural(c.examined, "user")} with stored attributes fit now.`, e => e.message);
			if (timer === counting) size.textContent = text;
		}, 600);
	}

	draw();
	return Object.assign(h("div", body, size), { read, check });
}

/// Converts conditions with at most one level of groups to rows of the form; `undefined` for others.
function toTree(value) {
	if (!value || (isGroup(value) && value.length === 0)) return { all: true, rows: [] };
	const row = toRow(value);
	return row ? { all: true, rows: [row] } : toGroup(value, o => toRow(o) ?? toGroup(o, toRow));
}

/// Converts a group, whose operands are converted by `read`; `undefined` if it has others.
function toGroup(value, read) {
	if (!isGroup(value) || value[0] === "not") return undefined;
	const rows = (["and", "or"].includes(value[0]) ? value.slice(1) : value).map(read);
	return rows.includes(undefined) ? undefined : { all: value[0] === "and", rows };
}

/// Converts a condition on an attribute or segment to a row; `undefined` for others.
function toRow(value) {
	if (isGroup(value)) {
		if (value[0] !== "not" || value.length !== 2) return undefined;
		const row = toRow(value[1]);
		return row && !row.not ? { ...row, not: true } : undefined;
	}
	if (typeof value !== "object" || !value) return undefined;
	if (typeof value.segment === "string" && Object.keys(value).length === 1) return { segment: value.segment };
	if ((value.type ?? "custom_attribute") !== "custom_attribute" || typeof value.name !== "string") return undefined;
	// Lists, and conditions without regard to case, are edited as JSON.
	if (isGroup(value.value) || value.ignore_case) return undefined;
	return { name: value.name, match: value.match ?? "exact", value: value.value };
}

/// Converts rows of the form to conditions; `null` for none.
function fromTree(node) {
	const rows = node.rows.map(row => {
		if (row.rows) return row.rows.length ? fromTree(row) : undefined;
		const plain = row.segment !== undefined ? { segment: row.segment }
			: { type: "custom_attribute", name: row.name, match: row.match, ...(row.match === "exists" ? {} : { value: row.value }) };
		return row.not ? ["not", plain] : plain;
	}).filter(row => row !== undefined);
	if (rows.length === 0) return null;
	return rows.length === 1 ? rows[0] : [node.all ? "and" : "or", ...rows];
}
