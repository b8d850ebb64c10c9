// Flags: the values of their variations, and the rules that choose one.

import { h, replace, icon } from "./dom.js";
import * as api from "./api.js";
import { badge, banner, button, card, change, confirm, confirmDelete, create, dash, doing, failure, empty, field, invitation, iconButton, lazily, link, newLink, page, pending, restored, saveUnlessChanged, searchField, section, select, older, sideBySide, status, submitButton, table, to, toggle } from "./parts.js";
import { integer, percent, plural, sentence } from "./format.js";
import { conditionsForm, vocabulary } from "./conditions.js";
import { differences, listed, ruleInWords } from "./sentences.js";
import { versions } from "./history.js";

export async function show(context) {
	if (context.query.has("new")) return edit(context, null);
	if (context.parts.length === 0) return list(context);
	const { data, etag } = await load(context.parts.join("/"));
	return data.defined_by === "flag" && api.may("admin") ? edit(context, data, etag) : view(data);
}

const load = key => api.call("GET", api.path("flags", key));

/// Parses JSON; `undefined` if it is none.
const parse = text => { try { return JSON.parse(text); } catch { return undefined; } };
const write = value => typeof value === "string" ? value : JSON.stringify(value);

async function list(context) {
	const { query } = context;
	const load = async after => {
		try {
			const { flags, next } = await api.get("/v1/flags", question(query, after));
			return { rows: flags, next };
		} catch (error) {
			// A new server has no datafile.
			if (error.status !== 404) throw error;
			return { rows: [], next: null };
		}
	};
	const isFiltered = () => query.has("search") || query.has("stale");
	const actions = newLink("flags", "flag");
	const below = "What apps ask for by name. Every experiment is a flag, too; its value is the variation’s key.";
	const first = await load();
	if (!first.rows.length && !isFiltered()) return page("Flags", { actions, below }, invitation("No flag yet", "A flag gives apps a value by its rules, and is changed without a release.", newLink("flags", "flag"), "v1/flags/dark-mode", '{"type":"boolean","variations":[{"key":"on","value":true},{"key":"off","value":false}],"otherwise":"off"}'));
	const content = h("div");
	const draw = page => replace(content, older(load, rows => rows.length ? table("Flags", columns, rows) : empty("No match", "Change the search."), { label: "More flags", first: page }));
	const refresh = async () => draw(await load());
	const set = changes => { context.setQuery(changes); return refresh().catch(error => { if (error.name !== "AbortError") replace(content, failure(error)); }); };
	const columns = [["Flag", f => link(to("flags", f.key), h("span.name", f.key)), "wide"], ["Type", f => f.type ?? "several", "rest"], ["Values", f => f.variations.slice(0, 4).map(v => write(v.value)).join(", ") + (f.variations.length > 4 ? ", …" : ""), "wrap"],
		["Rules", f => f.rules.length ? h("span", { title: f.rules.map(rule => ruleInWords(rule)).join("\n") }, integer(f.rules.length)) : "0", "number rest"], ["Tags", f => f.tags.length ? f.tags.map(t => badge(t)) : dash()], ["Defined by", f => h("span.faint", f.defined_by), "rest"],
		["Last used", f => [f.last_evaluated_on, f.last_exposed_on].filter(Boolean).sort().at(-1) ?? dash()],
		["On", f => toggle(`${f.key} is on`, f.enabled, f.defined_by !== "flag", () => turn(f), refresh)]];
	context.onChange(refresh);
	draw(first);
	return page("Flags", { actions, below }, h("div.filters", searchField("Search flags and tags", query.get("search") ?? "", search => set({ search })),
		h("label.check", h("input", { type: "checkbox", checked: query.get("stale") === "30d", onchange: e => set({ stale: e.target.checked ? "30d" : "" }) }), "Not used for 30 days")), content);
}

const question = (query, after) => ({ q: query.get("search"), stale: query.get("stale"), after, limit: 25 });

/// Sends the reads of a screen before it is shown.
export function ahead({ parts, query }) {
	if (parts.length === 0 && !query.has("new")) api.ahead("/v1/flags", question(query));
	else if (parts.length > 0) api.ahead(api.path("flags", parts.join("/")));
}

