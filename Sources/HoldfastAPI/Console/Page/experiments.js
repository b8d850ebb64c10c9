// The list of experiments, and the actions on an experiment that its row and its page share.

import { h, replace } from "./dom.js";
import * as api from "./api.js";
import { change, choose, confirm, dash, field, found, invitation, newLink, page, searchField, select, status, to, toggle } from "./parts.js";
import { decimal, integer, none, plural } from "./format.js";
import { sparkline, tint } from "./charts.js";

export async function show(context) {
	if (context.parts.length === 0) return context.query.has("new") ? (await import("./experiment-form.js")).show(context, null) : list(context);
	const [key, part] = context.parts;
	if (part === "edit") return (await import("./experiment-form.js")).show(context, key);
	return (await import("./results.js")).show(context, key);
}

export const all = async options => {
	try {
		return await api.list("/v1/experiments", "experiments", options);
	} catch (error) {
		// A new server has no datafile.
		if (error.status === 404) return [];
		throw error;
	}
};

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

const explanations = {
	paused: "While it is paused, nobody gets a variation. Assignments stay stored, and apply again when it runs.",
	running: "Users get variations again. Those who had one keep it.",
	archived: "Nobody gets a variation any more, and it leaves the list of active experiments. Assignments and results stay, and you can bring it back.",
};

/// Asks for confirmation, then changes the status. Resolves with whether it was changed.
export async function setStatus(experiment, status) {
	const verb = { paused: "Pause", running: experiment.status === "archived" ? "Bring back" : "Resume", archived: "Archive" }[status];
	return confirm(`${verb} ${experiment.key}?`, h("p", explanations[status]), {
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
	return confirm(`Conclude ${experiment.key}?`, h("p", "Nobody new takes part. Results are kept as they are now, and assignments stay stored, so that it can be reopened."), {
		label: "Conclude", kind: "wide", fields: [winner, reason],
		done: () => `${experiment.key} is concluded.`,
		action: () => change(api.path("experiments", experiment.key, "conclude"), { method: "POST", body: { winner: winner.input.value.slice(1) || null, reason: reason.input.value.trim() } }),
	});
}

/// Asks for a key, and makes a draft with the same variations, audience, metrics and texts. Resolves with its key.
export async function duplicate(experiment) {
	const key = field("Key of the copy", h("input", { required: true, maxlength: 255, value: `${experiment.key}-2` }), { pointer: "/key" });
	const done = await confirm(`Duplicate ${experiment.key}?`, h("p", "The copy is a draft: nobody takes part until you run it."), {
		label: "Duplicate", fields: [key], done: ({ data }) => `Made ${data.key}.`,
		action: () => api.call("PUT", api.path("experiments", key.input.value.trim()), { query: { from: experiment.key } }),
	});
	return done?.data.key;
}

/// Asks for confirmation, and gives everybody back what they had before the conclusion.
export const reopen = experiment => confirm(`Reopen ${experiment.key}?`, h("p", "Everybody gets back what they had, and new users take part again. The results that were kept stay readable by the time in the audit log."), {
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

const pauseSwitch = (experiment, changed) => toggle(`${experiment.key} is running`, experiment.status === "running", ["archived", "concluded", "draft"].includes(experiment.status),
	() => setStatus(experiment, experiment.status === "running" ? "paused" : "running"), changed);

const filters = [["active", "Active"], ["draft", "Draft"], ["running", "Running"], ["paused", "Paused"], ["concluded", "Concluded"], ["not_started", "Not started"], ["archived", "Archived"], ["all", "All"]];

async function list(context) {
	const { query } = context;
	let experiments = await all();
	const counts = new Map();
	const content = h("div");
	let isTyping = false;
	const summary = h("p.hidden", { role: "status" });

	const visible = () => {
		const text = (query.get("search") ?? "").toLowerCase(), filter = query.get("status") ?? "active";
		return experiments.filter(e => (filter === "all" || (filter === "active" ? e.status !== "archived" : e.status === filter))
			&& (e.key.toLowerCase().includes(text) || e.id === text)).reverse();
	};

	const refresh = async () => {
		experiments = await all();
		counts.clear();
		draw();
	};

	const row = [
		["Experiment", e => h("a.name", { href: to("experiments", e.key) }, e.key), "wide"],
		["Status", e => status(e.status)],
		["Enrollment", e => e.status === "archived" ? dash() : e.enrollment === "open" ? "open" : h("span.badge.warn", "closed")],
		["Variations", e => [shares(e), h("span.faint.small", plural(e.variations.length, "variation"))]],
		["Traffic", e => `${decimal(e.traffic)}%`, "number"],
		["Users", e => usersOf(e, "count"), "number"],
		["Enrolled each day", e => usersOf(e, "line"), "spark"],
		["Running", e => pauseSwitch(e, refresh)],
	];

	/// Counts come from the results of each shown row.
	function usersOf(experiment, part) {
		const place = h("span.faint", "…");
		const fill = () => {
			if (!counts.has(experiment.key)) counts.set(experiment.key, enrollment(experiment));
			counts.get(experiment.key).then(({ users, days }) => replace(place, part === "count" ? integer(users) : days.length > 1 ? sparkline(days) : none),
				() => replace(place, none));
		};
		// While a name is typed, rows come and go; their counts are not worth a request.
		if (counts.has(experiment.key)) fill(); else setTimeout(() => { if (place.isConnected) fill(); }, isTyping ? 500 : 0);
		return place;
	}

	function draw() {
		const rows = visible();
		summary.textContent = plural(rows.length, "experiment");
		replace(content, found("Experiments", row, rows, 25, Number(query.get("page")), number => context.setQuery({ page: number > 1 ? number : null })));
	}

	context.onChange(refresh);
	const actions = newLink("experiments", "experiment");
	if (experiments.length === 0) {
		return page("Experiments", { actions }, invitation("No experiment yet", "v1/experiments/checkout", '{"variations":["control","new"]}'));
	}
	draw();
	const set = name => value => {
		context.setQuery({ [name]: value, page: null });
		isTyping = name === "search";
		draw();
		isTyping = false;
	};
	return page("Experiments", { actions },
		h("div.filters", searchField("Search experiments", query.get("search") ?? "", set("search")),
			choose("Status", filters, query.get("status") ?? "active", set("status"))),
		summary, content);
}

/// The number of counted users, in total and for each day. It is the same for all goals.
async function enrollment(experiment) {
	const results = await resultsOf(experiment.key, { goal: "-" }, { silent: true });
	return { users: results.users.counted, days: results.days.map(d => d.variations.reduce((sum, v) => sum + v.users, 0)) };
}
