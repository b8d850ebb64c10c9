// The project's datafile: the active version, earlier versions, and their differences.

import { h, replace } from "./dom.js";
import * as api from "./api.js";
import { badge, button, card, choose, download, empty, found, here, lazily, moment, page, paged, pending, section, sideBySide } from "./parts.js";
import { integer } from "./format.js";

export async function show(context) {
	let history;
	try {
		history = await api.get("/v1/datafile/history", { limit: 1000 });
	} catch (error) {
		if (error.status !== 404) throw error;
		return page("Datafiles", {}, empty("No datafile yet", "The first experiment creates one. Or activate one from a file:", `curl -X PUT ${here("v1/datafile")} -d @datafile.json`));
	}
	const { datafiles, sdk_key: key } = history;
	const difference = h("div");
	const versions = datafiles.map(d => d.version);

	/// Shows what a version changed, compared with the one before or with a chosen one.
	function compare(version, former = versions[versions.indexOf(version) + 1]) {
		const chosen = choose("Compare with", versions.filter(v => v < version).map(v => [String(v), `compared with version ${v}`]), String(former), value => compare(version, Number(value)));
		context.setQuery({ version, former: former === versions[versions.indexOf(version) + 1] ? null : former });
		replace(difference, section(`Version ${version}`, { actions: former && chosen }, former === undefined
			? empty("Nothing to compare with", "This is the oldest version that is kept.")
			: pending(async () => changes(...await Promise.all([content(former, key), content(version, key)]), [`Version ${former}`, `Version ${version}`]))));
		const heading = difference.querySelector("h2");
		heading.tabIndex = -1;
		heading.focus();
	}

	const asked = Number(context.query.get("version"));
	if (versions.includes(asked)) compare(asked, Number(context.query.get("former")) || undefined);
	context.onChange(() => context.reload());
	return page("Datafiles", { below: `Project ${key}. Experiments, flags and audiences are one document, and every change makes a new version of it.` },
		section("Versions", {}, found("Versions of the datafile", [
			["Version", d => [integer(d.version), d.version === versions[0] && badge("active", "good")]], ["Revision", d => d.revision],
			["Since", d => moment(d.stored_at)], ["By", d => d.author],
			["Actions", d => h("div", api.may("admin") && button("What changed", () => compare(d.version), "quiet")), "row-actions"]], datafiles, 10)),
		difference, section("Active datafile", {}, pending(() => active(key))));
}

const content = (version, key) => api.get(api.path("datafile", "history", version), null, { sdkKey: key });

async function active(key) {
	const datafile = await api.get("/v1/datafile", null, { sdkKey: key });
	const text = JSON.stringify(datafile, null, 2);
	return card(button("Download", () => download(`${key}.json`, "application/json", text)),
		lazily("Show", () => h("pre.document", { tabindex: "0" }, text.slice(0, 200_000), text.length > 200_000 && "\n… download it for the rest")));
}

/// The differences of two datafiles: each experiment, flag, audience and so on separately, and the rest together.
function differences(former, latter) {
	const listed = [], rest = { before: {}, after: {} };
	for (const name of new Set([...Object.keys(former), ...Object.keys(latter)])) {
		const lists = [former[name] ?? [], latter[name] ?? []];
		if (lists.every(Array.isArray) && lists.flat().every(e => e?.id !== undefined)) {
			const [before, after] = lists.map(list => new Map(list.map(e => [e.id, e])));
			for (const id of new Set([...before.keys(), ...after.keys()])) listed.push({ name: `${name} ${after.get(id)?.key ?? before.get(id)?.key ?? after.get(id)?.name ?? id}`, before: before.get(id), after: after.get(id) });
		} else if (JSON.stringify(former[name]) !== JSON.stringify(latter[name])) { rest.before[name] = former[name]; rest.after[name] = latter[name]; }
	}
	return [...listed, { name: "project", ...rest }].filter(d => JSON.stringify(d.before) !== JSON.stringify(d.after));
}

/// The list of differences, in pages.
function changes(former, latter, names) {
	const differing = differences(former, latter);
	if (differing.length === 0) return empty("The two are equal");
	return paged(differing, 20, 1, part => h("ul.entries", part.map(({ name, before, after }) => h("li", h("details", { open: differing.length < 6 },
		h("summary", h("strong", name), badge(before === undefined ? "added" : after === undefined ? "removed" : "changed", before === undefined ? "good" : after === undefined ? "bad" : "")),
		sideBySide(before, after, names))))));
}
