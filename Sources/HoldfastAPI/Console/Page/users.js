// A user: what the server keeps, what it would answer now and why, and what admins did.

import { h, replace, icon } from "./dom.js";
import * as api from "./api.js";
import { badge, button, card, commandLine, confirm, empty, facts, field, here, link, moment, page, paged, pending, searchField, section, select, submitButton, table, to, dash } from "./parts.js";
import { plural } from "./format.js";
import { all } from "./experiments.js";
import { entryList } from "./audit.js";

export async function show(context) {
	return context.parts.length === 0 ? lookup() : user(context, context.parts.join("/"));
}

function lookup() {
	const input = h("input", { type: "search", label: "User id", placeholder: "User id", required: true, "data-focus": true });
	return page("Users", { below: "See what a user has, what they would get now and why, and change it." },
		h("form.lookup", { onsubmit: event => { event.preventDefault(); if (input.value) location.hash = to("users", input.value); } },
			h("div.search-field", icon("search"), input), submitButton("Look up")),
		empty("Look somebody up", "By the id that your apps send. With curl:", `curl ${here("v1/profiles/ann?detail=true")}`));
}

const profilePath = id => api.path("profiles", id);
const experimentPath = (id, experiment) => api.path("profiles", id, "experiments", experiment);

async function user(context, id) {
	const [profile, experiments] = await Promise.all([profileOf(id), all({ silent: true })]);
	const state = { profile, experiments };
	const assignments = h("div");
	const log = pending(() => auditOf(id));
	const refresh = async () => {
		state.profile = await profileOf(id);
		drawAssignments();
		log.reload();
	};
	const drawAssignments = () => replace(assignments, assignmentTable(context, id, state, refresh));
	drawAssignments();
	context.onChange(async () => { state.experiments = await all({ silent: true }); await refresh(); });
	return page(id, {
		above: link(to("users"), "Users"),
		below: profile ? plural(Object.keys(profile.experiment_bucket_map).length, "assignment") : "No profile is stored of this user.",
		actions: [
			button("Merge…", () => merge(id).then(done => done && refresh())),
			button("Erase…", () => erase(id).then(done => done && context.reload()), "danger quiet")],
	}, section("Experiments", { note: "What is stored, beside what the server would answer now." }, assignments),
	h("div.columns",
		section("Attributes", {}, pending(() => attributesOf(id))),
		section("Exposures and goals", {}, pending(() => events(id)))),
	section("What admins did", { actions: link(`#/audit?user_id=${encodeURIComponent(id)}`, "In the audit log") }, log));
}

async function profileOf(id) {
	try { return await api.get(profilePath(id), { detail: "true" }); } catch (error) {
		if (error.status === 404) return null;
		throw error;
	}
}

function assignmentTable(context, id, state, refresh) {
	const map = state.profile?.experiment_bucket_map ?? {};
	const byID = new Map(state.experiments.map(e => [e.id, e]));
	const has = Object.entries(map).map(([experiment, assignment]) => ({ id: experiment, experiment: byID.get(experiment), assignment }));
	has.sort((a, b) => (a.experiment?.key ?? `~${a.id}`).localeCompare(b.experiment?.key ?? `~${b.id}`));
	const others = state.experiments.filter(e => e.status === "Running" && !map[e.id]).map(experiment => ({ id: experiment.id, experiment }));
	const rows = [...has, ...others];
	if (rows.length === 0) return empty("No experiment yet", "Make one, and see here what this user would get.", null, h("a.button.primary", { href: "#/experiments?new=1" }, "New experiment"));
	const answers = new Map();
	const columns = [
		["Experiment", r => r.experiment ? h("a.name", { href: to("experiments", r.experiment.key) }, r.experiment.key) : h("span", h("span.name", r.id), h("span.faint.small", " not in the datafile")), "wide"],
		["Has", r => r.assignment ? h("strong", variationName(r)) : h("span.faint", "nothing")],
		["Source", r => r.assignment ? badge(r.assignment.source, r.assignment.source === "override" ? "warn" : "") : dash()],
		["Since", r => r.assignment ? moment(r.assignment.assigned_at) : dash()],
		["Expires", r => !r.assignment ? dash() : r.assignment.expires_at ? moment(r.assignment.expires_at) : h("span.faint", "never")],
		["Would get now", r => answerCell(r)],
		["Actions", r => h("div",
			button("Override…", () => override(id, r).then(done => done && refresh()), "quiet"),
			r.assignment && button(r.assignment.source === "override" ? "Remove override…" : "Remove…", () => remove(id, r).then(done => done && refresh()), "quiet")), "row-actions"],
	];

	function answerCell(row) {
		if (!row.experiment) return dash();
		if (!answers.has(row.id)) answers.set(row.id, answer(id, row.experiment));
		const place = h("div.answer", h("span.faint", "…"));
		answers.get(row.id).then(found => {
			const differs = row.assignment && found.variation_id !== row.assignment.variation_id;
			replace(place, h("details", h("summary", found.variation_id === null ? h("span.faint", "nothing") : h("strong", found.variation_key ?? found.variation_id),
				differs && badge("differs", "warn"), h("span.why", "why")), reasonsOf(found)));
		}, error => { if (error.name !== "AbortError") replace(place, h("span.faint", { title: error.message }, error.message)); });
		return place;
	}

	const content = h("div"), search = context.query.get("search") ?? "";
	const draw = text => {
		const found = rows.filter(r => (r.experiment?.key ?? r.id).toLowerCase().includes(text.toLowerCase()));
		replace(content, found.length ? paged(found, 25, 1, part => table("Experiments of the user", columns, part)) : empty("No experiment fits"));
	};
	draw(search);
	return [rows.length > 25 && h("div.filters", searchField("Search the user’s experiments", search, text => { context.setQuery({ search: text }); draw(text); })), content];
}

