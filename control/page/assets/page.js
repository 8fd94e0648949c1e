// The server renders every page, and each works without this. This adds live rows, keys and small comforts.
"use strict";

document.documentElement.classList.add("scripts");
const $ = (selector) => document.querySelector(selector);
const live = $("#live");
const list = $("[data-list]");

// After an action or an error, the keyboard continues at the message. Where a form was refused, the address is that of
// the form: the page of the object has its own.
const told = $("[data-told]");
if (told) told.focus();

// A form whose session has ended: the login of the cloud has it in its own form, and leads back to it. The issuer's login
// leads to another site, and a page after it sends the form on.
const onward = $("form[data-onward]");
if (onward) onward.requestSubmit();
const keepTime = 600000; // as long as the login at an issuer may take
const issuer = $("[data-issuer]");
if (issuer && $("[name=kept-at]")) issuer.addEventListener("click", () => {
	const all = [...issuer.closest(".login").querySelectorAll("[name^='kept.']")].map((f) => [f.name.slice(5), f.value]);
	sessionStorage.setItem("kept", JSON.stringify({ at: $("[name=kept-at]").value, all, since: Date.now() }));
});
const kept = document.body.classList.contains("in") && JSON.parse(sessionStorage.getItem("kept"));
if (kept) sessionStorage.removeItem("kept");
if (kept && Date.now() - kept.since < keepTime) {
	const form = document.createElement("form");
	form.method = "post";
	form.action = kept.at;
	for (const [name, value] of [...kept.all, ["form", $("[name=form]").value], ["again", "yes"]]) {
		const field = document.createElement("input");
		field.type = "hidden";
		field.name = name;
		field.value = value;
		form.append(field);
	}
	document.body.append(form);
	HTMLFormElement.prototype.submit.call(form); // a field may have the name of the method
}
const own = $("[data-at]");
if (own && new URL(own.dataset.at, location).pathname !== location.pathname) history.replaceState(null, "", own.dataset.at);
if (location.hash.length > 1) { // an operation of the reference
	const part = document.getElementById(location.hash.slice(1));
	if (part && part.matches("details")) part.open = true;
}
const here = $(".bar nav [aria-current]");
if (here) {
	const nav = here.closest("nav");
	nav.scrollLeft = here.getBoundingClientRect().left - nav.getBoundingClientRect().left - nav.clientWidth / 3;
}

function age(seconds) {
	if (seconds < 60) return Math.max(0, Math.floor(seconds)) + "s";
	if (seconds < 3600) return Math.floor(seconds / 60) + "m";
	if (seconds < 172800) return Math.floor(seconds / 3600) + "h";
	return Math.floor(seconds / 86400) + "d";
}

// The server's clock counts: that of a browser can be wrong. The page has the server's time of its answer.
const [answer] = performance.getEntriesByType("navigation");
const ahead = Date.parse(document.body.dataset.now) - (performance.timeOrigin + (answer ? answer.responseStart : 0));
const now = () => Date.now() + ahead;

setInterval(() => {
	for (const t of document.querySelectorAll("time[data-ago]")) {
		const text = age((now() - Date.parse(t.dateTime)) / 1000);
		if (t.textContent !== text) t.textContent = text;
	}
	for (const t of document.querySelectorAll("time[data-until]")) {
		const left = (Date.parse(t.dateTime) - now()) / 1000;
		const text = left > 0 ? "in " + age(left) : "now";
		if (t.textContent !== text) t.textContent = text;
	}
}, 5000);

// Lists: a row is replaced cell by cell, so that focus, picks and positions stay.
function patch(row, html) {
	const holder = document.createElement("template");
	holder.innerHTML = html;
	const next = holder.content.querySelector("tr");
	if (!next || next.cells.length !== row.cells.length) return;
	let changed = false;
	for (let i = 0; i < row.cells.length; i++) {
		const was = row.cells[i], is = next.cells[i];
		if (was.classList.contains("pick") || was.innerHTML === is.innerHTML) continue;
		if (was.contains(document.activeElement)) continue;
		was.innerHTML = is.innerHTML;
		changed ||= !is.querySelector("time[data-ago]");
	}
	row.classList.remove("gone");
	if (changed) {
		row.classList.remove("new");
		void row.offsetWidth;
		row.classList.add("new");
	}
}

