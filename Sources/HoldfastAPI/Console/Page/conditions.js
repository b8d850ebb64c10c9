// Conditions of audiences and segments: a form that builds them, and their text.

import { h, replace, icon } from "./dom.js";
import { button, field, select } from "./parts.js";

const matches = {
  exact: "is", substring: "contains", exists: "has a value", gt: "is more than", ge: "is at least", lt: "is less than", le: "is at most",
  semver_eq: "is version", semver_gt: "is after version", semver_ge: "is at least version", semver_lt: "is before version", semver_le: "is at most version",
};
const ofType = {
  number: ["exact", "ge", "gt", "le", "lt", "exists"], boolean: ["exact", "exists"], country: ["exact", "exists"],
  selection: ["exact", "substring", "exists"], date: ["exact", "ge", "gt", "le", "lt", "exists"], time: ["exact", "ge", "gt", "le", "lt", "exists"],
  timestamp: ["ge", "gt", "le", "lt", "exact", "exists"],
};

const isGroup = value => Array.isArray(value);

/// Says in words whom conditions admit.
export function inWords(value, isInner = false) {
  if (value === null || value === undefined || (isGroup(value) && value.length === 0)) return "everybody";
  if (typeof value === "string") return `audience ${value}`;
  if (isGroup(value)) {
    const [first, ...rest] = value;
    if (first === "not") return `not (${inWords(rest[0])})`;
    const operands = ["and", "or"].includes(first) ? rest : value;
    const text = operands.map(o => inWords(o, operands.length > 1)).join(first === "and" ? " and " : " or ");
    return isInner && operands.length > 1 ? `(${text})` : text;
  }
  if (value.segment !== undefined) return `in segment ${value.segment}`;
  const match = value.match ?? "exact";
  return match === "exists" ? `${value.name} has a value` : `${value.name} ${matches[match] ?? match} ${JSON.stringify(value.value)}`;
}

/// Puts the conditions of a datafile's audiences in the place of their ids.
export function resolve(conditions, datafile) {
  if (typeof conditions === "string") {
    if (["and", "or", "not"].includes(conditions)) return conditions;
    const audience = [...(datafile.typedAudiences ?? []), ...(datafile.audiences ?? [])].find(a => a.id === conditions);
    if (!audience) return conditions;
    return typeof audience.conditions === "string" ? JSON.parse(audience.conditions) : audience.conditions;
  }
  if (!isGroup(conditions)) return conditions;
  const resolved = conditions.map(c => resolve(c, datafile));
  return resolved.length === 1 && !["and", "or", "not"].includes(resolved[0]) ? resolved[0] : resolved;
}