const variationName = row => row.experiment?.variations.find(v => v.id === row.assignment.variation_id)?.key ?? row.assignment.variation_id;

/// What an assignment would give now, with the steps that lead to it. Nobody is enrolled by asking.
function answer(id, experiment) {
	const options = { sdkKey: experiment.sdk_key };
	return api.get(`${experimentPath(id, experiment.key)}/explain`, null, options)
		.catch(error => error.isUnknownRoute ? api.get("/v1/assign", { user_id: id, experiment: experiment.key }, options) : Promise.reject(error));
}

const readable = text => text.replaceAll("_", " ");

/// The steps of an explanation in words, or the reasons of an older server.
function reasonsOf({ steps, reasons }) {
	return h("ol.reasons", steps ? steps.map(s => h("li", h("strong", readable(s.step)), `: ${readable(s.result)}`, s.variation_key && ` ${s.variation_key}`, s.status && ` (${s.status})`,
		Number.isFinite(s.bucket_value) && ` (bucket ${s.bucket_value})`, s.audience && h("ul", explained(s.audience)))) : reasons.map(r => h("li", r)));
}

/// A condition with whether the user meets it and why.
function explained(c) {
	const what = c.attribute ? `${c.attribute} ${c.match} ${JSON.stringify(c.value) ?? ""}${"actual" in c ? `, is ${JSON.stringify(c.actual)}` : ""}` : c.segment ? `segment ${c.segment}` : c.operator ?? "audience";
	return h("li", `${c.result === null ? "unknown" : c.result ? "met" : "not met"}: ${what}`, c.conditions && h("ul", c.conditions.map(explained)));
}

async function attributesOf(id) {
	const found = Object.entries((await api.get(`${profilePath(id)}/attributes`, null)).attributes ?? {});
	if (found.length === 0) return empty("No attributes", "Apps set them:", `curl -X PATCH ${here(`v1/profiles/${encodeURIComponent(id)}/attributes`)} -d '{"country":"de"}'`);
	return card(facts(found.map(([name, value]) => [name, Array.isArray(value) ? value.join(", ") : String(value)])));
}

/// There is no route for the events of one user; the exports have those of all.
async function events(id) {
	const line = JSON.stringify(id).replaceAll("'", "'\\''");
	return card(h("p.note", "The server exports exposures and goals of all users, one a line. This finds the user’s (with a token of the scope admin):"), commandLine(`for kind in exposures events; do curl -s ${here("v1/$kind")} | grep -F '"user_id":${line}'; done`));
}

async function auditOf(id) {
	const { entries } = await api.get("/v1/audit", { user_id: id, limit: 20 });
	return entries.length ? entryList(entries) : empty("Nothing", "Overrides, removals and merges of this user appear here.");
}

async function override(id, row) {
	const experiment = row.experiment;
	const options = experiment ? experiment.variations.map(v => [v.id, v.key]) : [];
	const input = experiment ? select(options, row.assignment?.variation_id ?? options[0]?.[0]) : h("input", { required: true, value: row.assignment?.variation_id ?? "" });
	const choice = field("Variation", input, { pointer: "/variation_id" });
	const name = experiment?.key ?? row.id;
	return confirm(`Override ${name} for ${id}?`,
		h("p", "The user gets this variation from now on, whatever apps save, until an admin removes the override. They no longer count in the results."), {
			label: "Override", fields: [choice],
			done: ({ data }) => `${id} now has ${data.variation_key ?? data.variation_id} in ${name}.`, action: () => api.call("PUT", experimentPath(id, name), { body: { variation_id: input.value }, sdkKey: experiment?.sdk_key }),
		});
}

async function remove(id, row) {
	const name = row.experiment?.key ?? row.id;
	return confirm(`Remove ${variationName(row)} from ${id}?`,
		h("p", `The assignment in ${name} is deleted. When the user is next asked for, they are given a variation anew: by their hash, if the experiment runs and they fit its audience.`), {
			label: "Remove", danger: true, done: () => `Removed the assignment of ${id} in ${name}.`, action: () => api.call("DELETE", experimentPath(id, name), { sdkKey: row.experiment?.sdk_key }),
		});
}

async function merge(id) {
	const from = field("From", h("input", { required: true }), { hint: "The id that the user had before they logged in. Its profile is erased.", pointer: "/from" });
	const rule = field("Where both have a variation", select([["keep", `${id} keeps theirs`], ["replace", "take that of the other profile"]], "keep"), { pointer: "/on_conflict" });
	return confirm(`Merge another profile into ${id}?`,
		h("p", "Its assignments, exposures, goals and attributes join this user’s, and nothing is counted twice. This cannot be undone."), {
			label: "Merge", fields: [from, rule], danger: true,
			done: () => `Merged ${from.input.value.trim()} into ${id}.`, action: () => api.call("POST", `${profilePath(id)}/merge`, { body: { from: from.input.value.trim(), on_conflict: rule.input.value } }),
		});
}

async function erase(id) {
	const keep = h("input", { type: "checkbox" });
	return confirm(`Erase ${id}?`, [
		h("p", "Their profile, attributes, exposures and goals are deleted, they leave every total, and the audit log forgets their id. This cannot be undone."),
		h("label.check", keep, "Keep what was counted in the totals of results")], {
		label: "Erase", danger: true, word: id,
		done: () => `Erased ${id}.`, action: () => api.call("DELETE", profilePath(id), { query: keep.checked ? { keep_totals: "true" } : {} }),
	});
}
