package page_test

import (
	"testing"
	"time"
	"unicode/utf8"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"croft"
	"croft/control/api"
	"croft/internal/testing/browser"
)

// hands use the page as people do, and count what they do.
type hands struct {
	*browser.Browser
	t            *testing.T
	mouse        bool // else the keyboard alone
	clicks, keys int
}

func (h *hands) click(selector string) {
	h.t.Helper()
	h.clicks++
	h.Do(chromedp.Click(selector))
}

func (h *hands) types(text string) {
	h.t.Helper()
	h.keys += utf8.RuneCountInString(text)
	h.Type(text)
}

// press clicks at an element, or types a text that does the same.
func (h *hands) press(selector, keys string) {
	h.t.Helper()
	h.Until(`document.readyState === "complete"`) // people are no faster than the page
	if h.mouse {
		h.click(selector)
	} else {
		h.types(keys)
	}
}

// into leads to a field: with the mouse by a click, else by Tab.
func (h *hands) into(selector string) {
	h.t.Helper()
	if h.mouse {
		h.click(selector)
		return
	}
	for range 60 {
		if browser.Eval[bool](h.Browser, `document.activeElement.matches('`+selector+`')`) {
			return
		}
		h.types(kb.Tab)
	}
	h.t.Fatalf("Tab does not lead to %s", selector)
}

// firstVM does what a new user does first, in the page alone: log in, first VM, console, snapshot, remove.
func firstVM(t *testing.T, s served, b *browser.Browser, mouse bool) {
	t.Helper()
	h := &hands{Browser: b, t: t, mouse: mouse}
	b.Do(chromedp.EmulateViewport(1280, 900))
	begun := time.Now()
	b.Go(s.url + "/ui")
	b.Until(`document.activeElement.id === "token"`)
	h.types("berta")
	h.press("form .main", "\r")
	b.Until(`document.querySelector(".empty a.main") !== null`)
	h.press(".empty a.main", "c")

	b.Until(`document.activeElement.id === "image"`)
	h.types("debian-12")
	h.into("#name")
	h.types("first")
	b.Until(`document.querySelector("[data-part=verdict] .good") !== null`)
	h.press("#new button.main", "\r")
	b.Until(`document.querySelector(".head .state").innerText.includes("running") &&
		document.querySelector("#live.on") !== null`)
	at := browser.Eval[string](b, "location.pathname")

	h.press(`[data-key="t"]`, "t")
	b.Until(`document.querySelector("#attached.on") !== null && document.activeElement.closest("#terminal") !== null`)
	h.types("hello\r")
	b.Until(`document.querySelector("#terminal").innerText.includes("hello")`)
	if mouse {
		h.click("[data-up]")
	} else {
		h.keys++
		b.Do(chromedp.KeyEvent(kb.F6, chromedp.KeyModifiers(chromedp.ModifierCtrl)))
		h.types("u")
	}

	b.Until(`location.pathname === "` + at + `" && document.querySelector("#live.on") !== null`)
	h.press(`[data-key="s"]`, "s")
	b.Until(`document.activeElement.id === "name"`)
	h.types("before")
	h.press("main button.main", "\r")
	b.Until(`location.pathname === "` + at + `" && document.querySelector("#live.on") !== null`)
	b.Until(`/before\s+● (ready|available)/.test(document.querySelector("[data-region=disks]").innerText)`)

	h.press(`[data-key="#"]`, "#")
	b.Until(`document.activeElement.name === "snapshots"`)
	h.press("[name=snapshots]", " ")
	h.into("#typed")
	h.types("first")
	h.press("main button.danger", "\r")
	b.Until(`location.pathname === "/ui/instances"`)
	b.Until(`document.querySelector(".empty, tr.gone") !== null`)
	t.Logf("log in, first VM, console, snapshot, remove: %v, %d clicks, %d keys", time.Since(begun).Round(
		10*time.Millisecond), h.clicks, h.keys)
	b.Go(s.url + "/ui/instances")
	b.Until(`document.querySelector(".empty") !== null`)
	b.Do(chromedp.Click(`form[action="/ui/logout"] button`))
	b.Until(`document.querySelector("#token") !== null`)
}

// welcome makes the size that new instances have by default, and a host with room for them.
func (s served) welcome(t *testing.T) {
	t.Helper()
	_, err := s.client(t, "operator").CreateSize(t.Context(), api.NewSize{Name: "tiny", Default: true,
		Resources: croft.Resources{croft.VCPU: 1, croft.MemoryMB: 256, croft.DiskGB: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cloud.AddHost(t.Context(), "host4", 6); err != nil {
		t.Fatal(err)
	}
}
