// What needs somebody today: verdicts, alarms, proposals, and flags that nobody uses.

import { h } from "./dom.js";
import * as api from "./api.js";
import { badge, empty, few, link, moment, newLink, page, section, to } from "./parts.js";
import { plural, sentence, signed } from "./format.js";

/// The experiments that need somebody come first.
const question = { status: "running,paused", sort: "verdict", limit: 25 };

/// Sends the reads of the screen before it is shown.
export const ahead = () => api.ahead("/v1/overview", question);

export async function show(context) {
	const none = error => { if (error.status !== 404 && error.status !== 403) throw error; return {}; };
	// A new server has no datafile.
	const [{ experiments = [], total = 0 }, { flags = [] }] = await Promise.all([api.get("/v1/overview", question).catch(none), api.get("/v1/flags", { stale: "30d", limit: 6 }).catch(none)]);
	const named = e => link(to("experiments", e.key), h("span.name", e.name ?? e.key));
	const entry = (what, ...text) => h("li", h("div.entry", h("span", what, " ", text)));
	const wrong = experiments.filter(e => e.alarms.length > 0), isWrong = new Set(wrong.map(e => e.key));
	const decided = experiments.filter(e => !isWrong.has(e.key) && ["ship", "stop"].includes(e.verdict?.decision));
	const last = experiments.at(-1), isMore = total > experiments.length && (isWrong.has(last?.key) || decided.includes(last));
	const unused = flags.filter(f => f.defined_by === "flag");
	const parts = [
		["Something is wrong", "Results may mean nothing until it is mended.", wrong.map(e => entry(named(e), e.alarms.map(a => h("div.small", sentence(a.message)))))],
		["To decide", "Enough is known.", decided.map(({ verdict, ...e }) => entry(named(e), verdict.decision === "ship" ? [badge(`ship ${verdict.winner}`, "good"), verdict.lift !== null && h("span.lift.good", ` ${signed(verdict.lift)}`)] : badge("stop: nothing is better")))],
		["Waits for a second person", null, api.proposals.map(p => entry(few(p.experiments, key => link(to("experiments", key), h("span.name", key))), `${p.said}, proposed by ${p.author} `, moment(p.created_at), ". ", link(to("proposals"), "Approvals")))],
		["Not used for 30 days", "Flags that code may no longer need.", unused.map(f => entry(link(to("flags", f.key), h("span.name", f.key)), f.last_evaluated_on ? `last on ${f.last_evaluated_on}` : "never used"))],
	].filter(([, , entries]) => entries.length > 0);
	context.onChange(context.reload);
	api.server.addEventListener("proposals", () => context.reload(), { signal: context.signal });
	context.every(60_000, () => { if (!document.hidden && !document.querySelector("dialog[open]")) return context.reload(); });
	return page("Today", { below: "What needs somebody now." },
		parts.map(([title, note, entries]) => section(title, { note }, h("ul.entries", entries))),
		isMore && h("p.note", "There are more: ", link("#/experiments?sort=verdict", "all experiments, by their verdict"), "."),
		parts.length === 0 && (total === 0 ? empty("Nothing runs yet", "An experiment shows some users one thing and others another, and tells which does better.", null, newLink("experiments", "experiment") || null)
			: empty("Nothing needs you today", `${plural(total, "experiment")} ${total === 1 ? "is" : "are"} not certain yet, and nothing is wrong.`, null, link(to("experiments"), "See the experiments"))));
}
