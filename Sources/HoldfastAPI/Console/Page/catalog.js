// The screens of metrics and holdouts of a project, and of the projects and tokens of the server.

import { h, icon } from "./dom.js";
import * as api from "./api.js";
import { badge, change, code, confirm, confirmDelete, create, dash, doing, empty, field, invitation, link, moment, page, pending, picker, select, status, table, to } from "./parts.js";
import { decimal, inUnit, integer, plural } from "./format.js";
import { lifetimeField } from "./plan-form.js";

const screens = { metrics, holdouts, projects, tokens };
export const show = context => screens[context.screen](context);

/// The elements of a list; none if the server has no project yet.
async function listed(path, name) {
	try { return await api.list(path, name); } catch (error) {
		if (error.status === 404) return [];
		throw error;
	}
}

const experiments = keys => keys?.length ? keys.map((key, index) => [index > 0 && ", ", link(to("experiments", key), key)]) : dash();

async function metrics(context) {
	const all = await listed("/v1/metrics", "metrics");
	const actions = doing([icon("plus"), "New metric…"], () => defineMetric(), context.reload, "primary");
	context.onChange(context.reload);
	return page("Metrics", { actions, below: "What experiments are decided by. An experiment names its primary metrics and guardrails." },
		all.length === 0 ? invitation("No metric yet", "A metric says what counts, such as the share of users who buy.", doing([icon("plus"), "Define a metric…"], () => defineMetric(), context.reload, "primary"), "v1/metrics/orders", '{"kind":"conversion","goal":"purchase"}')
			: table("Metrics", [["Metric", m => [h("span.name", m.key), m.description && h("div.small.faint", m.description)], "wide"], ["Kind", m => [m.kind, m.unit && h("div.small.faint", `in ${m.unit}`), m.direction === "decrease" && h("div.small.faint", "less is better")]], ["Goal", m => [m.goal ?? m.goals?.join(" → ") ?? (m.numerator ? `${m.numerator.goal} / ${m.denominator.goal}` : dash()), m.window && h("div.small.faint", `within ${plural(m.window, "day")}`), m.cap && h("div.small.faint", `at most ${inUnit(m.unit)(m.cap)}`), m.adjustment && m.adjustment !== "none" && h("div.small.faint", m.adjustment.attribute ? `adjusted by ${m.adjustment.attribute}` : `adjusted by ${plural(m.adjustment.days, "day")} before`)], "wrap"],
				["Measured by", m => m.experiments?.length > 3 ? [experiments(m.experiments.slice(0, 3)), ` and ${m.experiments.length - 3} more`] : experiments(m.experiments), "wrap"],
				["Actions", m => h("div", doing("Edit…", () => defineMetric(m), context.reload, "quiet"), doing("Delete…", () => confirmDelete("metrics", "metric", m.key, "Experiments no longer measure it. A metric that an experiment names cannot be deleted."), context.reload, "quiet")), "row-actions"]], all));
}

const kinds = [["conversion", "conversion: who reached a goal"], ["count", "count: events per user"], ["total", "total: sum of values per user"], ["mean", "mean: value per event"], ["retention", "retention: who came back"], ["funnel", "funnel: who reached goals one after the other"], ["ratio", "ratio: one goal over another"]];