/// Asks for confirmation, and turns a flag on or off.
const turn = flag => confirm(`Turn ${flag.enabled ? "off" : "on"} ${flag.key}?`, [h("p", flag.enabled ? "Everybody gets the default, and its experiments pause. Users keep their assignments." : "Its rules apply again."),
	effectOf(() => api.call("POST", api.path("flags", flag.key, "preview"), { body: { enabled: !flag.enabled } }))], {
	label: flag.enabled ? "Turn off" : "Turn on", done: () => `${flag.key} is ${flag.enabled ? "off" : "on"}.`,
	action: () => change(api.path("flags", flag.key), { body: { enabled: !flag.enabled } }),
});

/// The number of users whom a change concerns, as the server's preview counts them.
const effectOf = preview => pending(async () => {
	try {
		const { users, moves, warnings } = (await preview()).data;
		const known = users.examined > 0 && [h("p", h("strong", users.changed > 0 ? `${plural(users.changed, "user")} of ${integer(users.examined)} would get another value` : `None of ${plural(users.examined, "stored user")} would get another value`), users.changed > 0 ? ` (${percent(users.changed / users.examined)})` : "", users.complete ? "." : ", among the first ones that are stored."),
			users.changes.length > 0 && h("ul.changes", users.changes.slice(0, 8).map(c => h("li", `${integer(c.users)}: `, h("del", c.from ?? "nothing"), " → ", h("ins", c.to ?? "nothing")))),
			Object.keys(users.results).length > 0 && h("p.note", `Then: ${Object.entries(users.results).map(([key, count]) => `${key} ${percent(count / users.examined)}`).join(", ")}.`)];
		return h("div.effect", known || h("p.note", "No user is stored yet, so the effect is only seen in new ones."),
			moves.users + moves.other_experiment > 0 && banner("warn", `${plural(moves.users, "user")} enrolled in its experiments would be moved to another variation, and ${integer(moves.other_experiment)} to the same one of another experiment.`),
			warnings.map(w => banner("warn", sentence(w.message))));
	} catch (error) {
		if (error.name === "AbortError") throw error;
		return failure(error);
	}
}, "Counting the users who would get another value…");

/// A flag that the caller may not edit, or that is defined elsewhere.
function view(flag) {
	const isExperiment = flag.defined_by === "experiment", isOwn = flag.defined_by === "flag";
	return page(flag.key, { above: link(to("flags"), "Flags"), below: status(flag.enabled ? "on" : "off") },
		!isOwn && banner("note", isExperiment ? "This flag is an experiment." : "This flag comes from an uploaded datafile.", h("p", isExperiment ? ["Its value is the key of the user’s variation. ", link(to("experiments", flag.key), "Edit the experiment")] : "It is changed by uploading the next datafile.")),
		isOwn && section("Rules", { note: "The first one that a user meets decides." }, card(flag.rules.length ? h("ol.reasons.sentence", flag.rules.map(rule => h("li", ruleInWords(rule)))) : h("p.note", "No rule."), h("p", `Everybody else gets ${flag.otherwise}.`))),
		section("Definition", {}, card(h("pre", { tabindex: "0" }, JSON.stringify(definition(flag), null, 2)))));
}

const wide = matchMedia("(min-width: 1250px)");
const blank = { key: "", type: "boolean", enabled: true, description: "", tags: [], variations: [{ key: "on", value: true }, { key: "off", value: false }], rules: [], otherwise: "off" };
const members = ["type", "enabled", "description", "tags", "variations", "rules", "otherwise"];
const definition = flag => Object.fromEntries(members.map(m => [m, flag[m]]));
/// The definition without the members that the server adds to rules and variations.
const plain = flag => ({ ...definition(flag), variations: flag.variations.map(({ key, value }) => ({ key, value })),
	rules: flag.rules.map(({ key, audience, variation, traffic, experiment }) => ({ ...(audience ? { audience } : {}), ...(experiment ? { experiment: { weights: experiment.weights, traffic: experiment.traffic ?? 100, status: experiment.status } } : { variation, traffic: traffic ?? 100 }) })) });
