// Changes of running experiments that wait for the approval of a second person.

import { h, replace } from "./dom.js";
import * as api from "./api.js";
import { badge, banner, code, confirm, doing, empty, few, field, lazily, link, moment, page, pending, sideBySide, to } from "./parts.js";
import { sentence } from "./format.js";
import { inWords } from "./audit.js";
import { differences, effectsInWords, listed } from "./sentences.js";

const kinds = { pending: "warn", approved: "good" };

export async function show(context) {
	const content = h("div");
	const refresh = async () => {
		const { proposals } = await api.get("/v1/proposals").catch(error => { if (error.status === 404) return { proposals: [] }; throw error; });
		replace(content, proposals.length === 0 ? empty("Nothing proposed", "A server that was started with --approvals 2 asks for a second person here.")
			: h("ul.entries", proposals.map(proposal => entry(proposal, refresh))));
	};
	await refresh();
	api.server.addEventListener("proposals", () => { if (!content.querySelector("details[open]")) refresh().catch(() => {}); }, { signal: context.signal });
	context.onChange(() => { if (!content.querySelector("details[open]")) return refresh(); });
	return page("Approvals", { below: "Changes of running experiments that somebody has proposed. Another person approves them; any other change of the same meanwhile makes them outdated." }, content);
}

/// One proposal, with the buttons that approve or reject it.
function entry(proposal, refresh) {
	const isOpen = proposal.status === "pending";
	const decide = (label, action, text, options) => confirm(`${label} the change?`, text, {
		label, action: () => api.call("POST", api.path("proposals", proposal.id, action), options?.call()), done: () => `The change of ${proposal.author} is ${action === "approve" ? "made" : "rejected"}.`, ...options });
	const decided = () => { refresh().catch(() => {}); api.readProposals(); };
	const reason = field("Reason", h("input", { autocomplete: "off" }), { pointer: "/reason" });
	return h("li",
		h("div.entry", h("span", h("strong", proposal.author), " proposes: ", proposal.changes.map(c => `${inWords(c.action, true)} ${c.target}`).join(", "), ", for ",
			few(proposal.experiments, key => link(to("experiments", key), key)), " ", badge(proposal.status, kinds[proposal.status]),
			proposal.decided_by && h("div.small.faint", `${proposal.decided_by}, `, moment(proposal.decided_at), proposal.reason && `: “${proposal.reason}”`)),
			h("span.faint", moment(proposal.created_at))),
		proposal.changes.map(c => c.after && listed(differences(c.before, c.after), !c.before)),
		isOpen && foreseen(proposal),
		isOpen && h("div.actions",
			proposal.author !== api.me.name ? doing("Approve", () => decide("Approve", "approve", h("p", "The change is made at once, in the name of ", proposal.author, " and with your approval.")), decided, "primary") : h("p.note", "Another person must approve it."),
			doing("Reject", () => decide("Reject", "reject", null, { danger: true, fields: [reason], call: () => ({ body: reason.input.value ? { reason: reason.input.value } : {} }) }), decided)),
		lazily("Before and after", () => [proposal.changes.map(c => sideBySide(c.before, c.after)), request(proposal)]));
}

/// The effects of the change on users, from the server's preview.
function foreseen(proposal) {
	const key = /^\/v1\/experiments\/([^/?]+)(\?.*)?$/.exec(proposal.request.target)?.[1];
	if (!key || proposal.request.method !== "PUT") return null;
	return pending(async () => {
		const { request } = await api.get(api.path("proposals", proposal.id), null, { silent: true });
		const { data } = await api.call("POST", `/v1/experiments/${key}/preview`, { body: request.body, silent: true });
		return [h("p.note", effectsInWords(data).join(" ")), data.warnings.map(w => banner("warn", sentence(w.message)))];
	}, "Working out who is affected…");
}

/// The request as it was sent. Its body is read on its own, because lists lack it.
function request(proposal) {
	const place = h("div", h("p.note", code(`${proposal.request.method} ${proposal.request.target}`)));
	api.get(api.path("proposals", proposal.id), null, { silent: true }).then(full => {
		if (full.request.body) replace(place, h("p.note", code(`${full.request.method} ${full.request.target}`)), h("pre", { tabindex: "0" }, JSON.stringify(full.request.body, null, 2)));
	}, () => {});
	return place;
}
