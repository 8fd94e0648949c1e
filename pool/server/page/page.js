// The server renders the page; this keeps it live. Each message has the sections that
// changed, as HTML, and ages are counted here.
"use strict";

const live = document.getElementById("live");

function age(ms) {
	const s = Math.max(0, Math.floor(ms / 1000));
	if (s < 100) return s + " s";
	if (s < 6000) return Math.floor(s / 60) + " min";
	if (s < 172800) return Math.floor(s / 3600) + " h";
	return Math.floor(s / 86400) + " days";
}

let ahead = 0; // of the server's clock

function tick() {
	for (const t of document.querySelectorAll("time[data-since]")) {
		const text = age(Date.now() - ahead - Date.parse(t.dateTime));
		if (t.textContent !== text) t.textContent = text;
	}
}

function say(text, kind) {
	if (live.textContent !== text) live.textContent = text;
	live.className = kind;
}

function listen() {
	const events = new EventSource("events");
	events.onmessage = (e) => {
		const news = JSON.parse(e.data);
		ahead = Date.now() - Date.parse(news.now);
		for (const [id, html] of Object.entries(news.sections)) {
			const section = document.getElementById(id);
			const left = section.scrollLeft;
			section.innerHTML = html;
			section.scrollLeft = left;
		}
		tick();
		say("live", "on");
	};
	events.onerror = () => {
		say("the server does not answer; trying again", "lost");
		if (events.readyState === EventSource.CLOSED) {
			setTimeout(listen, 2000);
		}
	};
}

setInterval(tick, 1000);
tick();
listen();