const unseen = new Set(); // instances that changed and are not in the list

function say(text, kind) {
	if (!live) return;
	if (live.textContent !== text) live.textContent = text;
	live.className = "quiet " + kind;
}

function sayLive() {
	if (unseen.size === 0) return say("live", "on");
	say("live; " + unseen.size + " more changed: ", "on");
	const again = document.createElement("a");
	again.href = location.href;
	again.textContent = "show";
	live.append(again);
}

// The page of one instance: its regions are fetched again and replaced where they differ.
let fetching = false, again = false;
async function refresh() {
	if (fetching) { again = true; return; }
	fetching = true;
	try {
		const answer = await fetch(location.pathname + location.search, { redirect: "manual" });
		if (answer.status === 404) { say("it is gone", "lost"); return; }
		if (!answer.ok) return;
		const next = new DOMParser().parseFromString(await answer.text(), "text/html");
		for (const region of document.querySelectorAll("[data-region]")) {
			const is = next.querySelector(`[data-region="${region.dataset.region}"]`);
			if (!is || region.contains(document.activeElement) || region.querySelector("details[open]")) continue;
			for (const status of is.querySelectorAll("#live")) status.replaceWith(live && region.contains(live) ? live.cloneNode(true) : status);
			if (region.dataset.region === "head") {
				const was = region.querySelector(".state"), now = is.querySelector(".state");
				if (was && now && was.outerHTML !== now.outerHTML) was.replaceWith(now);
			} else if (region.innerHTML !== is.innerHTML) {
				region.innerHTML = is.innerHTML;
			}
		}
		for (const version of document.querySelectorAll("form:not(:focus-within) [name=version]")) {
			const now = next.querySelector("[name=version]");
			if (!now || version.value === now.value || version.form.dataset.touched) continue;
			const is = next.querySelector(`form[action="${CSS.escape(version.form.getAttribute("action"))}"]`) || now.form;
			for (const field of version.form.querySelectorAll("[name=version], [name^=was-]")) {
				const value = is.querySelector(`[name="${field.name}"]`);
				if (value) field.value = value.value;
			}
		}
	} finally {
		fetching = false;
		if (again) { again = false; setTimeout(refresh, 300); }
	}
}

document.addEventListener("input", (e) => { if (e.target.form) e.target.form.dataset.touched = "yes"; });

// Between the rendering of the page and the start of a stream, rows can change: they are read once more.
async function reread() {
	const answer = await fetch(location.pathname + location.search, { redirect: "manual" });
	if (!answer.ok) return;
	const next = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-list]");
	if (!next) return location.reload(); // no row is left
	const rows = list.tBodies[0];
	const used = rows.querySelector("input:checked") || rows.contains(document.activeElement);
	if (!used) return rows.replaceWith(next.tBodies[0]);
	for (const row of rows.rows) {
		const is = next.querySelector("#" + CSS.escape(row.id));
		if (is) patch(row, is.outerHTML);
	}
}

const quietTime = 35000; // the server sends something every 10 seconds
let seen = ""; // the last event's ID

