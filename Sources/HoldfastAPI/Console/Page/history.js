// The earlier versions of an experiment or a flag, and how one is restored.

import { h } from "./dom.js";
import * as api from "./api.js";
import { badge, banner, button, change, confirm, empty, failure, lazily, moment, older, pending, section, sideBySide } from "./parts.js";
import { integer, plural, sentence } from "./format.js";
import { differences, listed } from "./sentences.js";

const actions = { created: ["created", "good"], changed: ["changed"], removed: ["removed", "bad"], oldest_kept: ["the oldest version that is kept"] };

/// The section of versions, newest first. They are read when the section is opened. `done` is called after one was put back.
export const versions = (screen, key, done) => section("Versions", { isFolded: true, note: "What it was, as far back as versions of the project are kept." },
	lazily("Show versions", () => older(async after => {
		const { history, next } = await api.get(api.path(screen, key, "history"), { after });
		return { rows: history, next };
	}, entries => entries.length === 0 ? empty("No version is kept") : h("ul.entries", entries.map((entry, index) => item(screen, key, entry, index === 0, done))))));

function item(screen, key, entry, isPresent, done) {
	const { version, revision, stored_at: time, author, action, changes, definition, restorable } = entry;
	const sides = ["before", "after"].map(side => Object.fromEntries(changes.map(c => [c.member, c[side]])));
	return h("li", h("div.entry",
		h("span", h("strong", author), " ", badge(...actions[action]), ` revision ${revision}`, changes.length > 0 && listed(differences(...sides))),
		h("span.faint", moment(time), !isPresent && restorable && api.may("admin") && [" ", button("Put back…", async () => { if (await putBack(screen, key, version, revision)) done(); }, "quiet")])),
	definition && lazily("As JSON", () => changes.length > 0 ? sideBySide(...sides) : sideBySide(null, definition)));
}

/// Shows what would change, and puts the version back after a confirmation. Resolves with the response.
function putBack(screen, key, version, revision) {
	const path = part => api.path(screen, key, "history", String(version), part);
	let basis;
	const review = pending(async () => {
		try {
			const { changes, moves, warnings, basis: tag } = (await api.call("POST", path("preview"), { silent: true })).data;
			basis = tag;
			return [changes.length === 0 ? h("p", "It is like this already.") : changes.map(c => [changes.length > 1 && h("h3", `${c.kind} ${c.key}`), c.members.length === 0 ? h("p", `It would be ${c.action === "create" ? "made again" : "changed"}.`) : listed(differences(...["before", "after"].map(side => Object.fromEntries(c.members.map(m => [m.member, m[side]])))))]),
				h("p.note", "Status, enrollment, schedule and ramp, and whether a flag is on, stay as they are."),
				moves.users + moves.other_experiment > 0 && banner("warn", `${plural(moves.users, "user")} would get another variation, and ${integer(moves.other_experiment)} the same one of another experiment.`),
				warnings.map(w => banner("warn", sentence(w.message)))];
		} catch (error) {
			if (error.name === "AbortError") throw error;
			return failure(error);
		}
	}, "Comparing…");
	return confirm(`Put back revision ${revision} of ${key}?`, review, {
		label: "Put back", kind: "wide", done: ({ request }) => request && `${key} is as it was in revision ${revision}.`,
		action: async () => {
			await review.loaded;
			if (basis === undefined) throw new Error("What would change is not known. Close this, and try again.");
			return change(path("restore"), { method: "POST", ifMatch: basis });
		},
	});
}
