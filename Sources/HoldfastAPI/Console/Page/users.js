// A user: the stored profile, the decisions that the server would make now and why, and the changes by admins.

import { h, replace, icon } from "./dom.js";
import * as api from "./api.js";
import { badge, banner, button, confirm, doing, download, empty, failure, field, here, lazily, link, moment, newLink, older, page, pager, pending, searchField, section, select, submitButton, table, to, dash } from "./parts.js";
import { decimal, exactTime, integer, plural, time } from "./format.js";
import { named } from "./experiments.js";
import { entryList, namedIn } from "./audit.js";

export async function show(context) {
	return context.parts.length === 0 ? lookup(context) : user(context, context.parts.join("/"));
}

/// Sends the reads of a screen before it is shown.
export function ahead({ parts }) {
	if (parts.length > 0) api.ahead(profilePath(parts.join("/")), { detail: "true" });
}

/// The screen that finds a user.
function lookup(context) {
	const found = h("div");
	let timer, asked;
	const search = text => {
		if (text === asked) return;
		asked = text;
		context.setQuery({ search: text });
		replace(found, text ? beginning(text) : pending(recent));
	};
	const input = h("input", { type: "search", label: "User id", placeholder: api.mayAll("admin") ? "Beginning of a user id" : "User id", required: true, "data-focus": true, value: context.query.get("search") ?? "",
		oninput: () => { clearTimeout(timer); timer = setTimeout(() => { if (api.mayAll("admin") && !context.signal.aborted) search(input.value); }, 250); } });
	if (api.mayAll("admin")) search(input.value);
	return page("Users", { below: "See what a user has, what they would get now and why, and change it." },
		h("form.lookup", { onsubmit: event => { event.preventDefault(); if (input.value) location.hash = to("users", input.value); } },
			h("div.search-field", icon("search"), input), submitButton("Look up")),
		api.mayAll("admin") ? found : empty("Look up a user", "By the id that your apps send. With curl:", `curl ${here("v1/profiles/ann?detail=true")}`));
}

/// The users of the last exposures.
async function recent() {
	const { users } = await api.get("/v1/users/recent", { limit: 20 });
	return users.length === 0 ? empty("No user yet", "Users appear here once apps report exposures.")
		: section("Recent users", { note: "Who was exposed to an experiment last." }, table("Users of the last exposures", [["User", u => link(to("users", u.user_id), h("span.name", u.user_id)), "wide"],
			["Saw", u => link(to("experiments", u.experiment_key), u.experiment_key)], ["When", u => moment(u.exposed_at)]], users));
}

/// The users whose ids begin with a text.
const beginning = prefix => section("Users", { note: `Ids that begin with “${prefix}”, in the same case.` }, older(async after => {
	const page = await api.get("/v1/users", { prefix, after, limit: 25 });
	return { rows: page.users, next: page.next };
}, rows => rows.length === 0 ? empty("No match", "Only users of whom a profile or attributes are stored are found.")
	: table("Found users", [["User", u => link(to("users", u.user_id), h("span.name", u.user_id)), "wide"], ["Assignments", u => integer(u.assignments), "number"]], rows)));

const profilePath = id => api.path("profiles", id);
const experimentPath = (id, experiment) => api.path("profiles", id, "experiments", experiment);

/// The screen of one user.
async function user(context, id) {
	const profile = await profileOf(id), state = { profile };
	const assignments = h("div"), attributes = pending(() => attributesOf(id));
	const log = api.mayAll("admin") && pending(() => auditOf(id));
	const refresh = async () => {
		state.profile = await profileOf(id);
		drawAssignments();
		if (log) log.reload();
	};
	const drawAssignments = () => replace(assignments, experimentsOf(context, id, state, refresh));
	drawAssignments();
	context.onChange(refresh);
	return page(id, {
		above: link(to("users"), "Users"),
		below: profile ? plural(Object.keys(profile.experiment_bucket_map).length, "assignment") : "No profile of this user is stored.",
		actions: [
			api.mayAll("admin") && button("Export", async () => download(`${id}.json`, "application/json", (await api.call("GET", `${profilePath(id)}/export`, { text: true })).data), "quiet"),
			doing("Merge…", () => merge(id), refresh, "", "write"),
			api.mayAll("admin") && doing("Erase…", () => erase(id), context.reload, "danger quiet")],
	}, receipts.has(id) && receiptOf(id), section("Experiments", { note: "What is stored, and what the server would decide now." }, assignments),
	section("Flags", { note: "The value of each flag by what is stored of the user. Apps that send other attributes may get others. Nothing is stored by looking." }, flagsOf(context, id)),
	h("div.columns",
		h("div", api.may("attributes") && section("Attributes", { actions: doing("Edit…", () => editAttributes(id), attributes.reload, "quiet", "client") }, attributes), section("Exposures", { note: "The first one to each experiment." }, exposures(id))),
		section("Goals reached", {}, goals(id))),
	api.mayAll("admin") && section("What admins did", { actions: link(`#/audit?user_id=${encodeURIComponent(id)}`, "In the audit log") }, log),
	api.mayAll("admin") && section("Everything that is stored", { note: "As the export has it." }, lazily("Show", () => pending(async () => stored(id, await api.get(`${profilePath(id)}/export`))))));
}

