// The audit log: who changed what, with before and after.

import { h } from "./dom.js";
import * as api from "./api.js";
import { code, empty, field, lazily, link, moment, older, page, select, sideBySide, submitButton, to } from "./parts.js";
import { exactTime } from "./format.js";
import { differences, elementOf, inLine } from "./sentences.js";
import { named } from "./experiments.js";

const actions = `override.set assignment.remove profile.erase profile.merge forced_variation.set forced_variation.remove datafile.put experiment.put experiment.archive experiment.conclude experiment.reopen experiment.import experiment.ramp experiment.bandit experiment.schedule experiment.verdict experiment.warning experiment.delete
	flag.put flag.delete holdout.put holdout.delete metric.put metric.delete attribute.put attribute.delete segment.put segment.delete project.put project.delete webhook.put webhook.delete webhook.rotate webhook.pause sticky.delete proposal.put proposal.approve proposal.reject tokens.reload database.migrate`.split(/\s+/);
const verbs = { put: "saved", set: "set", remove: "removed", erase: "erased", merge: "merged", archive: "archived", conclude: "concluded", reopen: "reopened", ramp: "ramped", bandit: "let the bandit look at", schedule: "did what is due of", verdict: "sees another verdict of", warning: "sees other warnings of", delete: "deleted", reload: "reloaded", approve: "approved", reject: "rejected", migrate: "migrated", rotate: "made another secret of", pause: "paused" };

/// An action in words: `experiment.put` is "saved experiment"; for the future, "save experiment".
export function inWords(action, isFuture) {
	const [noun, verb] = action.split(".");
	return `${isFuture ? verb.replace("put", "save") : verbs[verb] ?? verb} ${noun.replace("_", " ")}`;
}

export async function show(context) {
	const { query } = context;
	const filters = { author: query.get("author"), action: query.get("action"), user_id: query.get("user_id"), target: query.get("target"), since: query.get("since"), until: query.get("until") };
	const isFiltered = Object.values(filters).some(Boolean);
	const question = () => ({ ...filters, since: instant(filters.since), until: instant(filters.until), limit: 50 });

	const experiments = new Map();
	const place = older(async after => {
		const { entries, next } = await api.get("/v1/audit", { ...question(), after });
		for (const [id, experiment] of await namedIn(entries)) experiments.set(id, experiment);
		return { rows: entries, next };
	}, entries => entries.length ? entryList(entries, experiments) : isFiltered ? empty("No matching entry", "Change the filters.")
		: empty("No entries yet", "Changes that admins make appear here: overrides, experiments, datafiles, erasures."));
	await place.loaded;
	context.onChange(() => { if (!place.querySelector("details[open]")) place.reload(); });
	const input = (name, label, type = "text", list) => field(label, h("input", { type, name, value: query.get(name) ?? "", list }));
	return page("Audit log", { below: "Every change that an admin has made, newest first." },
		h("form.filters.labelled", { onsubmit: event => {
			event.preventDefault();
			context.setQuery(Object.fromEntries(new FormData(event.target)));
			context.reload();
		} }, input("author", "By"), field("Action", select([["", "any"], ...actions.map(a => [a, inWords(a)])], filters.action ?? "", { name: "action" })),
		input("user_id", "User"), input("target", "Target"), input("since", "From", "datetime-local"), input("until", "Until", "datetime-local"),
		h("div", submitButton("Filter", ""), isFiltered && h("a.button.quiet", { href: "#/audit", onclick: () => { if (location.hash === "#/audit") context.reload(); } }, "Clear"))),
		place);
}

/// Converts a local time to the format of the API.
const instant = text => text ? new Date(text).toISOString() : null;

const isOfUser = action => ["override.set", "assignment.remove"].includes(action);
/// The experiments that entries name by their ids.
export const namedIn = entries => named([...new Set(entries.filter(e => isOfUser(e.action)).map(e => e.target))]);

/// The list of entries. `experiments`, by id, are shown by their keys instead of their ids.
export const entryList = (entries, experiments = new Map()) => h("ul.entries", entries.map(entry => h("li",
	h("div.entry", h("span", h("strong", entry.author), " ", inWords(entry.action), " ", targetOf(entry, experiments), entry.user_id !== null && [" for ", link(to("users", entry.user_id), entry.user_id)], entry.after?.reason && `: “${entry.after.reason}”`, moved(entry) && h("div.small.faint", moved(entry))),
		h("span.faint", moment(entry.recorded_at))),
	(entry.before ?? entry.after) !== null && lazily("Before and after", () => [sideBySide(entry.before, entry.after), h("p.note", exactTime(entry.recorded_at), " · request ", code(entry.request_id ?? "–"))]))));

/// What an entry changed, member by member: "Traffic 5% → 20%". For a new element, its main members.
export function moved({ before, after }) {
	if (!after) return "";
	const isNew = !before || elementOf(before) === before && elementOf(after) !== after;
	return inLine(differences(before, after).filter(d => !isNew || ["variations", "traffic", "type", "kind", "goal", "share", "rules"].includes(d.name)));
}

/// The target of an entry, as a link if it has a screen.
function targetOf(entry, experiments) {
	if (!entry.target) return null;
	const screen = ["experiments", "flags", "segments"].find(s => entry.action.startsWith(`${s.slice(0, -1)}.`));
	if (screen) return link(to(screen, entry.target), entry.target);
	if (!isOfUser(entry.action)) return entry.target;
	const key = experiments.get(entry.target)?.key;
	return ["in ", key ? link(to("experiments", key), key) : entry.target];
}
