// Webhooks: their receivers, the last attempts, and their secrets, which are shown once.

import { h, icon } from "./dom.js";
import * as api from "./api.js";
import { banner, button, confirm, confirmDelete, copy, dash, dialog, doing, empty, field, invitation, link, message, moment, page, section, select, table, to } from "./parts.js";
import { sentence } from "./format.js";

export async function show(context) {
	const { webhooks } = await api.get("/v1/webhooks");
	if (context.parts.length === 0) return list(context, webhooks);
	const key = context.parts.join("/");
	return one(context, webhooks.find(w => w.key === key) ?? await api.get(api.path("webhooks", key)));
}

const kinds = { active: "good", failing: "warn", paused: "bad", disabled: "idle" };
const state = webhook => h("span", { class: `status ${kinds[webhook.state.status]}` }, webhook.state.status);
/// The origin of a URL. Lists show no more, because a URL may be a secret.
const origin = url => new URL(url).origin;
const result = attempt => attempt.failure ?? "accepted";
const scope = webhook => webhook.sdk_key ?? "all projects";

function list(context, webhooks) {
	const define = label => doing([icon("plus"), label], () => edit(webhooks.map(w => w.key)), context.reload, "primary");
	const below = "Where the server sends what happens: changes, verdicts, alarms, proposals, erasures.";
	context.every(10_000, async () => { if (!document.querySelector("dialog[open]")) await context.reload(); });
	if (webhooks.length === 0) {
		return page("Webhooks", { below }, invitation("No webhook yet", "A webhook sends events, signed and in order, or as messages of Slack and Teams.", define("Add a webhook…"), "v1/webhooks/ops", '{"url":"https://ops.example/holdfast"}'));
	}
	return page("Webhooks", { actions: define("New webhook…"), below }, table("Webhooks", [
		["Webhook", w => [h("a.name", { href: to("webhooks", w.key) }, w.key), h("div.small.faint", origin(w.url))], "wide"],
		["Events", w => w.events.join(", "), "wrap"], ["Of", scope], ["State", state],
		["Last attempt", w => w.state.deliveries.length ? [moment(w.state.deliveries[0].attempted_at), h("div.small.faint", result(w.state.deliveries[0]))] : dash(), "wrap"]], webhooks));
}

function one(context, webhook) {
	const { key, state: { deliveries, reason, failures, oldest_waiting_at: oldest } } = webhook;
	const path = (...more) => api.path("webhooks", key, ...more);
	context.every(10_000, async () => { if (!document.querySelector("dialog[open]")) await context.reload(); });
	const resume = (query, told) => async () => {
		const done = await api.call("PUT", path(), { body: { enabled: true }, query });
		message("good", told, done.request);
		return done;
	};
	return page(key, {
		above: link(to("webhooks"), "Webhooks"), below: [state(webhook), " ", `${origin(webhook.url)}, of ${scope(webhook)}: ${webhook.events.join(", ")}`],
		actions: [doing("Send a test", () => test(path("test")), context.reload), doing("Edit…", () => edit([], webhook), context.reload),
			webhook.secret_file === null && doing("New secret…", () => rotate(webhook), context.reload),
			doing("Delete…", () => confirmDelete("webhooks", "webhook", key, "Nothing is sent there any more. What it has not sent yet is lost for it."), () => { location.hash = to("webhooks"); }, "danger quiet")],
	}, webhook.state.status === "paused" && banner("bad", "It is paused: nothing is sent", h("p", sentence(reason), " What happens waits, and is sent in order once it is resumed."),
		h("div.actions", doing("Resume", resume({}, `The webhook ${key} resumes with the event that failed.`), context.reload, "primary"), doing("Resume without what waits", resume({ from: "now" }, `The webhook ${key} resumes with what happens from now on.`), context.reload))),
	webhook.state.status === "failing" && banner("warn", `The last ${failures === 1 ? "attempt" : `${failures} attempts`} failed`, h("p", "An event of ", moment(oldest), " waits. The next attempt is ", moment(webhook.state.next_attempt_at), ".")),
	section("Attempts", { note: "The newest first; the last 20 are kept." }, deliveries.length === 0 ? empty("Nothing was sent yet", "Send a test, or wait for an event.")
		: table("Last attempts", [["When", d => moment(d.attempted_at)], ["Event", d => d.type, "wide"], ["Status", d => d.status ?? dash(), "number"], ["Result", result, "wrap"]], deliveries)),
	webhook.secret_file !== null && h("p.note", `Its secret is in the file ${webhook.secret_file} of the server.`));
}