/// The value of each flag, in pages of the server. Experiments, which are flags, too, have a table of their own.
function flagsOf(context, id) {
	const content = h("div");
	const draw = text => replace(content, older(async after => {
		const page = await api.get(`${profilePath(id)}/evaluations`, { defined_by: "flag", q: text, after, limit: 25 }).catch(error => {
			// A new server has no project.
			if (error.status !== 404) throw error;
			return { evaluations: [], next: null };
		});
		return { rows: page.evaluations, next: page.next };
	}, rows => rows.length === 0 ? empty(text ? "No match" : "No flag yet", text && "Change the search.")
		: [(rows.length > 24 || text) && h("div.filters", searchField("Search the user’s flags", text, draw)), table("Flags of the user", [["Flag", f => link(to("flags", f.flag_key), h("span.name", f.flag_key)), "wide"], ["Value", f => h("code", JSON.stringify(f.value)), "wrap"],
			["Variation", f => f.variation_key ?? dash()], ["Because", f => [reasons[f.reason] ?? f.reason, f.experiment_id && f.rule_key && h("div.small.faint", f.rule_key)], "wrap"]], rows)]));
	draw("");
	return content;
}

const reasons = {
	targeted: "a targeted rollout fits", experiment: "an experiment would enroll them", sticky: "enrolled already", override: "an admin set it", whitelist: "the datafile lists them",
	holdout: "a holdout keeps them out", default: "no rule fits", disabled: "the flag is off", error: "no decision could be made",
};

/// All that is known of the user, part by part.
function stored(id, everything) {
	const count = value => Array.isArray(value) ? value.length : value && typeof value === "object" ? Object.keys(value).length : value == null ? 0 : 1;
	const parts = Object.entries(everything).filter(([name]) => !["user_id", "exported_at"].includes(name));
	return [table("Parts of the export", [["Part", p => h("span.name", readable(p[0]))], ["Entries", p => integer(count(p[1])), "number"]], parts),
		h("pre.document", { tabindex: "0" }, JSON.stringify(everything, null, 2).slice(0, 200_000))];
}

async function profileOf(id) {
	try { return await api.get(profilePath(id), { detail: "true" }); } catch (error) {
		if (error.status === 404) return null;
		throw error;
	}
}