function follow() {
	const of = live.dataset.of;
	const from = new URL(live.dataset.follow, location.href);
	if (seen) from.searchParams.set("seen", seen);
	const events = new EventSource(from);
	let heard = Date.now();
	const over = new AbortController(); // aborted when another stream takes the place of this one, or none does
	const leave = () => { events.close(); over.abort(); };
	// A browser opens few connections to a server: hidden pages leave them to the others.
	let hidden = 0;
	document.addEventListener("visibilitychange", () => {
		clearTimeout(hidden);
		if (document.hidden) hidden = setTimeout(() => events.close(), 5000);
		else if (events.readyState === EventSource.CLOSED) {
			leave();
			follow();
		}
	}, { signal: over.signal });
	const watch = setInterval(() => { // a connection that broke without a word is not closed by the browser
		if (events.readyState === EventSource.CLOSED) return clearInterval(watch);
		if (Date.now() - heard < quietTime) return;
		leave();
		say("the server has not answered for " + Math.round((Date.now() - heard) / 1000) + " s; trying again", "lost");
		resume();
	}, 5000);
	for (const name of ["beat", "live", "row", "rows", "open"]) {
		events.addEventListener(name, (e) => { heard = Date.now(); seen = e.lastEventId || seen; });
	}
	let begun = false;
	events.addEventListener("live", () => {
		if (!begun && of) refresh();
		else if (!begun && list) reread();
		begun = true;
		sayLive();
	});
	events.addEventListener("row", (e) => {
		const change = JSON.parse(e.data);
		if (of === "any") refresh();
		else if (of) {
			const here = document.getElementById("i-" + change.id) || (change.html || "").includes(">" + live.dataset.host + "<");
			if (of === "*" ? here : change.id === of) refresh();
			return sayLive();
		}
		const row = document.getElementById("i-" + change.id);
		if (row && change.gone) row.classList.add("gone");
		else if (row) patch(row, change.html);
		else if (!change.gone && !change.other) unseen.add(change.id);
		else unseen.delete(change.id);
		sayLive();
	});
	events.addEventListener("rows", (e) => { // all that there are now
		const here = new Set(JSON.parse(e.data).map((id) => "i-" + id));
		for (const row of document.querySelectorAll("[data-list] tbody tr[id]")) if (!here.has(row.id)) row.classList.add("gone");
	});
	events.addEventListener("reload", () => { leave(); location.reload(); });
	events.addEventListener("refused", (e) => { leave(); say(JSON.parse(e.data), "lost"); });
	events.onopen = sayLive;
	events.onerror = () => {
		say("the server does not answer; trying again", "lost");
		if (events.readyState !== EventSource.CLOSED) return;
		leave();
		setTimeout(resume, 3000);
	};
	window.addEventListener("pagehide", () => events.close(), { signal: over.signal });
}

// Scripts do not see why a stream is refused. Where another page leads to the login, the session has ended.
async function resume() {
	try {
		const answer = await fetch("/ui/keys", { method: "HEAD", redirect: "manual" });
		if (answer.type === "opaqueredirect" && $("form[data-touched]")) return say("the session has ended: send the form, and log in", "lost");
		if (answer.type === "opaqueredirect") return location.reload();
	} catch { /* the server does not answer yet */ }
	follow();
}

if (live && live.dataset.follow) {
	follow();
	window.addEventListener("pageshow", (e) => { if (e.persisted) location.reload(); });
}

// Picked instances.
function count() {
	const picked = document.querySelectorAll(".pick input:checked").length;
	const says = $("#picked");
	if (!says) return;
	says.textContent = picked === 0 ? "Pick instances" : picked + (picked === 1 ? " instance picked" : " instances picked");
	for (const button of document.querySelectorAll("#bulk button")) button.disabled = picked === 0;
}
count();
window.addEventListener("pageshow", count); // browsers restore boxes after Back

// Links to the list lead to it as it was: filtered and sorted.
if (list && location.pathname === "/ui/instances") sessionStorage.setItem("instances", location.search);
const project = (search) => new URLSearchParams(search).get("project");
for (const back of document.querySelectorAll("main a")) {
	const was = sessionStorage.getItem("instances");
	if (was && location.pathname !== "/ui/instances" && back.pathname === "/ui/instances" && project(was) === project(back.search)) back.search = was;
}

document.addEventListener("change", (e) => {
	if (e.target.closest(".pick")) count();
	if (e.target.matches("select[data-submit]")) e.target.form.requestSubmit();
});

document.addEventListener("click", async (e) => {
	const copy = e.target.closest("[data-copy], [data-copy-of]");
	if (copy) {
		const of = document.getElementById(copy.dataset.copyOf);
		await navigator.clipboard.writeText(of ? of.textContent : copy.dataset.copy);
		copy.firstChild.textContent = "copied";
		setTimeout(() => { copy.firstChild.textContent = "copy"; }, 1500);
	}
	if (e.target.closest("[data-keys]")) {
		e.preventDefault();
		$("dialog#keyboard").showModal();
	}
});

