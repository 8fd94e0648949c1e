// The terminal of a console.
// The terminal sets styles in ways that the page's policy refuses to markup. Scripts may set them, so they are set so.
const make = document.createElement.bind(document);
document.createElement = (name, ...more) => {
	if (name !== "style") return make(name, ...more);
	const holder = make("template"), sheet = new CSSStyleSheet();
	document.adoptedStyleSheets.push(sheet);
	Object.defineProperty(holder, "textContent", { set: (text) => sheet.replaceSync(text), get: () => "" });
	return holder;
};
const set = Element.prototype.setAttribute;
Element.prototype.setAttribute = function (name, value) {
	if (name === "style") this.style.cssText = value;
	else set.call(this, name, value);
};

const at = document.getElementById("terminal");
const terminal = new Terminal({
	cols: 80, rows: 24, scrollback: 5000, fontFamily: "ui-monospace, 'DejaVu Sans Mono', monospace",
	linkHandler: { activate: () => {} }, // a guest's links lead nowhere
	minimumContrastRatio: 4.5, screenReaderMode: false,
	theme: { background: "#12161a", foreground: "#e6e9ec", cursor: "#9cc2ff", selectionBackground: "#3a5f8f" },
});
// The letters fill the window: 80 columns of 0.605 em, and 24 lines of 1.2 em below the head of the page.
const fit = () => {
	const wide = (at.parentElement.clientWidth - 64) / 80 / 0.605, high = Math.max(13, (innerHeight - 300) / 24 / 1.2);
	return Math.max(10, Math.min(22, Math.floor(wide), Math.floor(high)));
};
terminal.options.fontSize = fit();
terminal.open(at);

let socket = null;
const encoder = new TextEncoder();
const history = Uint8Array.from(atob(at.dataset.history), (c) => c.charCodeAt(0));
// What the guest wrote before is only shown: nothing answers the questions of its escape sequences.
terminal.options.convertEol = true;
terminal.write(history, () => {
	terminal.options.convertEol = false;
	const send = (bytes) => { if (socket && socket.readyState === WebSocket.OPEN) socket.send(bytes); };
	terminal.onData((text) => send(encoder.encode(text)));
	terminal.onBinary((text) => send(Uint8Array.from(text, (c) => c.charCodeAt(0))));
	croftAttach(at, (s) => {
		socket = s;
		s.addEventListener("message", (e) => { if (typeof e.data !== "string") terminal.write(new Uint8Array(e.data)); });
	}, () => {});
	terminal.focus();
});

terminal.attachCustomKeyEventHandler((e) => {
	if (e.type !== "keydown") return true;
	if (e.ctrlKey && e.key === "F6") {
		document.getElementById("copy").focus();
		return false;
	}
	if (e.ctrlKey && e.shiftKey && e.code === "KeyC") {
		e.preventDefault();
		copy();
		return false;
	}
	return !(e.ctrlKey && e.shiftKey && e.code === "KeyV"); // the browser pastes
});

async function copy() {
	const text = terminal.getSelection();
	if (text && navigator.clipboard) await navigator.clipboard.writeText(text);
	terminal.focus();
}
document.getElementById("copy").addEventListener("click", copy);
document.getElementById("paste").addEventListener("click", async () => {
	if (navigator.clipboard) terminal.paste(await navigator.clipboard.readText().catch(() => ""));
	terminal.focus();
});
const size = (by) => { terminal.options.fontSize = Math.max(8, Math.min(28, terminal.options.fontSize + by)); };
document.getElementById("larger").addEventListener("click", () => size(1));
document.getElementById("smaller").addEventListener("click", () => size(-1));