/// Opens the dialog of a new metric, or of `former`. The kind decides which fields are shown.
async function defineMetric(former) {
	const part = name => former?.[name] ? `${former[name].goal}` : "";
	const input = (label, value, pointer, options = {}, hint) => field(label, h("input", { value: value ?? "", ...options }), { pointer, hint });
	const key = input("Key", former?.key, "/key", { required: true, readonly: Boolean(former) });
	const kind = field("Kind", select(kinds, former?.kind ?? "conversion", { disabled: Boolean(former), onchange: () => update() }), { pointer: "/kind" });
	const goal = input("Goal", former?.goal, "/goal", {}, "As apps report it.");
	const goals = field("Goals, one per line", h("textarea", { rows: 3, value: (former?.goals ?? []).join("\n") }), { pointer: "/goals" });
	const above = input("Numerator: goal", part("numerator"), "/numerator"), below = input("Denominator: goal", part("denominator"), "/denominator");
	const by = (label, name) => field(label, select([["value", "its values"], ["count", "its events"]], former?.[name]?.by ?? "value"));
	const aboveBy = by("Numerator counts", "numerator"), belowBy = by("Denominator counts", "denominator");
	const from = input("From day", former?.from ?? 7, "/from", { type: "number", min: 0, step: "any" }), to = input("To day", former?.to ?? 14, "/to", { type: "number", min: 0, step: "any" });
	const window = input("Days after the first exposure in which events count", former?.window, "/window", { type: "number", min: 0, step: "any" }, "Empty: all.");
	const direction = field("Better is", select([["increase", "more"], ["decrease", "less"]], former?.direction ?? "increase"), { pointer: "/direction" });
	const effect = input("Smallest effect of interest in percent", former?.minimum_effect == null ? "" : former.minimum_effect * 100, "/minimum_effect", { type: "number", min: 0.01, step: "any" }, "Empty: none.");
	const unit = input("Unit", former?.unit, "/unit", { maxlength: 32, list: "units", autocomplete: "off" }, "Such as EUR, s or items, for people who read the numbers. Empty: none.");
	unit.append(h("datalist", { id: "units" }, ["EUR", "USD", "GBP", "JPY", "s", "ms", "items"].map(value => h("option", { value }))));
	const description = input("Description", former?.description, "/description");
	const cap = input("Cap", former?.cap, "/cap", { type: "number", min: 0, step: "any" }, "The most that one user counts, or of a mean one event. Empty: no limit. It stays once an experiment has started.");
	const adjusted = former?.adjustment?.attribute ? "attribute" : former?.adjustment?.days ? "days" : former ? "none" : "";
	const adjustment = field("Adjusted by (CUPED)", select([["", "the default of the kind"], ["days", "the same number before the exposure"], ["attribute", "a number among the attributes"], ["none", "nothing"]], adjusted, { onchange: () => update() }), { pointer: "/adjustment", hint: "Users' past makes intervals narrower. It stays once an experiment has started." });
	const days = input("Days before the exposure", former?.adjustment?.days ?? 14, "/adjustment/days", { type: "number", min: 1, max: 60 });
	const attribute = input("Attribute", former?.adjustment?.attribute, "/adjustment/attribute");
	const isAdjustable = () => ["conversion", "count", "total", "retention"].includes(kind.input.value), isCapped = () => ["count", "total", "mean"].includes(kind.input.value), hasUnit = () => isCapped() || kind.input.value === "ratio";
	const update = () => {
		const is = (...names) => names.includes(kind.input.value);
		cap.hidden = !isCapped();
		unit.hidden = !hasUnit();
		adjustment.hidden = !isAdjustable();
		days.hidden = !isAdjustable() || adjustment.input.value !== "days";
		attribute.hidden = !isAdjustable() || adjustment.input.value !== "attribute";
		goal.hidden = is("funnel", "ratio");
		goals.hidden = !is("funnel");
		for (const each of [above, below, aboveBy, belowBy]) each.hidden = !is("ratio");
		from.hidden = to.hidden = !is("retention");
		window.hidden = is("retention");
	};
	update();
	const fields = [key, kind, goal, goals, above, aboveBy, below, belowBy, from, to, window, cap, adjustment, days, attribute, direction, effect, unit, description];
	return confirm(former ? `Edit ${former.key}` : "New metric", null, { label: "Save", fields, kind: "wide", done: ({ data }) => `Saved the metric ${data.key}.`, action: () => {
		const name = key.input.value.trim(), chosen = kind.input.value;
		const body = { kind: chosen, direction: direction.input.value, description: description.input.value.trim(), minimum_effect: effect.input.value === "" ? null : Math.round(Number(effect.input.value) * 1e4) / 1e6 };
		if (chosen === "funnel") body.goals = goals.input.value.split("\n").map(g => g.trim()).filter(Boolean);
		else if (chosen === "ratio") Object.assign(body, { numerator: { goal: above.input.value.trim(), by: aboveBy.input.value }, denominator: { goal: below.input.value.trim(), by: belowBy.input.value } });
		else body.goal = goal.input.value.trim();
		if (chosen === "retention") Object.assign(body, { from: Number(from.input.value), to: Number(to.input.value) });
		else body.window = window.input.value === "" ? null : Number(window.input.value);
		if (hasUnit()) body.unit = unit.input.value.trim();
		if (isCapped()) body.cap = cap.input.value === "" ? null : Number(cap.input.value);
		if (isAdjustable()) body.adjustment = { "": null, none: "none", days: { days: Number(days.input.value) }, attribute: { attribute: attribute.input.value.trim() } }[adjustment.input.value];
		return former ? change(api.path("metrics", name), { body }) : create("PUT", "metric", api.path("metrics", name), body);
	} });
}

