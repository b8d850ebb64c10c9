import { h } from "./dom.js";
import { page, empty } from "./parts.js";
export async function show() { return page("Flags", {}, empty("This server has no flags", "An older release has experiments only.")); }
