// What a project measures and keeps apart, and what the server has: metrics, holdouts, projects and tokens.

import { h } from "./dom.js";
import * as api from "./api.js";
import { badge, code, dash, empty, invitation, link, moment, page, status, table, to } from "./parts.js";
import { decimal, integer } from "./format.js";

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
	context.onChange(context.reload);
	return page("Metrics", { below: "What experiments are decided by. An experiment names its primary metrics and guardrails." },
		all.length === 0 ? invitation("No metric yet", "v1/metrics/orders", '{"kind":"conversion","goal":"purchase"}')
			: table("Metrics", [["Metric", m => [h("span.name", m.key), m.description && h("div.small.faint", m.description)], "wide"], ["Kind", m => m.kind], ["Goal", m => [m.goal ?? m.goals?.join(" → ") ?? m.steps?.join(" → ") ?? dash()], "wrap"],
				["Better", m => m.direction === "decrease" ? "less" : "more"], ["Measured by", m => experiments(m.experiments), "wrap"]], all));
}

async function holdouts(context) {
	const all = await listed("/v1/holdouts", "holdouts");
	context.onChange(context.reload);
	return page("Holdouts", { below: "Users who are kept out of experiments, to see what all of them together achieve." },
		all.length === 0 ? invitation("No holdout yet", "v1/holdouts/everything", '{"share":5}')
			: table("Holdouts", [["Holdout", o => h("span.name", o.key), "wide"], ["Held out", o => `${decimal(o.share)}%`, "number"], ["Status", o => status(o.status)], ["Flags", o => o.flags == null ? "all" : o.flags.join(", ") || dash(), "wrap"],
				["Metrics", o => (o.metrics?.primary ?? []).join(", ") || dash(), "wrap"]], all));
}

async function projects() {
	const all = await api.list("/v1/projects", "projects");
	return page("Projects", { below: "Each has its own experiments, flags and datafile. Users are shared." },
		all.length === 0 ? empty("No project yet", "The first experiment makes one.") : table("Projects", [
			["Project", p => [h("span.name", p.name || p.sdk_key), p.default && badge("default", "good")], "wide"], ["SDK key", p => code(p.sdk_key)],
			["Experiments", p => integer(p.experiments), "number"], ["Flags", p => integer(p.flags), "number"], ["Revision", p => p.revision, "number"], ["Made", p => moment(p.created_at)]], all));
}

async function tokens() {
	const { tokens } = await api.get("/v1/tokens");
	return page("Tokens", { below: "Who may call this server, and when they last did. Secrets are in the token file only." },
		tokens.length === 0 ? empty("No token", "This server accepts every caller. A token file changes that:", "holdfast serve --tokens-file tokens") : table("Tokens", [
			["Name", t => [h("span.name", t.name), t.name === api.me.name && badge("you", "good")], "wide"], ["Scope", t => t.scope], ["Projects", t => t.projects?.join(", ") ?? "all"],
			["Last used", t => moment(t.last_used_at)], ["Expires", t => t.expires_at ? moment(t.expires_at) : h("span.faint", "never")]], tokens),
		h("p.note", "Last uses are those that this server process has seen."));
}