/// The assignments of the user, the newest first, and the running experiments without an assignment; each in pages.
function experimentsOf(context, id, state, refresh) {
	const map = state.profile?.experiment_bucket_map ?? {}, ids = Object.keys(map).sort((a, b) => map[b].assigned_at.localeCompare(map[a].assigned_at));
	const answers = new Map();
	const name = ["Experiment", r => r.experiment ? h("a.name", { href: to("experiments", r.experiment.key) }, r.experiment.key) : h("span", h("span.name", r.id), h("span.faint.small", " not in the datafile")), "wide"];
	const actions = ["Actions", r => h("div",
		doing("Override…", () => override(id, r), refresh, "quiet"),
		r.assignment && doing(r.assignment.source === "override" ? "Remove override…" : "Remove…", () => remove(id, r), refresh, "quiet")), "row-actions"];
	const columns = [
		name,
		["Has", r => h("strong", { title: r.assignment.variation_id }, variationName(r))],
		["Would get now", r => answerCell(r)],
		["Source", r => [badge(r.assignment.source, r.assignment.source === "override" ? "warn" : ""), originOf(r)]],
		["Since", r => [moment(r.assignment.assigned_at), h("div.small.faint", r.assignment.expires_at ? ["until ", moment(r.assignment.expires_at)] : "never expires")]],
		actions,
	];

	function answerCell(row) {
		if (!row.experiment) return dash();
		if (!answers.has(row.id)) answers.set(row.id, answer(id, row.experiment));
		const place = h("div.answer", h("span.faint", "…"));
		answers.get(row.id).then(found => {
			const differs = row.assignment && found.variation_id !== row.assignment.variation_id;
			replace(place, h("details", h("summary", found.variation_id === null ? h("span.faint", "nothing") : h("strong", found.variation_key ?? found.variation_id),
				differs && badge("differs", "warn"), h("span.why", "why")), h("p.because", because(found, row.experiment)), reasonsOf(found)));
		}, error => { if (error.name !== "AbortError") replace(place, h("span.faint", { title: error.message }, error.message)); });
		return place;
	}

	const size = 25, some = 10;
	/// The user's experiments whose names have the text. Only those that are shown are read.
	const ofUser = async (text, first) => {
		const fitting = text ? new Set((await api.list(`/v1/experiments?q=${encodeURIComponent(text)}`, "experiments", { silent: true })).map(e => e.id)) : null;
		const all = ids.filter(i => !fitting || fitting.has(i) || i.includes(text)), page = all.slice(first, first + size), experiments = await named(page);
		return { total: all.length, rows: page.map(i => ({ id: i, experiment: experiments.get(i), assignment: map[i] })) };
	};
	const others = async (text, first) => {
		try {
			const { total, experiments } = await api.get("/v1/overview", { q: text, status: "running", sort: "name", order: "asc", offset: first || null, limit: some }, { silent: true });
			return { total, count: experiments.length, rows: experiments.filter(e => !map[e.id]).map(experiment => ({ id: experiment.id, experiment })) };
		} catch (error) {
			// A new server has no datafile.
			if (error.status !== 404) throw error;
			return { total: 0, rows: [] };
		}
	};
	const search = context.query.get("search") ?? "";
	return [ids.length > 0 && searched("Search the user’s experiments", size, ofUser, rows => table("Experiments of the user", columns, rows), search, text => context.setQuery({ search: text })),
		searched("Search the other experiments", some, others, (rows, total, text) => total > 0 && (rows.length > 0 || total > some) ? [h("h3", "Other running experiments"), rows.length ? table("Other running experiments", [name, ["Would get now", r => answerCell(r)], actions], rows) : h("p.note", "The user has a variation in all of these.")]
			: ids.length === 0 && !text && empty("No experiment yet", "Create one, and see here what this user would get.", null, newLink("experiments", "experiment")))];
}

/// A list in pages, with a search field if there is more than one.
function searched(label, size, load, render, text = "", ontext) {
	const content = h("div"), box = h("div");
	let asked = 0;
	const show = async first => {
		const number = asked += 1, { total, rows, count = rows.length } = await load(text, first);
		if (number !== asked) return;
		if (total > size && !box.firstChild || text && !box.firstChild) box.append(h("div.filters", searchField(label, text, now => { text = now; ontext?.(now); turn(0); })));
		replace(content, total === 0 && text ? empty("No match", "Change the search.") : render(rows, total, text), pager(first, count, total, by => turn(first + by * size, true)));
	};
	const turn = (first, isMove) => show(first).then(() => { if (isMove) content.querySelector(".pages button:enabled")?.focus(); }, error => { if (error.name !== "AbortError") replace(content, failure(error)); });
	return pending(async () => { await show(0); return [box, content]; });
}

/// The author and reason of an override, and the variation that it covers.
function originOf({ experiment, assignment: { author, reason, beneath } }) {
	const covered = beneath && (experiment?.variations.find(v => v.id === beneath.variation_id)?.key ?? beneath.variation_id);
	const parts = [author && `by ${author}`, reason && `“${reason}”`, covered && `over ${covered}`].filter(Boolean);
	return parts.length > 0 && h("div.faint.small", parts.join(", "));
}

const variationName = row => row.experiment?.variations.find(v => v.id === row.assignment.variation_id)?.key ?? (row.experiment ? "a removed variation" : row.assignment.variation_id);

