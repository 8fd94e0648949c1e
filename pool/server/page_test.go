package server_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"croft/internal/testing/browser"
	"croft/pool/api"
)

// open opens a page in Chromium that receives updates.
func open(t *testing.T, url string) *browser.Browser {
	t.Helper()
	b := browser.Open(t, url)
	b.Until(isLive)
	return b
}

// isLive is true in a page that receives updates.
const isLive = `document.querySelector("#live.on") !== null`

// lowContrast lists texts with too little contrast, by the measure of WCAG 2.1 for small text.
const lowContrast = `(() => {
	const parse = c => { const m = c.match(/[\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m };
	const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126*r + .7152*g + .0722*b };
	const behind = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] > 0) return c } return [255,255,255,1] };
	const bad = [];
	for (const e of document.querySelectorAll("body *")) {
		if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
		const a = light(parse(getComputedStyle(e).color).slice(0, 3)), b = light(behind(e).slice(0, 3));
		const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		if (ratio < 4.5) bad.push(e.tagName + "." + e.className + " " + e.textContent.trim().slice(0, 20) + " " + ratio.toFixed(2));
	}
	return bad.join("; ");
})()`

// TestThePageInABrowser tests the page in Chromium.
func TestThePageInABrowser(t *testing.T) {
	m, ci, boss := one(t)
	awaitLeader(t, m)
	b := open(t, m.URL)
	browser.Eval[bool](b, "window.stayed = true")
	text := "document.body.innerText"

	c := client(t, ci, m.URL)
	ready := opened(t, c, "x86_64")
	if _, err := c.Wait(bounded(t), ready.ID, api.Waiting{}); err != nil {
		t.Fatal(err)
	}
	opened(t, c, "nonesuch")
	b.Until(`document.querySelector("#tickets caption").innerText === "2 open tickets, 1 waiting"`)
	b.Until(text + `.includes("no pool has the tag nonesuch")`)
	b.Until(`[...document.querySelectorAll("#resources .badge")].some(e => e.innerText === "taken")`)
	b.Until(`/\d+ s/.test(document.querySelector("#tickets time").innerText)`)
	if !browser.Eval[bool](b, "window.stayed === true") {
		t.Error("the page was loaded anew")
	}
	if html := browser.Eval[string](b, "document.documentElement.outerHTML"); strings.Contains(html, "secret-") {
		t.Error("the page shows data to somebody without a token")
	}
	if wide := browser.Eval[string](b,
		`document.documentElement.scrollWidth > innerWidth ? "body" : [...document.querySelectorAll("section")].filter(s => s.scrollWidth > s.clientWidth).map(s => s.id).join()`); wide != "" {
		t.Errorf("on a phone one has to move sideways: %s", wide)
	}
	for _, scheme := range []string{"light", "dark"} {
		b.Prefer(scheme)
		if bad := browser.Eval[string](b, lowContrast); bad != "" {
			t.Errorf("hard to read when it is %s: %s", scheme, bad)
		}
		b.Shot("phone-" + scheme)
	}

	b.Do(chromedp.EmulateViewport(1280, 900), chromedp.SendKeys("input[name=token]", boss+"\r"))
	b.Until(`document.querySelector("form[action=logout]") !== null && ` + isLive)
	b.Until(text + `.includes("secret-1")`)
	b.Shot("admin")
	b.Do(chromedp.Click("form[action=logout] button"))
	b.Until(`document.querySelector("form[action=login]") !== null && ` + isLive)
	if strings.Contains(browser.Eval[string](b, text), "secret-") {
		t.Error("who signed out sees data still")
	}

	m.stop()
	b.Until(`document.querySelector("#live").innerText.includes("does not answer")`)
	foreign := browser.Eval[string](b,
		`performance.getEntriesByType("resource").map(e => e.name).filter(n => !n.startsWith(location.origin) && !n.startsWith("data:")).join()`)
	if foreign != "" {
		t.Errorf("the page asks elsewhere: %s", foreign)
	}
	if troubles := b.Troubles(); len(troubles) > 0 {
		t.Errorf("the page complains: %q", troubles)
	}
}