/// A form for conditions. The returned element has `read()`, which gives the conditions or `null` for everybody.
export function conditionsForm(initial, { attributes, segments, onchange = () => {}, pointer = "/audience", required = false }) {
  let tree = toTree(initial);
  let raw = tree === undefined ? JSON.stringify(initial, null, 2) : null;
  tree ??= { all: true, rows: [] };
  const body = h("div.conditions");
  const types = new Map(attributes.map(a => [a.name, a]));

  const draw = () => {
    replace(body, raw !== null ? rawForm() : group(tree, true));
    onchange();
  };

  function rawForm() {
    const area = h("textarea", { rows: 8, spellcheck: "false", class: "mono", value: raw, oninput: e => { raw = e.target.value; onchange(); } });
    return [field("Conditions as JSON", area, { hint: "As a datafile’s audience has them. An empty text is everybody.", pointer }),
      button("Edit as a form", () => {
        const parsed = read();
        const next = toTree(parsed);
        if (parsed === undefined || next === undefined) return area.setAttribute("aria-invalid", "true");
        raw = null; tree = next; draw();
      }, "quiet")];
  }

  function group(node, isRoot) {
    const add = row => { node.rows.push(row); draw(); focusLast(node); };
    return h("div", { class: isRoot ? "group" : "group inner" },
      node.rows.length > 1 && h("div.join", select([["and", "All of these"], ["or", "Any of these"]], node.all ? "and" : "or",
        { "aria-label": "How the conditions are joined", onchange: e => { node.all = e.target.value === "and"; draw(); } })),
      isRoot && node.rows.length === 0 && h("p.note", required ? "No condition yet." : "Everybody."),
      h("ul", node.rows.map((row, index) => h("li", row.rows ? group(row, false) : condition(row),
        h("button", { class: "button quiet", "aria-label": "Remove this condition", onclick: () => { node.rows.splice(index, 1); draw(); } }, icon("close"))))),
      h("div.adders",
        attributes.length > 0 && button("Attribute", () => add({ name: attributes[0].name, match: (ofType[attributes[0].type] ?? ["exact"])[0], value: "" }), "quiet"),
        segments.length > 0 && button("Segment", () => add({ segment: segments[0].name }), "quiet"),
        isRoot && button("Group", () => add({ all: !node.all, rows: [] }), "quiet"),
        isRoot && button("Edit as JSON", () => { raw = JSON.stringify(read(), null, 2); if (raw === "null") raw = ""; draw(); }, "quiet"),
        attributes.length === 0 && segments.length === 0 && h("span.note", "Define attributes or segments to choose from them.")));
  }

  const focusLast = node => { const rows = body.querySelectorAll("li"); if (node.rows.length) rows[rows.length - 1]?.querySelector("select")?.focus(); };

  function condition(row) {
    const negate = select([["", "where"], ["not", "where not"]], row.not ? "not" : "", { "aria-label": "Negation", onchange: e => { row.not = e.target.value === "not"; onchange(); } });
    if (row.segment !== undefined) {
      const names = segments.map(s => s.name);
      if (!names.includes(row.segment)) names.push(row.segment);
      return h("div.condition", negate, h("span", "in segment"), select(names, row.segment, { "aria-label": "Segment", onchange: e => { row.segment = e.target.value; onchange(); } }));
    }
    const names = attributes.map(a => a.name);
    if (!names.includes(row.name)) names.push(row.name);
    const type = types.get(row.name)?.type;
    const possible = [...(ofType[type] ?? Object.keys(matches))];
    if (!possible.includes(row.match)) possible.push(row.match);
    return h("div.condition", negate,
      select(names, row.name, { "aria-label": "Attribute", onchange: e => { row.name = e.target.value; row.match = (ofType[types.get(row.name)?.type] ?? ["exact"])[0]; row.value = ""; draw(); } }),
      select(possible.map(m => [m, matches[m] ?? m]), row.match, { "aria-label": "Comparison", onchange: e => { row.match = e.target.value; draw(); } }),
      row.match !== "exists" && valueInput(row, types.get(row.name)));
  }

  function valueInput(row, attribute) {
    const set = value => { row.value = value; onchange(); };
    const type = attribute?.type;
    if (type === "boolean") {
      if (typeof row.value !== "boolean") row.value = true;
      return select([["true", "true"], ["false", "false"]], String(row.value), { "aria-label": "Value", onchange: e => set(e.target.value === "true") });
    }
    if (type === "selection") {
      const values = [...attribute.values];
      if (!values.includes(row.value)) { if (row.value === "") row.value = values[0]; else values.push(row.value); }
      return select(values, row.value, { "aria-label": "Value", onchange: e => set(e.target.value) });
    }
    const isNumber = type === "number" || typeof row.value === "number" || ["gt", "ge", "lt", "le"].includes(row.match) && !["date", "time", "timestamp"].includes(type);
    return h("input", { "aria-label": "Value", type: isNumber ? "number" : "text", step: "any", value: row.value, placeholder: { country: "de", date: "2026-01-31", time: "08:30", timestamp: "2026-01-31T12:00:00Z" }[type] ?? "value",
      oninput: e => set(isNumber ? (e.target.value === "" ? "" : Number(e.target.value)) : e.target.value) });
  }

  function read() {
    if (raw === null) return fromTree(tree);
    if (raw.trim() === "") return null;
    try { return JSON.parse(raw); } catch { return undefined; }
  }

  replace(body, raw !== null ? rawForm() : group(tree, true));
  return Object.assign(body, { read });
}

// MARK: The tree of the form

/// Groups of one level below the first can be shown as a form; `undefined` for anything else.
function toTree(value) {
  if (value === null || value === undefined || (isGroup(value) && value.length === 0)) return { all: true, rows: [] };
  const row = toRow(value);
  if (row) return { all: true, rows: [row] };
  if (!isGroup(value) || value[0] === "not") return undefined;
  const rows = operands(value).map(o => toRow(o) ?? inner(o));
  return rows.includes(undefined) ? undefined : { all: value[0] === "and", rows };
}

const operands = value => ["and", "or"].includes(value[0]) ? value.slice(1) : value;

function inner(value) {
  if (!isGroup(value) || value[0] === "not") return undefined;
  const rows = operands(value).map(toRow);
  return rows.includes(undefined) ? undefined : { all: value[0] === "and", rows };
}

function toRow(value) {
  if (isGroup(value)) {
    if (value[0] !== "not" || value.length !== 2) return undefined;
    const row = toRow(value[1]);
    return row && !row.not ? { ...row, not: true } : undefined;
  }
  if (typeof value !== "object" || value === null) return undefined;
  if (typeof value.segment === "string" && Object.keys(value).length === 1) return { segment: value.segment };
  if (value.type !== "custom_attribute" || typeof value.name !== "string") return undefined;
  return { name: value.name, match: value.match ?? "exact", value: value.value };
}

function fromTree(node) {
  const rows = node.rows.map(row => {
    if (row.rows) return row.rows.length ? fromTree(row) : undefined;
    const plain = row.segment !== undefined ? { segment: row.segment }
      : { type: "custom_attribute", name: row.name, match: row.match, ...(row.match === "exists" ? {} : { value: row.value }) };
    return row.not ? ["not", plain] : plain;
  }).filter(row => row !== undefined);
  if (rows.length === 0) return null;
  return rows.length === 1 ? rows[0] : [node.all ? "and" : "or", ...rows];
}