/// The variation that the user would get now, with the steps of the decision. Nothing is stored.
const answer = (id, experiment) => api.get(`${experimentPath(id, experiment.key)}/explain`, null, { sdkKey: experiment.sdk_key });

const readable = text => text.replaceAll("_", " ");

/// The step that decided, as a sentence: "Not in: only 5% of users are enrolled, and this one is outside."
function because({ steps, variation_key: key, variation_id: id }, experiment) {
	const last = steps.at(-1) ?? {}, name = key ?? id, part = `only ${decimal(experiment.traffic)}% of users are enrolled`;
	const sentences = {
		"status not_running": () => `Not in: the experiment is ${readable(last.status ?? "not running")}.`,
		"forced_variation applies": () => `Gets ${name}: it was forced for a test.`, "override applies": () => `Gets ${name}: an admin set it.`,
		"whitelist applies": () => `Gets ${name}: the datafile lists this user.`, "stored_assignment applies": () => `Keeps ${name}, which is stored since ${time(last.assigned_at)}.`,
		"audience excludes": () => "Not in: outside the audience.", "enrollment closed": () => "Not in: enrollment is closed, and the user was not enrolled before.",
		"group other_experiment": () => "Not in: another experiment of the same group has this user.", "group no_experiment": () => "Not in: no experiment of the group has this user.",
		"bucketing outside_traffic": () => `Not in: ${part}, and this one is outside.`, "bucketing in_variation": () => `Would get ${name}: by the hash of the id.`,
		"prediction outside_traffic": () => `Not in: ${part}, and this one is outside.`, "prediction in_variation": () => `Would get ${name}: the bandit chose it.`,
		"holdout held_out": () => `Not in: the holdout ${last.holdout_key} keeps the user out.`, "profile full": () => "Not in: the profile is full.",
	};
	return sentences[`${last.step} ${last.result}`]?.() ?? (name === null ? "Not in." : `Gets ${name}.`);
}

/// Describes the steps of an explanation.
function reasonsOf({ steps }) {
	return h("ol.reasons", steps.map(s => h("li", h("strong", readable(s.step)), `: ${readable(s.result)}`, s.variation_key && ` ${s.variation_key}`, s.status && ` (${s.status})`,
		Number.isFinite(s.bucket_value) && ` (bucket ${s.bucket_value})`, s.audience && h("ul", explained(s.audience)))));
}

/// Describes a condition, and whether the user meets it.
function explained(c) {
	const what = c.attribute ? `${c.attribute} ${c.match} ${JSON.stringify(c.value) ?? ""}${"actual" in c ? `, is ${JSON.stringify(c.actual)}` : ""}` : c.segment ? `segment ${c.segment}` : c.operator ?? "audience";
	return h("li", `${c.result === null ? "unknown" : c.result ? "met" : "not met"}: ${what}`, c.conditions && h("ul", c.conditions.map(explained)));
}

async function attributesOf(id) {
	const found = Object.entries((await api.get(`${profilePath(id)}/attributes`, null)).attributes ?? {});
	if (found.length === 0) return empty("No attributes", "Apps set them:", `curl -X PATCH ${here(`v1/profiles/${encodeURIComponent(id)}/attributes`)} -d '{"country":"de"}'`);
	return table("Attributes of the user", [["Attribute", a => h("span.name", a[0])], ["Value", a => Array.isArray(a[1]) ? a[1].join(", ") : String(a[1]), "wrap"]], found);
}

