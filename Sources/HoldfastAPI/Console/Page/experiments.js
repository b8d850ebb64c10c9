// The list of experiments, and the actions on an experiment that its row and its page share.

import { h, replace, update } from "./dom.js";
import * as api from "./api.js";
import { badge, banner, change, choose, confirm, dash, empty, failure, field, invitation, isPhone, link, moment, newLink, page, pager, searchField, select, status, table, to, toggle, waitingOf } from "./parts.js";
import { decimal, integer, plural, rampStatus, sentence, signed, utcDay } from "./format.js";
import { sparkline, tint } from "./charts.js";

export async function show(context) {
	if (context.parts.length === 0) return context.query.has("new") ? (await import("./experiment-form.js")).show(context, null) : list(context);
	const [key, part] = context.parts;
	if (part === "edit") return (await import("./experiment-form.js")).show(context, key);
	return (await import("./results.js")).show(context, key);
}

/// Sends the reads of a screen before it is shown.
export function ahead({ parts: [key, part], query }) {
	if (key === undefined) return query.has("new") || api.ahead("/v1/overview", question(query));
	if (part) return;
	api.ahead(api.path("experiments", key));
	api.ahead(api.path("experiments", key, "goals"));
	api.ahead(api.path("experiments", key, "results"), { baseline: query.get("baseline"), live: query.get("live"), ...filtersOf(query) });
	for (const module of ["results", "plan", "audit"]) import(`./${module}.js`);
}

/// The experiments with some ids, by id.
export async function named(ids) {
	const found = new Map();
	// An address must not become too long.
	for (let first = 0; first < ids.length; first += 100) {
		const page = await api.get("/v1/experiments", { id: ids.slice(first, first + 100).join(","), limit: 100 }, { silent: true }).catch(error => {
			// A new server has no datafile.
			if (error.status !== 404) throw error;
			return { experiments: [] };
		});
		for (const experiment of page.experiments) found.set(experiment.id, experiment);
	}
	return found;
}

/// The query parameters of results that restrict them to some users, or to some of their events.
export const filterNames = ["attribute", "value", "segment", "days", "window", "enrolled_from", "enrolled_to"];
export const filtersOf = query => Object.fromEntries(filterNames.map(name => [name, query.get(name)]));

export const resultsOf = (key, query, options) => api.get(api.path("experiments", key, "results"), { ...query, by: "day", mde: 0.05 }, options);

export const load = key => api.call("GET", api.path("experiments", key));
const save = (key, body) => change(api.path("experiments", key), { body });

/// The shares of the variations as one bar.
export function shares(experiment) {
	const text = experiment.variations.map(v => `${v.key} ${decimal(v.share, 2)}%`).join(", ");
	return h("div.shares", { role: "img", label: text, title: text },
		experiment.variations.slice(0, 40).map((v, index) => h("span", { class: "fill", style: { ...tint(index), "flex-grow": v.share } })),
		h("span.rest", { style: { "flex-grow": Math.max(0, 100 - experiment.variations.reduce((sum, v) => sum + v.share, 0)) } }));
}

/// What a change of the status means for users.
const explanations = {
	paused: "While it is paused, nobody gets a variation. Assignments stay stored, and apply again when it runs.",
	running: "Users get variations again. Those who had one keep it.",
	started: "Users get variations from now on. Its plan is fixed: a later change of it is shown with the results.",
	archived: "Nobody gets a variation any more, and it leaves the list of active experiments. Assignments and results stay, and you can bring it back.",
};

/// Asks for confirmation, then changes the status. Resolves with whether it was changed.
export async function setStatus(experiment, status) {
	const isStart = status === "running" && ["draft", "not_started"].includes(experiment.status);
	const verb = { paused: "Pause", running: isStart ? "Start" : experiment.status === "archived" ? "Bring back" : "Resume", archived: "Archive" }[status];
	return confirm(`${verb} ${experiment.key}?`, h("p", explanations[isStart ? "started" : status]), {
		label: verb, danger: status === "archived",
		done: () => `${experiment.key} is ${status}.`,
		action: () => status === "archived" ? api.call("DELETE", api.path("experiments", experiment.key)) : save(experiment.key, { status }),
	});
}