async function test(path) {
	const done = await api.call("POST", path);
	const { status, failure } = done.data;
	message(failure ? "bad" : "good", failure ? `The test failed: ${failure}.` : `The receiver took the test with status ${status}.`, done.request);
	return done;
}

async function rotate(webhook) {
	const done = await confirm(`Make another secret for ${webhook.key}?`, h("p", "For a day the former secret signs, too, so that the receiver can be changed in between."), {
		label: "Make another", action: () => api.call("POST", api.path("webhooks", webhook.key, "rotate")) });
	if (done) await tell(webhook.key, done.data.secret);
	return done;
}

/// Shows a new secret. It cannot be read again later.
const tell = (key, secret) => dialog(`The secret of ${key}`, close => {
	const input = field("Secret", h("input", { readonly: true, value: secret }), { hint: "It is shown only now. Whoever receives events checks their signatures by it." });
	return [input, h("div.buttons", button("Copy", () => copy(secret, "The secret was copied.")), button("Done", close, "primary"))];
});

/// Opens the dialog of a new webhook, or of `former`. `taken` are the keys of other webhooks.
async function edit(taken, former) {
	const key = field("Key", h("input", { required: true, maxlength: 64, readonly: Boolean(former), value: former?.key ?? "" }), { pointer: "/key" });
	const url = field("URL", h("input", { required: true, value: former?.url ?? "https://" }), { pointer: "/url", hint: "That of Slack or Teams is a secret." });
	const events = field("Events, one per line", h("textarea", { rows: 3, value: (former?.events ?? ["*"]).join("\n") }), { pointer: "/events", hint: "Names such as experiment.verdict, or patterns such as experiment.*; * is everything." });
	const projects = [...new Set([...api.projects.keys(), former?.sdk_key].filter(Boolean))];
	const project = field("Of", select([["", "all projects"], ...projects.map(p => [p, p])], former?.sdk_key ?? ""), { pointer: "/sdk_key" });
	const format = field("Format", select([["standard", "standard: JSON, signed"], ["slack", "Slack: a message"], ["teams", "Teams: a message"]], former?.format ?? "standard"), { pointer: "/format" });
	const file = field("File of the secret", h("input", { value: former?.secret_file ?? "" }), { pointer: "/secret_file", hint: "Its name in the directory of --webhook-secrets. Empty: the server makes a secret." });
	const enabled = h("label.check", h("input", { type: "checkbox", checked: former?.enabled ?? true }), "Enabled");
	const done = await confirm(former ? `Edit ${former.key}` : "New webhook", null, { label: "Save", fields: [key, url, events, project, format, file, enabled], kind: "wide", done: ({ data }) => `Saved the webhook ${data.key}.`, action: () => {
		const name = key.input.value.trim();
		if (taken.includes(name)) throw new api.Problem(412, { detail: "There is another webhook with this key.", pointer: "/key" });
		return api.call("PUT", api.path("webhooks", name), { body: { url: url.input.value.trim(), events: events.input.value.split("\n").map(e => e.trim()).filter(Boolean), sdk_key: project.input.value || null, format: format.input.value, enabled: enabled.firstChild.checked, secret_file: file.input.value.trim() || null } });
	} });
	if (done?.data.secret) await tell(done.data.key, done.data.secret);
	return done;
}
