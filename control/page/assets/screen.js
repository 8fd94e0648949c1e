// The screen of a guest, by the protocol of VNC.
const at = document.getElementById("screen");
const { default: RFB } = await import(at.dataset.novnc);
const text = document.getElementById("text");
let screen = null;

croftAttach(at, (socket) => {
	at.replaceChildren();
	screen = new RFB(at, socket, { shared: true });
	screen.scaleViewport = true;
	screen.background = "#12161a";
	screen.addEventListener("connect", () => screen.focus());
	screen.addEventListener("clipboard", (e) => { text.value = e.detail.text; });
}, () => { screen = null; });

document.getElementById("ctrl-alt-del").addEventListener("click", () => {
	if (screen) { screen.sendCtrlAltDel(); screen.focus(); }
});
document.getElementById("full").addEventListener("click", () => at.requestFullscreen());
// The guest's keyboard has the keys of a US one: what it has above a key needs Shift, which servers do not add.
const above = new Set('~!@#$%^&*()_+{}|:"<>?');
function type(c) {
	if (c === "\n") return screen.sendKey(0xff0d, "Enter");
	const point = c.codePointAt(0), shift = above.has(c) || /^[A-Z]$/.test(c);
	if (shift) screen.sendKey(0xffe1, "ShiftLeft", true);
	screen.sendKey(point < 0x100 ? point : 0x01000000 + point, null);
	if (shift) screen.sendKey(0xffe1, "ShiftLeft", false);
}
document.getElementById("type").addEventListener("submit", (e) => {
	e.preventDefault();
	if (!screen) return;
	screen.clipboardPasteFrom(text.value);
	for (const c of text.value) type(c);
	text.value = "";
	screen.focus();
});
// The way out has to be seen before the screen takes the key.
document.addEventListener("keydown", (e) => {
	if (e.ctrlKey && e.key === "F6" && at.contains(document.activeElement)) {
		e.preventDefault();
		e.stopPropagation();
		document.getElementById("ctrl-alt-del").focus();
	}
}, true);