/// Asks for the winner and the reason, and concludes the experiment. Resolves with whether it was concluded. `proposed` is
/// the winner by the verdict.
export async function conclude(experiment, proposed) {
	const { conclusion } = experiment;
	const winner = field("Winner", select([["", "Nobody: no variation is delivered"], ...experiment.variations.map(v => [`=${v.key}`, v.key])], conclusion?.winner ? `=${conclusion.winner}` : proposed ? `=${proposed}` : ""),
		{ hint: "Everybody whom the audience admits gets it from now on.", pointer: "/winner" });
	const reason = field("Reason", h("textarea", { rows: 3, maxlength: 4096, value: conclusion?.reason ?? "" }), { hint: "Optional. Why this was decided.", pointer: "/reason" });
	return confirm(`Conclude ${experiment.key}?`, h("p", "Nobody new is enrolled. Results are kept as they are now, and assignments stay stored, so that it can be reopened."), {
		label: "Conclude", kind: "wide", fields: [winner, reason],
		done: () => `${experiment.key} is concluded.`,
		action: () => change(api.path("experiments", experiment.key, "conclude"), { method: "POST", body: { winner: winner.input.value.slice(1) || null, reason: reason.input.value.trim() } }),
	});
}

/// Asks for a key, and makes a draft with the same variations, audience, metrics and texts. Resolves with its key.
export async function duplicate(experiment) {
	const key = field("Key of the copy", h("input", { required: true, maxlength: 255, value: `${experiment.key}-2` }), { pointer: "/key" });
	const done = await confirm(`Duplicate ${experiment.key}?`, h("p", "The copy is a draft: nobody is enrolled until you run it."), {
		label: "Duplicate", fields: [key], done: ({ data }) => `Made ${data.key}.`,
		action: () => api.call("PUT", api.path("experiments", key.input.value.trim()), { query: { from: experiment.key } }),
	});
	return done?.data.key;
}

/// Asks for confirmation, and gives everybody back what they had before the conclusion.
export const reopen = experiment => confirm(`Reopen ${experiment.key}?`, h("p", "Everybody gets back what they had, and new users are enrolled again. The results that were kept stay readable by the time in the audit log."), {
	label: "Reopen", done: () => `${experiment.key} is open again.`,
	action: () => change(api.path("experiments", experiment.key, "reopen"), { method: "POST" }),
});

/// Asks for confirmation, and stops the ramp or lets it go on.
export function controlRamp(experiment, action) {
	const [verb, done, text] = action === "stop" ? ["Stop", "stopped", "The traffic stays as it is, and grows no more by itself. The ramp can be resumed."]
		: ["Resume", "resumed", "The present step begins again, once the experiment runs. If the cause of an alarm is still there, the alarm comes again."];
	return confirm(`${verb} the ramp of ${experiment.key}?`, h("p", text), {
		label: verb, done: () => `The ramp of ${experiment.key} is ${done}.`,
		action: () => change(api.path("experiments", experiment.key, "ramp"), { method: "POST", body: { action } }),
	});
}

/// A banner with the proposals for an experiment; false if there are none.
export function waiting(key) {
	const found = waitingOf(key), text = p => [p.said, `, proposed by ${p.author} `, moment(p.created_at), ". "], approvals = link(to("proposals"), "Approvals");
	return found.length > 0 && banner("warn", found.length > 1 ? `${found.length} changes wait for a second person` : "Waits for a second person",
		found.length === 1 ? h("p", text(found[0]), approvals) : [h("details", { open: !isPhone() }, h("summary", "Which"), h("ul", found.map(p => h("li", text(p))))), h("p", approvals)]);
}

const pauseSwitch = (experiment, changed) => toggle(`${experiment.key} is running`, experiment.status === "running", false,
	() => setStatus(experiment, experiment.status === "running" ? "paused" : "running"), changed);

