// Attributes of users, and segments: the users who meet conditions.

import { h, icon, replace } from "./dom.js";
import * as api from "./api.js";
import { banner, card, confirm, confirmDelete, doing, empty, field, invitation, link, message, newLink, page, pending, restored, section, select, showProblem, submitButton, table, to } from "./parts.js";
import { none } from "./format.js";
import { conditionsForm, inWords, vocabulary } from "./conditions.js";

export async function show(context) {
	if (context.screen === "attributes") return attributes(context);
	if (context.query.has("new")) return segmentForm(context);
	return context.parts.length ? segment(context, context.parts.join("/")) : segments(context);
}

const types = ["string", "number", "boolean", "country", "date", "time", "timestamp", "selection"];

async function attributes(context) {
	const { attributes } = await api.get("/v1/attributes");
	const actions = doing([icon("plus"), "New attribute…"], () => define(attributes.map(a => a.name)), context.reload, "primary");
	const below = "What apps can store about users, to target experiments.";
	if (attributes.length === 0) {
		return page("Attributes", { actions, below }, invitation("No attribute is defined", "Apps store attributes about users, such as a country, to target experiments.", doing([icon("plus"), "Define an attribute…"], () => define([]), context.reload, "primary"), "v1/attributes/country", '{"type":"country"}'));
	}
	return page("Attributes", { actions, below }, table("Attributes", [
		["Name", a => h("span.name", a.name), "wide"], ["Type", a => a.multiple ? `${a.type}, several` : a.type],
		["Values", a => a.values ? a.values.join(", ") : h("span.faint", none)],
		["Actions", a => h("div", a.type === "selection" && doing("Edit…", () => define([], a), context.reload, "quiet"),
			doing("Delete…", () => confirmDelete("attributes", "attribute", a.name, "The attribute and its values of all users are deleted. This cannot be undone."), context.reload, "quiet")), "row-actions"]], attributes));
}

/// Throws an error, which is shown at the field of the name, if another element has the name.
function refuseTaken(names, name, noun) {
	if (names.includes(name)) throw new api.Problem(412, { detail: `There is another ${noun} with this name. Choose another name, or edit that one.`, pointer: "/name" });
}

/// Opens the dialog of a new attribute, or of `former`. `taken` are the names of other attributes.
async function define(taken, former) {
	const name = field("Name", h("input", { required: true, value: former?.name ?? "", readonly: Boolean(former) }), { pointer: "/name" });
	const type = field("Type", select(types, former?.type ?? "string", { disabled: Boolean(former), onchange: () => update() }), { pointer: "/type", hint: "The type never changes." });
	const values = field("Values", h("textarea", { rows: 4, value: (former?.values ?? []).join("\n") }), { pointer: "/values", hint: "One per line." });
	const multiple = h("label.check", h("input", { type: "checkbox", checked: former?.multiple === true }), "A user may have several");
	const update = () => { values.hidden = multiple.hidden = type.input.value !== "selection"; };
	update();
	return confirm(former ? `Edit ${former.name}` : "New attribute", null, {
		label: "Save", fields: [name, type, values, multiple], done: ({ data }) => `Saved the attribute ${data.name}.`, action: async () => {
			refuseTaken(taken, name.input.value.trim(), "attribute");
			const body = { type: type.input.value };
			if (body.type === "selection") {
				body.values = values.input.value.split("\n").map(v => v.trim()).filter(Boolean);
				if (multiple.firstChild.checked) body.multiple = true;
			}
			return api.call("PUT", api.path("attributes", name.input.value.trim()), { body });
		},
	});
}

async function segments(context) {
	const { segments } = await api.get("/v1/segments");
	const actions = newLink("segments", "segment");
	const below = "The users who meet conditions, as an audience that experiments can share.";
	if (segments.length === 0) {
		return page("Segments", { actions, below }, invitation("No segment is defined", "A segment is an audience that experiments share.", newLink("segments", "segment"), "v1/segments/adults", '{"conditions":{"type":"custom_attribute","name":"age","match":"ge","value":18}}'));
	}
	return page("Segments", { actions, below }, table("Segments", [
		["Name", s => h("a.name", { href: to("segments", s.name) }, s.name), "wide"], ["Who", s => inWords(s.conditions), "wrap"]], segments));
}

async function segment(context, name) {
	const [segment, words] = await Promise.all([api.get(api.path("segments", name)), vocabulary()]);
	const draft = context.draft.get(), form = conditionsForm(draft ? draft.conditions : segment.conditions, { ...words, segments: [], segment: name, pointer: "/conditions", required: true });
	return page(name, {
		above: link(to("segments"), "Segments"), below: inWords(segment.conditions),
		actions: doing("Delete…", () => confirmDelete("segments", "segment", name, "The segment is deleted; its users stay as they are. A segment that an audience uses cannot be deleted."), () => { location.hash = to("segments"); }, "danger quiet"),
	}, draft && restored(context), api.may("admin") && section("Conditions", {}, editor(context, name, form, [], () => context.reload())),
	api.may("attributes") && section("Users", { note: "The first 100." }, pending(async () => {
		const users = await api.get(`${api.path("segments", name)}/users`, { limit: 100 }, { lines: true });
		return users.length ? card(h("ul.links.inline", users.map(u => h("li", link(to("users", u.user_id), u.user_id))))) : empty("No users yet", "Users are in the segment once their attributes meet the conditions.");
	})));
}

/// The form of a segment; `name` is null for a new one, `taken` are the names of other segments.
function editor(context, name, form, taken, saved) {
	const problems = h("div");
	const draft = context.draft.get();
	const input = field("Name", h("input", { required: true, "data-focus": name === null, value: draft?.name ?? "" }), { pointer: "/name" });
	const untouched = draft?.untouched ?? JSON.stringify(form.read());
	const typed = () => { if (context.isChanged()) context.draft.set({ name: input.input.value, conditions: form.read(), untouched }); };
	context.isChanged = () => JSON.stringify(form.read()) !== untouched || input.input.value !== "";
	return h("form.card.form", { oninput: typed, onchange: typed, onclick: event => { if (event.target.closest("button[type=button]")) typed(); }, onsubmit: async event => {
		event.preventDefault();
		problems.replaceChildren();
		const fault = form.check();
		if (fault) return replace(problems, banner("bad", fault));
		try {
			refuseTaken(taken, input.input.value.trim(), "segment");
			const done = await api.call("PUT", api.path("segments", name ?? input.input.value.trim()), { body: { conditions: form.read() ?? [] } });
			message("good", `Saved the segment ${done.data.name}.`, done.request);
			context.isChanged = () => false;
			context.draft.forget();
			saved(done.data.name);
		} catch (error) { showProblem(error, [input], problems); }
	} }, name === null && input, form, problems, h("div.buttons", submitButton("Save")));
}

async function segmentForm(context) {
	const words = await vocabulary();
	const draft = context.draft.get(), form = conditionsForm(draft?.conditions ?? null, { ...words, segments: [], pointer: "/conditions", required: true });
	return page("New segment", { above: link(to("segments"), "Segments") }, draft && restored(context),
		editor(context, null, form, words.segments.map(s => s.name), name => { location.hash = to("segments", name); }));
}