async function holdouts(context) {
	if (context.parts.length > 0) return holdout(context, context.parts.join("/"));
	const all = await listed("/v1/holdouts", "holdouts");
	const actions = doing([icon("plus"), "New holdout…"], () => defineHoldout(), context.reload, "primary");
	context.onChange(context.reload);
	return page("Holdouts", { actions, below: "Users who are kept out of experiments, to see what all of them together achieve." },
		all.length === 0 ? invitation("No holdout yet", "A holdout keeps some users out of all experiments, to see what these achieve together.", doing([icon("plus"), "Define a holdout…"], () => defineHoldout(), context.reload, "primary"), "v1/holdouts/everything", '{"share":5}')
			: table("Holdouts", [["Holdout", o => link(to("holdouts", o.key), h("span.name", o.key)), "wide"], ["Held out", o => `${decimal(o.share)}%`, "number"], ["Status", o => status(o.status)], ["Flags", o => o.flags == null ? "all" : o.flags.join(", ") || dash(), "wrap"],
				["Metrics", o => (o.metrics?.primary ?? []).join(", ") || dash(), "wrap"]], all));
}

/// A holdout, and what the experiments achieve together: users who are not held out, compared with those who are.
async function holdout(context, key) {
	const found = await api.get(api.path("holdouts", key));
	return page(key, { above: link(to("holdouts"), "Holdouts"), below: [status(found.status), ` ${decimal(found.share)}% of the users are held out of ${found.flags == null ? "all flags" : found.flags.join(", ")}.`],
		actions: [doing("Edit…", () => defineHoldout(found), context.reload), doing("Delete…", () => confirmDelete("holdouts", "holdout", key, "Users who were held out are enrolled in experiments again."), () => { location.hash = to("holdouts"); }, "danger quiet")],
	}, found.description && h("p", found.description), pending(async () => {
		if (!found.metrics?.primary.length) return empty("It measures nothing", "Name a primary metric, to see what all experiments achieve together.");
		const results = await api.get(`${api.path("holdouts", key)}/results`);
		const { planSection } = await import("./plan.js"), { verdict } = await import("./results.js");
		return planSection(results, verdict);
	}));
}

/// Opens the dialog of a new holdout, or of `former`.
async function defineHoldout(former) {
	const key = field("Key", h("input", { required: true, readonly: Boolean(former), value: former?.key ?? "" }), { pointer: "/key" });
	const share = field("Held out", h("input", { type: "number", min: 0, max: 100, step: 0.01, required: true, value: former?.share ?? 5 }), { pointer: "/share", after: h("span.unit", "%") });
	const state = field("Status", select(["running", "paused"], former?.status ?? "running"), { pointer: "/status", hint: "Paused: nobody is held out." });
	const known = await Promise.all([["flags", 500], ["metrics", 500]].map(([name, limit]) => api.get(`/v1/${name}`, { limit }, { silent: true }).then(page => page[name].map(e => e.key), () => [])));
	const flags = picker("Flags", former?.flags ?? [], known[0], { isOpen: true, pointer: "/flags", hint: "An experiment is a flag of its key. None: all." });
	const metrics = picker("Primary metrics", former?.metrics?.primary ?? [], known[1], { isOpen: true, pointer: "/metrics" });
	const description = field("Description", h("input", { value: former?.description ?? "" }), { pointer: "/description" });
	return confirm(former ? `Edit ${former.key}` : "New holdout", null, { label: "Save", fields: [key, share, state, flags, metrics, description], done: ({ data }) => `Saved the holdout ${data.key}.`, action: () => {
		const name = key.input.value.trim(), listed = flags.read();
		const body = { share: Number(share.input.value), status: state.input.value, flags: listed.length ? listed : null, metrics: { ...former?.metrics, primary: metrics.read() }, description: description.input.value.trim() || null };
		return former ? change(api.path("holdouts", name), { body }) : create("PUT", "holdout", api.path("holdouts", name), body);
	} });
}