const active = "draft,running,paused,concluded,not_started";
const filters = [["active", "Active"], ["draft", "Draft"], ["running", "Running"], ["paused", "Paused"], ["concluded", "Concluded"], ["not_started", "Not started"], ["archived", "Archived"], ["all", "All"]];
const size = 25;
/// The orders of the list, by their names in the API: the label, and whether the greatest comes first.
const orders = { name: ["Name"], status: ["Status"], verdict: ["Verdict", true], users: ["Users", true], day: ["Age", true], traffic: ["Traffic", true], owner: ["Owner"], tags: ["Tags"] };
const pageOf = query => Math.max(1, Number(query.get("page")) || 1);

/// The query of the list.
function question(query) {
	const chosen = query.get("status") ?? "active";
	return {
		q: query.get("search"), status: chosen === "all" ? null : chosen === "active" ? active : chosen, owner: query.get("owner"), tag: query.get("tag"),
		sort: query.get("sort"), order: query.get("order"), offset: (pageOf(query) - 1) * size || null,
	};
}

/// The list, filtered, sorted and paged by the server: its rows have the users, the verdict and the alarms of each experiment.
async function list(context) {
	const { query } = context;
	const content = h("div"), summary = h("p.hidden", { role: "status" }), owner = h("span"), tag = h("span");
	let asked = 0;

	async function load() {
		const number = asked += 1;
		let found;
		try {
			found = await api.get("/v1/overview", question(query));
		} catch (error) {
			// A new server has no datafile.
			if (error.status !== 404) throw error;
			found = { total: 0, experiments: [], statuses: {}, owners: [], tags: [] };
		}
		return number === asked ? found : null;
	}

	const refresh = async () => { const found = await load(); if (found) draw(found); };
	const set = changes => { context.setQuery({ page: null, ...changes }); return refresh().catch(error => replace(content, failure(error))); };

	/// Sorts by a column. The second click reverses the order, and the third one restores the newest first.
	function sort(by, isSame) {
		const first = orders[by]?.[1] ? null : "asc", isTurned = isSame && query.get("order") !== first;
		return set(by && !isTurned ? { sort: by, order: isSame ? first ? null : "asc" : first } : { sort: null, order: null });
	}
	const sortBox = choose("Sort by", [["", "Newest first"], ...Object.entries(orders).map(([by, [name, isGreatest]]) => [by, `${name}${isGreatest ? ", greatest first" : ""}`])], query.get("sort") ?? "", by => sort(by));
	sortBox.classList.add("phone");

	const columns = [
		["Experiment", e => [h("a.name", { href: to("experiments", e.key) }, e.name ?? e.key), e.name && h("div.small.faint", e.key), waits(waitingOf(e.key))], "wide", "name"],
		["Status", e => [["running", "paused"].includes(e.status) && pauseSwitch(e, refresh), status(e.status), e.enrollment === "closed" && e.status !== "archived" && badge("closed", "warn")], "", "status"],
		["Verdict", e => outcome(e), "brief", "verdict"],
		["Users", e => integer(e.users), "number", "users"],
		["Each day", e => e.days.length > 1 ? sparkline(everyDay(e.days)) : dash(), "spark"],
		["Age", e => age(e), "brief", "day"],
		["Traffic", e => [`${decimal(e.traffic)}%`, shares(e)], "number", "traffic"],
		["Owner", e => e.owner ? h("button.link", { onclick: () => set({ owner: e.owner }), title: e.owner }, e.owner) : dash(), "short", "owner"],
		["Tags", e => e.tags?.length ? [e.tags.slice(0, 3).map(tagLink), e.tags.length > 3 && h("span.small.faint", { title: e.tags.slice(3).join(", ") }, ` +${e.tags.length - 3}`)] : dash(), "brief", "tags"],
	];
	const tagLink = name => h("button.badge", { onclick: () => set({ tag: name }), title: `Only experiments with the tag ${name}` }, name);

	const waits = ([first, ...more]) => first && h("div.small.waits", `${first.said}, proposed by ${first.author}, waits`, more.length > 0 && ` (and ${more.length} more)`);

	function draw({ total, experiments, owners, tags }) {
		const number = pageOf(query), first = (number - 1) * size;
		summary.textContent = plural(total, "experiment");
		replace(owner, owners.length > 0 && choose("Owner", [["", "Any owner"], ...owners], query.get("owner") ?? "", value => set({ owner: value })));
		replace(tag, tags.length > 0 && choose("Tag", [["", "Any tag"], ...tags], query.get("tag") ?? "", value => set({ tag: value })));
		if (experiments.length === 0 && total > 0) return set({});
		sortBox.value = query.get("sort") ?? "";
		// The address is newer than the rows after two quick clicks.
		const sorting = { by: query.get("sort"), isDescending: query.get("order") !== "asc", sort: by => sort(by, by === query.get("sort")) };
		update(content, total === 0 ? empty("No match", "Change the search.") : [table("Experiments", columns, experiments, { sorting, kind: "compact" }),
			pager(first, experiments.length, total, by => { set({ page: number + by > 1 ? number + by : null }).then(() => content.querySelector(by > 0 ? ".pages button:last-child:enabled, .pages button" : ".pages button:enabled")?.focus()); })]);
	}

	const actions = newLink("experiments", "experiment");
	const found = await load() ?? { total: 0, experiments: [], statuses: {}, owners: [], tags: [] };
	context.onChange(refresh);
	api.server.addEventListener("proposals", () => refresh().catch(() => {}), { signal: context.signal });
	const isFiltered = ["search", "status", "owner", "tag"].some(name => query.get(name));
	if (found.total === 0 && !isFiltered && Object.keys(found.statuses).length === 0) {
		return page("Experiments", { actions }, invitation("No experiment yet", "An experiment shows some users one thing and others another, and tells which does better.", newLink("experiments", "experiment"), "v1/experiments/checkout", '{"variations":["control","new"]}'));
	}
	draw(found);
	context.every(60_000, () => { if (!document.hidden && !document.querySelector("dialog[open]")) return refresh(); });
	return page("Experiments", { actions },
		h("div.filters", searchField("Search experiments", query.get("search") ?? "", search => set({ search })),
			choose("Status", filters, query.get("status") ?? "active", value => set({ status: value === "active" ? null : value })), owner, tag, sortBox),
		summary, content);
}

