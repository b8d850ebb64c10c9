// The project's datafile: what is active, what was before, and what changed in between.

import { h, replace } from "./dom.js";
import * as api from "./api.js";
import { badge, button, card, commandLine, download, empty, failure, here, moment, page, pending, section, sideBySide, table } from "./parts.js";
import { integer, none, plural } from "./format.js";

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
      { name: "Version", cell: d => [integer(d.version), d.version === newest && badge("active", "good")] }, { name: "Revision", cell: d => d.revision },
      { name: "Since", cell: d => moment(d.stored_at) }, { name: "By", cell: d => d.author },
      { name: "Actions", hidden: true, class: "row-actions", cell: d => button("What changed", () => compare(d), "quiet") }], datafiles.slice(0, 100))),
    difference, section("Active datafile", {}, pending(() => active(key))));
}

async function active(key) {
  const datafile = await api.get("/v1/datafile", null, { sdkKey: key });
  const parts = [["experiments", "experiment"], ["featureFlags", "flag"], ["typedAudiences", "audience"], ["events", "event"], ["groups", "group"]];
  const text = JSON.stringify(datafile, null, 2);
  const limit = 200_000;
  return card(h("div.section-head", h("p", parts.map(([member, name]) => plural(datafile[member]?.length ?? 0, name)).join(", ")), h("div.actions", button("Download", () => download(`${key}.json`, "application/json", text), "quiet"))),
    h("details", h("summary", "Show"), h("pre.document", { tabindex: "0" }, text.slice(0, limit), text.length > limit && "\n… download it for the rest")));
}

/// The entries of the audit log that tell of a version have what it changed.
async function changesOf(datafile, key) {
  const at = new Date(datafile.stored_at).getTime();
  const around = offset => new Date(at + offset).toISOString();
  const { entries } = await api.get("/v1/audit", { since: around(-2_000), until: around(5_000), limit: 1000 });
  const found = entries.filter(e => e.after?.version === datafile.version);
  if (found.length === 0) return empty("The audit log does not have this change", "It was made by a server without this entry, or the entry was deleted after its retention.");
  return h("div", found.map(entry => {
    const before = entry.before?.experiment ?? entry.before?.flag ?? entry.before, after = entry.after?.experiment ?? entry.after?.flag ?? entry.after;
    return card(h("p", h("strong", entry.author), ` ${entry.action} ${entry.target ?? ""}`), sideBySide(entry.before?.experiment || entry.before?.flag ? before : null, after));
  }));
}