/// Edits the defined attributes of the user. Resolves with whether any was changed.
async function editAttributes(id) {
	const [{ attributes: defined }, { attributes: values = {} }] = await Promise.all([api.list("/v1/attributes", "attributes").then(attributes => ({ attributes })), api.get(`${profilePath(id)}/attributes`)]);
	if (defined.length === 0) return confirm("No attribute is defined", h("p", "Define attributes first, on the screen Attributes."), { label: "Close", action: () => null });
	const text = value => value === undefined ? "" : Array.isArray(value) ? value.join("; ") : String(value);
	const fields = defined.map(a => {
		const value = text(values[a.name]), hint = { country: "Two letters, such as de.", date: "2026-01-31", time: "08:30", timestamp: "2026-01-31T12:00:00Z" }[a.type] ?? (a.multiple ? `Several separated by semicolons: ${a.values.join("; ")}` : null);
		const input = a.type === "boolean" ? select([["", "no value"], "true", "false"], value) : a.type === "selection" && !a.multiple ? select([["", "no value"], ...a.values], value)
			: h("input", { type: a.type === "number" ? "number" : "text", step: "any", value });
		return Object.assign(field(a.name, input, { pointer: `/${a.name}`, hint: hint && `${hint} Empty: no value.` }), { attribute: a, former: value });
	});
	const read = ({ attribute: { type }, input: { value } }) => type === "number" ? Number(value) : type === "boolean" ? value === "true" : value;
	return confirm(`Attributes of ${id}`, null, {
		label: "Save", fields, done: count => typeof count === "number" && count > 0 && `Saved ${plural(count, "attribute")} of ${id}.`,
		action: async () => {
			const changed = fields.filter(f => f.input.value !== f.former), set = changed.filter(f => f.input.value !== ""), removed = changed.filter(f => f.input.value === "");
			const path = `${profilePath(id)}/attributes`;
			if (set.length) await api.call("PATCH", path, { body: Object.fromEntries(set.map(f => [f.attribute.name, read(f)])) });
			if (removed.length) await api.call("DELETE", path, { query: { name: removed.map(f => f.attribute.name) } });
			return changed.length || true;
		},
	});
}

/// The exposures or events of the user; `name` is their name in paths and responses.
const pagesOf = (id, name, render, complete = rows => rows) => older(async after => {
	const page = await api.get(`${profilePath(id)}/${name}`, { after, limit: 10 });
	return { rows: await complete(page[name]), next: page.next };
}, render);

const goals = id => pagesOf(id, "events", rows => rows.length === 0 ? empty("No goal reached", "Apps report goals:", `curl ${here("v1/events")} -d '${JSON.stringify({ user_id: id, goal: "purchase", value: 49.9 }).replaceAll("'", "'\\''")}'`)
	: table("Goals that the user reached", [["Goal", e => h("span.name", e.goal)], ["Value", e => decimal(e.value), "number"], ["When", e => moment(e.timestamp)]], rows));

const exposures = id => pagesOf(id, "exposures", rows => rows.length === 0 ? empty("No exposure", "The user counts in results from the first exposure.")
	: table("First exposures of the user", [
		["Experiment", e => h("span.name", e.experiment_key)],
		["Saw", e => [e.seen, e.multiple_variations && [" ", badge("several", "warn")], e.forced && [" ", badge("forced", "warn")]]],
		["When", e => moment(e.timestamp)]], rows), async rows => {
	const experiments = await named([...new Set(rows.map(e => e.experiment_id))]);
	return rows.map(e => ({ ...e, seen: experiments.get(e.experiment_id)?.variations.find(v => v.id === e.variation_id)?.key ?? e.detail.variation_key ?? e.variation_id }));
});

async function auditOf(id) {
	const { entries } = await api.get("/v1/audit", { user_id: id, limit: 20 });
	return entries.length ? entryList(entries, await namedIn(entries)) : empty("Nothing", "Overrides, removals and merges of this user appear here.");
}

async function override(id, row) {
	const experiment = row.experiment;
	const options = experiment ? experiment.variations.map(v => [v.id, v.key]) : [];
	const input = experiment ? select(options, row.assignment?.variation_id ?? options[0]?.[0]) : h("input", { required: true, value: row.assignment?.variation_id ?? "" });
	const choice = field("Variation", input, { pointer: "/variation_id" });
	const reason = field("Reason", h("input"), { hint: "Optional; for the audit log and for whoever looks at the user.", pointer: "/reason" });
	const end = field("Until", h("input", { type: "datetime-local" }), { hint: "Optional; otherwise until an admin removes the override.", pointer: "/expires_at" });
	const name = experiment?.key ?? row.id;
	const body = () => ({ variation_id: input.value, reason: reason.input.value.trim() || null, expires_at: end.input.value ? new Date(end.input.value).toISOString() : null });
	return confirm(`Override ${name} for ${id}?`,
		h("p", "The user gets this variation from now on, whatever apps save. Then they get back what they had. They no longer count in the results."), {
			label: "Override", fields: [choice, reason, end],
			done: ({ data }) => `${id} now has ${data.variation_key ?? data.variation_id} in ${name}.`, action: () => api.call("PUT", experimentPath(id, name), { body: body(), sdkKey: experiment?.sdk_key }),
		});
}

