package server_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"croft/internal/testing/patient"
	"croft/pool/api"
)

// browser is a page in Chromium, with its errors.
type browser struct {
	context.Context

	t        *testing.T
	mu       sync.Mutex
	troubles []string
}

// open opens a page in Chromium, on a phone's screen.
func open(t *testing.T, url string) *browser {
	t.Helper()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium here")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()), chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-background-networking", true))
	ctx, end := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(end)
	ctx, closed := chromedp.NewContext(ctx)
	t.Cleanup(closed)
	b := &browser{Context: ctx, t: t}
	if err := chromedp.Listen(ctx, b.note); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.EmulateViewport(390, 844))
	run(b, chromedp.Navigate(url))
	b.until(isLive)
	return b
}

// isLive is true in a page that receives updates.
const isLive = `document.querySelector("#live.on") !== null`

func (b *browser) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.troubles = append(b.troubles, e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		b.troubles = append(b.troubles, fmt.Sprint(e.Type, e.Args))
	}
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	for _, action := range actions {
		run(b, action)
	}
}

// run runs an action, within the time limit of a test.
func run[T any](b *browser, action chromedp.Action[T]) T {
	b.t.Helper()
	value, err := chromedp.Run(b, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

// eval returns the value of an expression in the page.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	return run(b, chromedp.Evaluate[T](expression))
}

// prefer sets the preferred color scheme of the page's reader.
func (b *browser) prefer(scheme string) {
	b.do(func(ctx context.Context, t *chromedp.Target) (none chromedp.Void, err error) {
		_, err = cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return none, err
	})
}

// until waits until an expression is true in the page. During navigation there is no page to evaluate it in.
func (b *browser) until(expression string) {
	b.t.Helper()
	for deadline := patient.Deadline(b.t); ; {
		is, err := chromedp.Run(b, chromedp.Evaluate[bool](expression))
		if err == nil && is {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("never came true: %s (%v)\n%s", expression, err, eval[string](b, "document.body.innerText"))
		}
		<-time.After(20 * time.Millisecond)
	}
}

// shot saves a screenshot if a directory for them is configured.
func (b *browser) shot(name string) {
	dir := os.Getenv("CROFT_TEST_SHOTS")
	if dir == "" {
		return
	}
	picture := run(b, chromedp.FullScreenshot(100))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o600); err != nil {
		b.t.Error(err)
	}
}

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
	eval[bool](b, "window.stayed = true")
	text := "document.body.innerText"

	c := client(t, ci, m.URL)
	ready := opened(t, c, "x86_64")
	if _, err := c.Wait(bounded(t), ready.ID, api.Waiting{}); err != nil {
		t.Fatal(err)
	}
	opened(t, c, "nonesuch")
	b.until(`document.querySelector("#tickets caption").innerText === "2 open tickets, 1 waiting"`)
	b.until(text + `.includes("no pool has the tag nonesuch")`)
	b.until(`[...document.querySelectorAll("#resources .badge")].some(e => e.innerText === "taken")`)
	b.until(`/\d+ s/.test(document.querySelector("#tickets time").innerText)`)
	if !eval[bool](b, "window.stayed === true") {
		t.Error("the page was loaded anew")
	}
	if html := eval[string](b, "document.documentElement.outerHTML"); strings.Contains(html, "secret-") {
		t.Error("the page shows data to somebody without a token")
	}
	if wide := eval[string](b,
		`document.documentElement.scrollWidth > innerWidth ? "body" : [...document.querySelectorAll("section")].filter(s => s.scrollWidth > s.clientWidth).map(s => s.id).join()`); wide != "" {
		t.Errorf("on a phone one has to move sideways: %s", wide)
	}
	for _, scheme := range []string{"light", "dark"} {
		b.prefer(scheme)
		if bad := eval[string](b, lowContrast); bad != "" {
			t.Errorf("hard to read when it is %s: %s", scheme, bad)
		}
		b.shot("phone-" + scheme)
	}

	b.do(chromedp.EmulateViewport(1280, 900), chromedp.SendKeys("input[name=token]", boss+"\r"))
	b.until(`document.querySelector("form[action=logout]") !== null && ` + isLive)
	b.until(text + `.includes("secret-1")`)
	b.shot("admin")
	b.do(chromedp.Click("form[action=logout] button"))
	b.until(`document.querySelector("form[action=login]") !== null && ` + isLive)
	if strings.Contains(eval[string](b, text), "secret-") {
		t.Error("who signed out sees data still")
	}

	m.stop()
	b.until(`document.querySelector("#live").innerText.includes("does not answer")`)
	foreign := eval[string](b,
		`performance.getEntriesByType("resource").map(e => e.name).filter(n => !n.startsWith(location.origin) && !n.startsWith("data:")).join()`)
	if foreign != "" {
		t.Errorf("the page asks elsewhere: %s", foreign)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.troubles) > 0 {
		t.Errorf("the page complains: %q", b.troubles)
	}
}