// A form that the server checks while the user types. Parts of the page that show the outcome are replaced.
const checked = $("form[data-check]");
let typed, asking;
async function check() {
	if (asking) asking.abort();
	asking = new AbortController();
	const body = new URLSearchParams(new FormData(checked));
	body.set("part", "yes");
	let text = "";
	try {
		const answer = await fetch(checked.dataset.check, { method: "POST", body, redirect: "manual", signal: asking.signal });
		if (answer.status === 401) {
			$("[data-part=verdict]").textContent = "Not checked: the session has ended. Create asks for a login, and keeps the form.";
			return;
		}
		if (!answer.ok) throw new Error(answer.status);
		text = await answer.text();
	} catch (e) {
		if (e.name !== "AbortError") $("[data-part=verdict]").textContent = "Not checked: the server does not answer. Create tries all the same.";
		return;
	}
	const next = new DOMParser().parseFromString(text, "text/html");
	for (const part of document.querySelectorAll("[data-part]")) {
		const is = next.querySelector(`[data-part="${part.dataset.part}"]`);
		if (is && part.innerHTML !== is.innerHTML) part.innerHTML = is.innerHTML;
	}
	for (const field of checked.elements) {
		if (field.id && $(`.problems a[href="#${CSS.escape(field.id)}"]`)) field.setAttribute("aria-invalid", "true");
		else field.removeAttribute("aria-invalid");
	}
}

if (checked) {
	checked.addEventListener("input", (e) => {
		const size = checked.querySelector("[data-size]");
		if (size && e.target.matches("[data-amount]") && e.target.value) size.value = ""; // the amounts count
		if (e.target === size && size.value) for (const amount of checked.querySelectorAll("[data-amount]")) amount.value = "";
		clearTimeout(typed);
		typed = setTimeout(check, 250);
	});
	if (checked.elements.image.value) check();
}

// Keys, as in mail programs.
let at = -1, first = "";
function move(by) {
	const rows = [...list.tBodies[0].rows];
	if (rows.length === 0) return;
	if (at >= 0 && rows[at]) rows[at].classList.remove("at");
	at = Math.min(rows.length - 1, Math.max(0, at + by));
	rows[at].classList.add("at");
	const link = rows[at].querySelector("th a, td a");
	if (!link) rows[at].tabIndex = -1;
	(link || rows[at]).focus({ preventScroll: true });
	rows[at].scrollIntoView({ block: "nearest" });
}

// The key that leads back to a list leads to the row that was opened there.
document.addEventListener("click", (e) => {
	const link = e.target.closest("[data-list] tbody th a");
	if (link) sessionStorage.setItem("opened", JSON.stringify([location.pathname, link.closest("tr").id]));
});
if (list && sessionStorage.getItem("back")) {
	const [path, id] = JSON.parse(sessionStorage.getItem("opened") || "[]");
	const row = path === location.pathname ? [...list.tBodies[0].rows].findIndex((row) => row.id === id) : -1;
	if (row >= 0) move(row + 1);
}
sessionStorage.removeItem("back");

document.addEventListener("keydown", (e) => {
	if (e.ctrlKey || e.metaKey || e.altKey || e.isComposing) return;
	if (e.target.matches("input:not([type=checkbox]), textarea, select")) {
		if (e.key === "Escape") e.target.blur();
		return;
	}
	if ($("dialog[open]")) return;
	if ($("[data-socket]") && document.activeElement === document.body) return; // it was meant for a guest
	const row = list && at >= 0 ? list.tBodies[0].rows[at] : null;
	const key = first + e.key;
	first = e.key === "g" && first === "" ? "g" : "";
	const go = (selector) => { const to = $(selector); if (to) to.click(); };
	switch (key) {
	case "j": if (list) move(1); break;
	case "k": if (list) move(-1); break;
	case "x": {
		const box = row && row.querySelector(".pick input");
		if (box) { box.checked = !box.checked; count(); }
		break;
	}
	case "/": {
		const search = $("[data-search]");
		if (search) { e.preventDefault(); search.focus(); search.select(); }
		break;
	}
	case "u": if ($("[data-up]")) sessionStorage.setItem("back", "yes"); go("[data-up]"); break;
	case "c": go('nav a[href*="/instances/new"]'); break;
	case "gh": go('nav a[href="/ui/hosts"]'); break;
	case "gd": go('nav a[href*="/ui/dashboard"]'); break;
	case "gp": go('nav a[href^="/ui/project"]'); break;
	case "gi": go('nav a[href*="/instances"]'); break;
	case "?": if ($("dialog#keyboard")) $("dialog#keyboard").showModal(); break;
	default: go(`[data-key="${CSS.escape(key)}"]`);
	}
});