async function remove(id, row) {
	const name = row.experiment?.key ?? row.id;
	const isOverride = row.assignment.source === "override";
	return confirm(isOverride ? `Remove the override of ${id}?` : `Remove ${variationName(row)} from ${id}?`,
		h("p", isOverride ? `The override in ${name} is removed, and the user ${row.assignment.beneath ? "has again what it covers" : "is decided by the rules again"}.`
			: `The assignment in ${name} is deleted. At the next decision the user gets a variation by their hash again, if the experiment runs and its audience includes them.`), {
			label: "Remove", danger: true, done: () => isOverride ? `The override of ${id} in ${name} is removed.` : `Removed the assignment of ${id} in ${name}.`, action: () => api.call("DELETE", experimentPath(id, name), { sdkKey: row.experiment?.sdk_key }),
		});
}

async function merge(id) {
	const seen = h("div", { role: "status" });
	let asked = 0, timer;
	/// Shows the number of assignments of the other profile, and of conflicts.
	const look = async text => {
		const number = asked += 1;
		if (!text) return replace(seen);
		const [other, own] = await Promise.all([text, id].map(name => api.get(profilePath(name), null, { silent: true }).catch(error => error.status === 404 ? null : Promise.reject(error)))).catch(() => []);
		if (number !== asked) return;
		const theirs = Object.keys(other?.experiment_bucket_map ?? {}), both = theirs.filter(key => own?.experiment_bucket_map[key]);
		replace(seen, h("p.note", !other ? `No profile of ${text} is stored; events and attributes are merged all the same.` : `${text} has ${plural(theirs.length, "assignment")}, ${both.length === 0 ? "none" : integer(both.length)} of them in ${both.length === 1 ? "an experiment" : "experiments"} where ${id} has one, too.`));
	};
	const from = field("From", h("input", { required: true, oninput: event => { clearTimeout(timer); timer = setTimeout(() => look(event.target.value.trim()), 250); } }), { hint: "The id that the user had before they logged in. Its profile is erased.", pointer: "/from" });
	const rule = field("Where both have a variation", select([["keep", `${id} keeps theirs`], ["replace", "take that of the other profile"]], "keep"), { pointer: "/on_conflict" });
	return confirm(`Merge another profile into ${id}?`,
		h("p", "Its assignments, exposures, goals and attributes are merged into this user’s, and nothing is counted twice. This cannot be undone."), {
			label: "Merge", fields: [from, seen, rule], danger: true,
			done: () => `Merged ${from.input.value.trim()} into ${id}.`, action: () => api.call("POST", `${profilePath(id)}/merge`, { body: { from: from.input.value.trim(), on_conflict: rule.input.value } }),
		});
}

/// The receipts of erasures, by user. They are shown until the tab is closed.
const receipts = new Map();

function receiptOf(id) {
	const { at, by, erased, keptTotals } = receipts.get(id);
	const parts = Object.entries(erased).filter(([, count]) => count);
	return banner("good", `${id} was erased`, h("p", `${exactTime(at)}, by ${by}. `, keptTotals ? "The totals of results were kept." : "Their part of every total is gone, too."),
		parts.length > 0 ? h("ul", parts.map(([kind, count]) => h("li", `${readable(kind)}: ${integer(count)}`))) : h("p", "Nothing was stored."),
		button("Download the receipt", () => download(`erased-${id}.json`, "application/json", JSON.stringify({ user_id: id, erased_at: at, by, kept_totals: keptTotals, erased }, null, 2))));
}

async function erase(id) {
	const keep = h("input", { type: "checkbox" });
	return confirm(`Erase ${id}?`, [
		h("p", "Their profile, attributes, exposures and goals are deleted, and so are their part of every total and their id in the audit log. This cannot be undone."),
		h("label.check", keep, "Keep what the totals of results have counted")], {
		label: "Erase", danger: true, word: id,
		done: ({ data }) => {
			receipts.set(id, { at: new Date().toISOString(), by: api.me.name, erased: data.erased, keptTotals: keep.checked });
			return `Erased ${id}.`;
		}, action: () => api.call("DELETE", profilePath(id), { query: keep.checked ? { keep_totals: "true" } : {} }),
	});
}