/// The cell of the verdict: the decision, and alarms.
function outcome({ verdict, alarms, conclusion, status }) {
	const wrong = alarms.map(a => h("div", { title: sentence(a.message) }, badge(alarmNames[a.kind] ?? a.kind, a.kind === "no_exposures" ? "warn" : "bad")));
	if (conclusion && status === "concluded") return [h("span", conclusion.winner ? ["everybody gets ", h("strong", conclusion.winner)] : "no winner"), wrong];
	if (!verdict) return wrong.length ? wrong : dash();
	const { decision, winner, lift } = verdict;
	return [{ ship: () => [badge(`ship ${winner}`, "good"), lift !== null && h("span.lift.good", ` ${signed(lift)}`)], stop: () => badge("stop", "bad"), continue: () => h("span.faint", "not certain yet"), invalid: () => badge("invalid", "bad") }[decision](), wrong];
}

const alarmNames = { sample_ratio: "split is wrong", guardrail: "guardrail", stalled: "ramp stalled", no_exposures: "no new users", exposures_after_end: "still shown" };

/// The number of users of each day from the first to the last, also of days without any.
function everyDay(days) {
	const users = new Map(days.map(d => [d.day, d.users]));
	const counts = [];
	for (let at = Date.parse(days[0].day); at <= Date.parse(days.at(-1).day); at += 86_400_000) counts.push(users.get(new Date(at).toISOString().slice(0, 10)) ?? 0);
	return counts;
}

/// The cell of the age: since when an experiment has had users, and the step of its ramp.
function age({ first_day: first, ramp, bandit, status, schedule }) {
	const days = first && Math.floor((Date.now() - Date.parse(first)) / 86_400_000) + 1;
	return [first ? h("span", { title: `First users on ${utcDay(first)}` }, `day ${integer(days)}`) : schedule?.start_at && status === "draft" ? ["starts ", moment(schedule.start_at)] : dash(),
		ramp && h("div.small.faint", `ramp ${rampStatus(ramp.state.status)}, step ${ramp.state.step} of ${ramp.steps.length}`), bandit && h("div.small.faint", "bandit")];
}
