// What consoles and screens share: a WebSocket to a guest that comes back after a break, and takes over when asked to.
"use strict";

// attach connects at with the server until the page goes. Its handlers are opened(socket), which gets each new socket,
// and closed(). The element #attached says how it is.
window.croftAttach = (at, opened, closed) => {
	const says = document.getElementById("attached"), take = document.getElementById("takeover");
	let tries = 0, waiting = 0, lost = false, heard = 0, current = null;
	const loaded = Date.now();
	const say = (text, kind) => {
		if (says.textContent !== text) says.textContent = text;
		says.className = "quiet " + kind;
	};
	// A guest that is off is not asked as often as a server that restarts: each refusal is in the action log.
	const again = (most = 5000) => {
		clearTimeout(waiting);
		waiting = setTimeout(open, Math.min(500 * 2 ** tries++, most));
	};
	function open(takeover) {
		clearTimeout(waiting);
		const url = new URL(at.dataset.socket, location.href);
		url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
		if (takeover === true) url.searchParams.set("takeover", "yes");
		const socket = new WebSocket(url);
		socket.binaryType = "arraybuffer";
		const began = heard = Date.now();
		current = socket;
		socket.addEventListener("message", () => { heard = Date.now(); });
		const first = () => {
			tries = 0;
			lost = false;
			take.hidden = true;
			say("attached", "on");
		};
		// A server that refuses says so at once: until then, the socket is not attached.
		const settled = setTimeout(() => { if (socket.readyState === WebSocket.OPEN) first(); }, 700);
		socket.addEventListener("message", first, { once: true });
		socket.addEventListener("close", (e) => {
			clearTimeout(settled);
			closed();
			const [, kind, text] = /^(\S*) ?(.*)$/.exec(e.reason);
			if (e.code === 4001) return say("the session has ended: reload the page, and log in", "lost");
			if (e.code === 4000 && kind === at.dataset.inUse) {
				take.hidden = false;
				say("attached elsewhere: take it over, and the other user loses it", "lost");
				// Perhaps by this page, before the connection broke or the page was loaded anew.
				if (lost || Date.now() - loaded < 4000) again();
				return;
			}
			if (e.code === 4000) {
				say(text, "lost");
				if (kind !== "not_found" && !kind.startsWith("forbidden")) again(60000);
				return;
			}
			lost = e.code !== 1000;
			if (Date.now() - began > 5000) tries = 0;
			say(lost ? "the server does not answer; trying again" : "it ended; attaching again", "lost");
			again();
		});
		opened(socket);
	}
	setInterval(() => { // a connection that broke without a word is not closed by the browser
		if (!current || current.readyState !== WebSocket.OPEN || Date.now() - heard < quietTime) return;
		say("the server has not answered for " + Math.round((Date.now() - heard) / 1000) + " s; attaching again", "lost");
		current.close();
		heard = Date.now();
		current = null;
		open();
	}, 5000);
	take.addEventListener("click", () => { take.hidden = true; open(true); });
	open();
};
