// Creates and updates elements. They are created by calls, never by parsing HTML, so that data cannot become markup.

const svgNames = new Set(["svg", "path", "line", "rect", "circle", "text", "polyline"]);

/// Creates an element: `h("p.note", { id: "a" }, "text", child)`. Properties that begin with `on` are listeners, `style` sets
/// properties of the style, `label` is `aria-label`, and `null` and `false` leave an attribute out.
export function h(name, properties, ...children) {
	const [tag, ...classes] = name.split(".");
	const element = svgNames.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
	if (classes.length) element.setAttribute("class", classes.join(" "));
	if (properties === null || typeof properties !== "object" || Array.isArray(properties) || properties instanceof Node) {
		return append(element, [properties, ...children]);
	}
	if (tag === "button") element.type = "button";
	if (tag === "input") Object.assign(element, { autocomplete: "off", spellcheck: false });
	for (const [key, value] of Object.entries(properties)) {
		if (value == null || value === false) continue;
		if (key.startsWith("on")) listen(element, key.slice(2), value);
		else if (key === "style") for (const [name, text] of Object.entries(value)) element.style.setProperty(name, text);
		else if (key === "value" || key === "checked") element[key] = value;
		else element.setAttribute(key === "label" ? "aria-label" : key, value === true ? "" : value);
	}
	return append(element, children);
}

/// The listeners of an element by event, so that `update` can give it those of its successor.
const listeners = new WeakMap();
const heard = event => listeners.get(event.currentTarget)[event.type](event);

function listen(element, type, action) {
	if (!listeners.has(element)) listeners.set(element, {});
	if (!listeners.get(element)[type]) element.addEventListener(type, heard);
	listeners.get(element)[type] = action;
}

/// Appends elements and texts; arrays are flattened, and `null` and `false` are left out.
export function append(element, children) {
	for (const child of children.flat(Infinity)) {
		if (child == null || child === false) continue;
		element.append(child instanceof Node ? child : String(child));
	}
	return element;
}

/// Replaces the content of an element.
export function replace(element, ...children) {
	element.replaceChildren();
	return append(element, children);
}

/// Gives an element new content, but keeps child elements of the same kind, so that focus, scroll positions and open details
/// stay.
export function update(element, ...content) {
	const successor = append(document.createElement(element.localName), content);
	adoptChildren(element, successor);
}

function adoptChildren(element, successor) {
	const next = [...successor.childNodes], former = [...element.childNodes];
	former.slice(next.length).forEach(node => node.remove());
	next.forEach((node, index) => {
		if (!former[index]) element.append(node);
		else if (!isAlike(former[index], node)) former[index].replaceWith(node);
		else if (node instanceof Element) adopt(former[index], node);
		else if (former[index].data !== node.data) former[index].data = node.data;
	});
}

const isAlike = (one, other) => one.nodeName === other.nodeName && one.getAttribute?.("class") === other.getAttribute?.("class");

/// Takes over the attributes, listeners and children of a successor. An element with state of its own has a function `adopt` for
/// that.
function adopt(element, successor) {
	if (element.adopt) return element.adopt(successor);
	for (const { name } of [...element.attributes]) if (!successor.hasAttribute(name) && name !== "open") element.removeAttribute(name);
	for (const { name, value } of successor.attributes) {
		if (referring.has(name) || element.getAttribute(name) === value) continue;
		// The policy forbids the attribute, but not the property.
		if (name === "style") element.style.cssText = value; else element.setAttribute(name, value);
	}
	for (const [type, action] of Object.entries(listeners.get(successor) ?? {})) listen(element, type, action);
	adoptChildren(element, successor);
}

/// Attributes that are not taken over: ids are new for each element, and others refer to them.
const referring = new Set(["id", "for", "aria-labelledby", "aria-describedby"]);

let lastID = 0;
export const newID = prefix => `${prefix}-${++lastID}`;

/// Icons of 16 pixels, drawn as strokes.
const strokes = {
	user: "M8 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM2.5 14c.6-2.8 2.8-4 5.5-4s4.9 1.2 5.5 4",
	experiment: "M6 2h4M7 2v4L3 13c-.3.6.1 1 .7 1h8.6c.6 0 1-.4.7-1L9 6V2M5 10h6",
	today: "M2.5 7.5L8 3l5.5 4.5V13.5h-4v-4h-3v4h-4z", metric: "M2.5 13.5h11M4.5 11V8M8 11V3.5M11.5 11V6", holdout: "M8 1.8l5 1.9v4c0 3-2 5-5 6.5-3-1.5-5-3.5-5-6.5v-4z",
	project: "M1.8 4h4.4l1.5 1.8h6.5v7.2H1.8z", token: "M10.5 9a3.5 3.5 0 1 0-3.3-2.4L2.5 11.3v2.2h2.2v-1.6h1.6v-1.6h1.2M11 5.4v.1",
	webhook: "M6.2 9.8a2.6 2.6 0 1 0 .9 2h4.2M9.8 6.2a2.6 2.6 0 1 0-3.6-.8l-2 3.7M10 7l2 3.4a2.6 2.6 0 1 1-2.2 2.3",
	flag: "M3.5 14V2.5M3.5 3h8l-1.5 3 1.5 3h-8",
	live: "M1.5 8.5h3l2-5 3 9 2-4h3",
	audit: "M3 2.5h10v11H3zM5.5 5.5h5M5.5 8h5M5.5 10.5h3",
	attribute: "M2.5 4h11M2.5 8h11M2.5 12h11M5 2.8v2.4M11 6.8v2.4M7 10.8v2.4",
	segment: "M6 11.5a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM10 11.5a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7z",
	datafile: "M3.5 1.5h6l3 3v10h-9zM9.5 1.5v3h3M5.5 8h5M5.5 11h5",
	plus: "M8 3v10M3 8h10", close: "M4 4l8 8M12 4l-8 8", copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
	grip: "M6 3v.1M6 8v.1M6 13v.1M10 3v.1M10 8v.1M10 13v.1", up: "M8 13V3M4 7l4-4 4 4", down: "M8 3v10M4 9l4 4 4-4",
	circle: "M8 13.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11z", warning: "M8 2l6.5 12h-13zM8 6.5v3.5M8 12v.1", check: "M3 8.5l3.5 3.5L13 4.5",
	search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.5 10.5L14 14", out: "M6 2.5H3v11h3M7 8h7M11 5l3 3-3 3",
};
export const icon = name => h("svg", { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true" },
	h("path", { d: strokes[name] }));
