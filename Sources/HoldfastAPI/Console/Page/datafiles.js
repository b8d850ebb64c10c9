// The project's datafile: what is active, what was before, and what changed in between.

import { h, replace } from "./dom.js";
import * as api from "./api.js";
import { entryList } from "./audit.js";
import { badge, button, card, download, empty, here, moment, page, pending, section, table } from "./parts.js";
import { integer } from "./format.js";

export async function show(context) {
	let history;
	try {
		history = await api.get("/v1/datafile/history", null);
	} catch (error) {
		if (error.status !== 404) throw error;
		return page("Datafiles", {}, empty("No datafile yet", "The first experiment makes one; or activate one from a file:", `curl -X PUT ${here("v1/datafile")} -d @datafile.json`));
	}
	context.onChange(() => context.reload());
	const { datafiles, sdk_key: key } = history;
	const difference = h("div");
	const newest = datafiles[0]?.version;
	const compare = async datafile => {
		replace(difference, section(`Version ${datafile.version}`, {}, pending(() => changesOf(datafile, key))));
		const heading = difference.querySelector("h2");
		heading.tabIndex = -1;
		heading.focus();
	};
	return page("Datafiles", { below: `Project ${key}. Experiments, flags and audiences are one document, and every change makes a new version of it.` },
		section("Versions", {}, table("Versions of the datafile", [
			["Version", d => [integer(d.version), d.version === newest && badge("active", "good")]], ["Revision", d => d.revision],
			["Since", d => moment(d.stored_at)], ["By", d => d.author],
			["Actions", d => button("What changed", () => compare(d), "quiet"), "row-actions"]], datafiles.slice(0, 100))),
		difference, section("Active datafile", {}, pending(() => active(key))));
}

async function active(key) {
	const datafile = await api.get("/v1/datafile", null, { sdkKey: key });
	const text = JSON.stringify(datafile, null, 2);
	return card(button("Download", () => download(`${key}.json`, "application/json", text)),
		h("details", h("summary", "Show"), h("pre.document", { tabindex: "0" }, text.slice(0, 200_000), text.length > 200_000 && "\n… download it for the rest")));
}

/// The entries of the audit log that tell of a version have what it changed.
async function changesOf(datafile, key) {
	const at = new Date(datafile.stored_at).getTime();
	const around = offset => new Date(at + offset).toISOString();
	const { entries } = await api.get("/v1/audit", { since: around(-2_000), until: around(5_000), limit: 1000 });
	const found = entries.filter(e => e.after?.version === datafile.version);
	if (found.length === 0) return empty("The audit log does not have this change", "It was made by a server without this entry, or the entry was deleted after its retention.");
	return entryList(found, true);
}