const initial = { boolean: false, string: "", integer: 0, double: 0, json: {} };

/// The form of a flag; `stored` is null for a new one.
async function edit(context, stored, etag) {
	const words = await vocabulary();
	const draft = context.draft.get();
	const flag = { ...structuredClone(stored ?? blank), ...draft?.definition };
	const problems = h("div"), values = h("ol.variations"), rules = h("ol.rules"), last = h("div");
	const key = field("Key", h("input", { required: true, "data-focus": true, value: draft?.key ?? "" }), { pointer: "/key", hint: "Apps ask for the flag by its key." });
	const type = field("Type", select(Object.keys(initial), flag.type, { disabled: Boolean(stored), onchange: e => { flag.type = e.target.value; flag.variations.forEach(v => Object.assign(v, { value: structuredClone(initial[flag.type]), text: undefined })); draw(); } }), { pointer: "/type" });
	const description = field("Description", h("input", { value: flag.description, oninput: e => { flag.description = e.target.value; } }), { pointer: "/description" });
	const tags = field("Tags", h("input", { value: flag.tags.join(", "), oninput: e => { flag.tags = e.target.value.split(",").map(t => t.trim()).filter(Boolean); } }), { pointer: "/tags", hint: "Separated by commas." });
	const enabled = h("label.check", h("input", { type: "checkbox", checked: flag.enabled, onchange: e => { flag.enabled = e.target.checked; } }), "On");
	const keys = () => flag.variations.map(v => v.key);
	const remove = (list, index, name) => iconButton("close", `Remove ${name}`, () => { list.splice(index, 1); draw(); });

	function valueInput(v) {
		const label = { label: `Value of ${v.key || "the variation"}` };
		if (flag.type === "boolean") return select(["true", "false"], String(v.value), { ...label, onchange: e => { v.value = e.target.value === "true"; } });
		if (flag.type === "json") return h("textarea.mono", { ...label, rows: 2, value: v.text ?? JSON.stringify(v.value), "aria-invalid": v.text !== undefined && "true", oninput: e => {
			const parsed = parse(e.target.value);
			v.text = parsed === undefined ? e.target.value : undefined;
			if (parsed === undefined) return e.target.setAttribute("aria-invalid", "true");
			v.value = parsed;
			e.target.removeAttribute("aria-invalid");
		} });
		const isText = flag.type === "string";
		return h("input", { ...label, type: isText ? "text" : "number", required: !isText, step: flag.type === "integer" ? 1 : "any", value: v.value, oninput: e => { v.value = isText ? e.target.value : Number(e.target.value); } });
	}

	/// Moves a rule by one place; the button that was pressed keeps the focus, so that it can be pressed again.
	function move(index, by) {
		const [rule] = flag.rules.splice(index, 1);
		flag.rules.splice(index + by, 0, rule);
		draw();
		const moves = [...rules.children[index + by].querySelectorAll(".move")];
		(moves[by < 0 ? 0 : 1].disabled ? moves[by < 0 ? 1 : 0] : moves[by < 0 ? 0 : 1]).focus();
	}

	/// The index of the rule that is being dragged by its handle; it is dropped above or below another one.
	let dragged = null;
	const half = (event, item) => { const box = item.getBoundingClientRect(); return event.clientY > box.top + box.height / 2 ? 1 : 0; };
	const clear = item => item.classList.remove("over-above", "over-below");
	const dropping = index => ({
		ondragover: event => {
			if (dragged === null) return;
			event.preventDefault();
			clear(event.currentTarget);
			if (index !== dragged) event.currentTarget.classList.add(half(event, event.currentTarget) ? "over-below" : "over-above");
		},
		ondragleave: event => { if (!event.currentTarget.contains(event.relatedTarget)) clear(event.currentTarget); },
		ondrop: event => {
			if (dragged === null) return;
			event.preventDefault();
			const to = index + half(event, event.currentTarget), target = to > dragged ? to - 1 : to;
			if (target !== dragged) { move(dragged, target - dragged); typed(); }
			dragged = null;
		},
	});
	/// Only the handle drags, so that text in the rule can be selected.
	const grip = index => h("span.grip", { title: "Drag to reorder", "aria-hidden": "true", draggable: "true",
		ondragstart: event => {
			const item = event.currentTarget.closest("li");
			dragged = index;
			event.dataTransfer.effectAllowed = "move";
			event.dataTransfer.setData("text/plain", String(index + 1));
			event.dataTransfer.setDragImage(item, 16, 16);
			item.classList.add("dragged");
		},
		ondragend: () => { dragged = null; for (const item of rules.children) { clear(item); item.classList.remove("dragged"); } },
	}, icon("grip"));

	const mover = (index, by, name, symbol, isPossible) => Object.assign(iconButton(symbol, `Move rule ${index + 1} ${name}`, () => move(index, by)), { disabled: !isPossible, className: "button quiet move" });

	function ruleForm(rule, index) {
		const audience = conditionsForm(rule.audience ?? null, words);
		Object.assign(rule, { read: audience.read, check: audience.check });
		const { experiment } = rule;
		const said = h("p.sentence");
		rule.say = () => { said.textContent = ruleInWords({ ...rule, audience: rule.read() }); };
		rule.say();
		return h("li.card", dropping(index), h("div.section-head", flag.rules.length > 1 && grip(index), h("h3", `${index + 1}. ${experiment ? "Experiment" : "Delivery"}`), said, h("div.actions", flag.rules.length > 1 && [mover(index, -1, "up", "up", index > 0), mover(index, 1, "down", "down", index < flag.rules.length - 1)], remove(flag.rules, index, `rule ${index + 1}`))), audience,
		experiment ? h("div.weights", keys().map(k => field(`Weight of ${k}`, h("input", { type: "number", min: 0, step: "any", value: experiment.weights?.[k] ?? 0, oninput: e => { experiment.weights[k] = Number(e.target.value); } }))))
			: h("div.weights", field("Gets", select(keys(), rule.variation, { onchange: e => { rule.variation = e.target.value; } }))),
		h("div.weights", field("Percent of them", h("input", { type: "number", min: 0, max: 100, step: 0.01, value: (experiment ?? rule).traffic ?? 100, oninput: e => { (experiment ?? rule).traffic = Number(e.target.value); } }))));
	}

	/// Saves the contents of the audience forms before they are redrawn.
	const keep = () => { for (const rule of flag.rules) if (rule.read) rule.audience = rule.read() ?? null; };

	function draw() {
		keep();
		replace(values, flag.variations.map((v, index) => h("li.pair", h("input", { value: v.key, required: true, label: `Key of variation ${index + 1}`, onchange: e => { v.key = e.target.value.trim(); draw(); } }), valueInput(v), flag.variations.length > 1 && remove(flag.variations, index, v.key))));
		replace(rules, flag.rules.map(ruleForm));
		replace(last, field("Everybody else gets", select(keys(), flag.otherwise, { onchange: e => { flag.otherwise = e.target.value; } }), { pointer: "/otherwise" }));
		flag.otherwise = last.querySelector("select").value || keys()[0];
	}

	const addRule = rule => { keep(); flag.rules.push(rule); draw(); };
	/// The definition as the form has it now.
	function read() {
		keep();
		const body = structuredClone({ ...definition(flag), variations: flag.variations.map(({ key, value }) => ({ key, value })),
			rules: flag.rules.map(({ read, check, say, ...rule }) => { if (!rule.audience) delete rule.audience; return rule; }) });
		for (const rule of body.rules) if (rule.experiment) for (const k of Object.keys(rule.experiment.weights)) if (!keys().includes(k)) delete rule.experiment.weights[k];
		return body;
	}

	/// Returns the fault that must be corrected before the flag can be saved. If it is quiet, only whether there is one.
	function fault(isQuiet) {
		const wrong = flag.variations.find(v => v.text !== undefined);
		if (isQuiet) return Boolean(wrong) || rules.querySelector("input[aria-label=Value]:placeholder-shown") !== null;
		if (wrong) values.querySelector("[aria-invalid]").focus();
		return wrong ? `The value of ${wrong.key} must be JSON.` : flag.rules.map(rule => rule.check()).find(Boolean);
	}

	async function submit(event) {
		event.preventDefault();
		problems.replaceChildren();
		const wrong = fault();
		if (wrong) return replace(problems, banner("bad", wrong));
		const body = read(), name = stored?.key ?? key.input.value.trim(), path = api.path("flags", name);
		const original = stored && definition(stored);
		const effect = effectOf(() => stored ? api.call("POST", api.path("flags", name, "preview"), { body }) : create("POST", "flag", api.path("flags", name, "preview"), body));
		const done = await confirm(stored ? `Save ${name}?` : `Make ${name}?`, [listed(differences(original ? plain(original) : {}, original ? plain(body) : Object.fromEntries(Object.entries(body).filter(([, v]) => v !== "" && v?.length !== 0))), !original), effect, lazily("As JSON", () => sideBySide(original && plain(original), plain(body), ["Now", "Then"]))], {
			label: "Save", kind: "wide", done: ({ request }) => request && `Saved ${name}.`,
			action: async () => stored ? await saveUnlessChanged("flag", path, body, { etag, original, load: () => load(name), define: definition }) : create("PUT", "flag", path, body) });
		if (!done) return;
		context.isChanged = () => false;
		context.draft.forget();
		if (done === "theirs") return context.reload();
		if (stored) context.reload(); else location.hash = to("flags", name);
	}

	draw();
	const untouched = JSON.stringify(draft ? definition(stored ?? blank) : read());
	const effect = h("div.review");
	let timer, asked = 0, lastTyped = "";

	/// Keeps the draft. On a wide screen, the effect is counted beside the form.
	function typed() {
		const body = read();
		for (const rule of flag.rules) rule.say();
		const text = key.input.value + JSON.stringify(body);
		if (text === lastTyped) return;
		lastTyped = text;
		context.draft.set({ key: key.input.value, definition: body });
		clearTimeout(timer);
		const number = asked += 1, name = stored?.key ?? key.input.value.trim();
		if (!wide.matches || !stored || fault(true) || JSON.stringify(body) === untouched) return effect.replaceChildren();
		timer = setTimeout(() => {
			if (context.signal.aborted) return;
			const counted = effectOf(() => api.call("POST", api.path("flags", name, "preview"), { body, silent: true }));
			counted.loaded.then(() => { if (number === asked && context.isChanged()) replace(effect, section("Effect", { note: "If it were saved now." }, card(counted))); });
		}, 600);
	}

	context.isChanged = () => JSON.stringify(read()) !== untouched || flag.variations.some(v => v.text !== undefined) || key.input.value !== "";
	return page(stored?.key ?? "New flag", { above: link(to("flags"), "Flags"), actions: stored && doing("Delete…", () => confirmDelete("flags", "flag", stored.key, "Apps that ask for it get their own default. Its experiments are archived; their results stay."), () => { location.hash = to("flags"); }, "danger quiet") },
		draft && restored(context),
		h("div.beside", h("form.form", { onsubmit: submit, oninput: typed, onchange: typed, onclick: event => { if (event.target.closest("button[type=button]")) typed(); } }, section("Flag", {}, card(!stored && key, type, description, tags, enabled)),
			section("Variations", {}, card(values, h("div.adders", button("Add a variation", () => { flag.variations.push({ key: `variation-${flag.variations.length + 1}`, value: structuredClone(initial[flag.type]) }); draw(); }, "quiet")))),
			section("Rules", { note: "The first one that a user meets decides." }, rules, h("div.adders", button("Add a targeted rollout", () => addRule({ variation: keys()[0], traffic: 100 }), "quiet"),
				button("Add an experiment", () => addRule({ experiment: { weights: Object.fromEntries(keys().map(k => [k, 1])), traffic: 100 } }), "quiet")), card(last)),
			problems, h("div.buttons", submitButton("Review"))), effect), stored && versions("flags", stored.key, () => { context.isChanged = () => false; context.draft.forget(); context.reload(); }));
}
