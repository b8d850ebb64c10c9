// Compares experiments and flags in all projects of the server, and copies one to the next project.

import { h, update } from "./dom.js";
import * as api from "./api.js";
import { badge, banner, choose, confirm, dash, empty, found, link, page, pending, searchField, status, to } from "./parts.js";
import { decimal, plural, sentence } from "./format.js";
import { differences, effectsInWords, listed } from "./sentences.js";

/// The members that a copy takes over. The state in a project, such as status, traffic and ramp, is not copied.
const copied = {
	experiments: ["variations", "audience", "name", "hypothesis", "description", "owner", "tags", "metrics", "plan", "assignment_ttl"],
	flags: ["type", "variations", "rules", "otherwise", "tags", "description"],
};
const noun = { experiments: "experiment", flags: "flag" };

/// An element without the members that belong to its project.
function portable(kind, element) {
	const body = {};
	for (const name of copied[kind]) if (element[name] !== undefined) body[name] = element[name];
	if (kind === "experiments") body.variations = element.variations.map(({ key, weight }) => ({ key, weight }));
	else {
		body.variations = element.variations.map(({ key, value }) => ({ key, value }));
		body.rules = (element.rules ?? []).map(({ key, ...rule }) => rule);
	}
	if (body.metrics) delete body.metrics.share_of_users;
	if (body.plan) body.plan = { alpha: body.plan.alpha, power: body.plan.power, minimum_effect: body.plan.minimum_effect };
	return body;
}

const isSame = (kind, one, other) => differences(portable(kind, one), portable(kind, other)).length === 0;

export async function show(context) {
	const { query } = context, kind = query.get("kind") === "flags" ? "flags" : "experiments";
	const projects = await api.list("/v1/projects", "projects");
	const content = h("div"), names = projects.map(p => p.sdk_key);
	const above = link(to("projects"), "Projects");
	if (projects.length < 2) return page("All projects", { above }, empty("There is one project", "With a second one, such as a staging beside production, its definitions stand here side by side."));

	async function load() {
		const all = await Promise.all(names.map(sdkKey => api.list(`/v1/${kind}`, kind, { sdkKey }).catch(error => { if (error.status === 404) return []; throw error; })));
		const rows = new Map();
		all.forEach((elements, index) => {
			for (const element of elements) {
				// The flag of an experiment is the experiment.
				if (element.status === "archived" || kind === "flags" && element.defined_by !== "flag") continue;
				if (!rows.has(element.key)) rows.set(element.key, { key: element.key, of: names.map(() => null) });
				rows.get(element.key).of[index] = element;
			}
		});
		return [...rows.values()].sort((a, b) => a.key < b.key ? -1 : 1);
	}

	const state = element => element === null ? dash() : kind === "experiments" ? [status(element.status), h("div.small.faint", `${decimal(element.traffic)}% of users`)]
		: [status(element.enabled ? "on" : "off"), h("div.small.faint", plural(element.rules?.length ?? 0, "rule"))];
	const verdict = ({ of }) => {
		const known = of.filter(Boolean);
		return known.length < 2 ? badge("in one project") : known.every(e => isSame(kind, known[0], e)) ? badge("the same", "good") : badge("differs", "warn");
	};
	/// The projects that an element can be copied to, each from the one before that has it.
	const copies = ({ key, of }) => of.map((element, index) => index + 1 < of.length && element && !(of[index + 1] && isSame(kind, element, of[index + 1])) && api.may("admin")
		&& h("button.button.quiet", { label: `Copy ${key} from ${names[index]} to ${names[index + 1]}`, onclick: () => copyTo(kind, element, names[index], names[index + 1]).then(done => { if (done) place.reload(); }) }, `To ${names[index + 1]}…`));

	const place = pending(async () => {
		const rows = await load();
		const draw = () => {
			const words = (query.get("search") ?? "").toLowerCase(), isDifferent = query.get("only") === "different";
			const shown = rows.filter(r => r.key.toLowerCase().includes(words) && (!isDifferent || r.of.some(e => e === null) || !r.of.every(e => isSame(kind, r.of[0], e))));
			update(content, found(`All ${kind}`, [[noun[kind] === "flag" ? "Flag" : "Experiment", r => h("span.name", r.key), "wide"],
				...names.map((name, index) => [name, r => state(r.of[index])]), ["Definition", verdict], ["Actions", r => h("div", copies(r)), "row-actions"]], shown));
		};
		draw();
		return h("div", h("div.filters", searchField(`Search ${kind}`, query.get("search") ?? "", search => { context.setQuery({ search }); draw(); }),
			choose("Kind", [["experiments", "Experiments"], ["flags", "Flags"]], kind, value => { context.setQuery({ kind: value === "flags" ? value : null, search: null }); context.reload(); }),
			choose("Show", [["", "All"], ["different", "What differs"]], query.get("only") ?? "", only => { context.setQuery({ only }); draw(); })), content);
	});
	return page("All projects", { above, below: "Where each experiment or flag stands. A copy takes over what is defined; status, traffic and ramp stay those of the project, and what is new there is a draft, or off." }, place);
}

/// Shows what a copy would change, and for whom, and makes it after a confirmation.
async function copyTo(kind, element, source, target) {
	const path = api.path(kind, element.key), options = { sdkKey: target };
	const former = await api.call("GET", path, options).catch(error => { if (error.status === 404) return null; throw error; });
	const body = portable(kind, element);
	if (!former) Object.assign(body, kind === "experiments" ? { status: "draft", traffic: element.traffic } : { enabled: false });
	const changes = differences(former ? portable(kind, former.data) : {}, body);
	const foreseen = pending(async () => {
		const { data } = await api.call("POST", `${path}/preview`, { ...options, body, silent: true });
		return [data.warnings.map(w => banner("warn", sentence(w.message))), kind === "experiments" && h("ul.changes", effectsInWords(data).map(text => h("li", text)))];
	}, "Working out who is affected…");
	return confirm(`Copy ${element.key} from ${source} to ${target}?`, [listed(changes, !former), foreseen], {
		label: former ? "Change it there" : "Make it there", kind: "wide", done: () => `Copied ${element.key} to ${target}.`,
		action: () => api.call("PUT", path, { ...options, body, ...former ? { ifMatch: former.etag } : { ifNoneMatch: "*" } }),
	});
}