async function projects(context) {
	if (context.parts[0] === "all") return (await import("./environments.js")).show(context);
	const all = await api.list("/v1/projects", "projects");
	const actions = doing([icon("plus"), "New project…"], () => defineProject(all.map(p => p.sdk_key)), context.reload, "primary");
	return page("Projects", { actions: [all.length > 1 && h("a.button", { href: "#/projects/all" }, "Compare"), actions], below: "Each has its own experiments, flags and datafile. Users are shared." },
		all.length === 0 ? empty("No project yet", "The first experiment makes one.") : table("Projects", [
			["Project", p => [h("span.name", p.name || p.sdk_key), p.default && badge("default", "good")], "wide"], ["SDK key", p => code(p.sdk_key)],
			["Experiments", p => integer(p.experiments), "number"], ["Flags", p => integer(p.flags), "number"], ["Revision", p => p.revision, "number"], ["Users keep their variation", p => p.assignment_ttl ?? h("span.faint", "as the server says")], ["Made", p => moment(p.created_at)],
			["Actions", p => h("div", doing("Edit…", () => defineProject([], p), context.reload, "quiet")), "row-actions"]], all));
}

/// Opens the dialog of a new project, or of `former`. `taken` are the keys of other projects.
async function defineProject(taken, former) {
	const key = field("SDK key", h("input", { required: true, maxlength: 255, readonly: Boolean(former), value: former?.sdk_key ?? "" }), { pointer: "/sdk_key", hint: "Apps name the project by it." });
	const name = field("Name", h("input", { maxlength: 255, value: former?.name ?? "" }), { pointer: "/name" });
	const lifetime = lifetimeField(former?.assignment_ttl ?? null, "as long as the server says (--assignment-ttl)", "In experiments that do not say it, counted from when it was last saved. It holds for what is saved from now on.");
	return confirm(former ? `Edit ${former.sdk_key}` : "New project", null, { label: former ? "Save" : "Create", fields: [key, name, lifetime], done: ({ data }) => `${former ? "Saved" : "Created"} the project ${data.name || data.sdk_key}.`,
		action: () => {
			const sdkKey = key.input.value.trim();
			if (taken.includes(sdkKey)) throw new api.Problem(412, { detail: "There is another project with this key.", pointer: "/sdk_key" });
			return api.call("PUT", api.path("projects", sdkKey), { body: { ...(former || name.input.value.trim() ? { name: name.input.value.trim() } : {}), assignment_ttl: lifetime.read() } });
		} });
}

async function tokens() {
	const { tokens } = await api.get("/v1/tokens");
	return page("Tokens", { below: "Who may call this server, and when they last did. Secrets are in the token file only." },
		tokens.length === 0 ? empty("No token", "This server accepts every caller. A token file changes that:", "holdfast serve --tokens-file tokens") : table("Tokens", [
			["Name", t => [h("span.name", t.name), t.name === api.me.name && badge("you", "good")], "wide"], ["Scope", t => t.scope], ["Projects", t => t.projects?.join(", ") ?? "all"],
			["Last used", t => moment(t.last_used_at)], ["Expires", t => t.expires_at ? moment(t.expires_at) : h("span.faint", "never")]], tokens),
		h("p.note", "Last uses are those that this server process has seen."));
}
