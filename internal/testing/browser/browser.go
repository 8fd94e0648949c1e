// Package browser opens pages in Chromium for tests.
package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"croft/internal/testing/patient"
)

// Browser is a page in Chromium, with its errors.
type Browser struct {
	context.Context

	t        *testing.T
	mu       sync.Mutex
	troubles []string
}

// Open opens a page in Chromium, on a phone's screen. Without Chromium it skips the test.
func Open(t *testing.T, url string) *Browser {
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
	b := &Browser{Context: ctx, t: t}
	if err := chromedp.Listen(ctx, b.note); err != nil {
		t.Fatal(err)
	}
	b.Do(chromedp.EmulateViewport(390, 844))
	b.Go(url)
	return b
}

// Go opens another page.
func (b *Browser) Go(url string) {
	b.t.Helper()
	Run(b, chromedp.Navigate(url))
}

func (b *Browser) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.troubles = append(b.troubles, e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		b.troubles = append(b.troubles, fmt.Sprint(e.Type, e.Args))
	}
}

// Troubles returns the errors of scripts, and what they wrote to the console.
func (b *Browser) Troubles() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.troubles
}

// Do runs actions.
func (b *Browser) Do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	for _, action := range actions {
		Run(b, action)
	}
}

// Run runs an action, within the time limit of the test.
func Run[T any](b *Browser, action chromedp.Action[T]) T {
	b.t.Helper()
	value, err := chromedp.Run(b, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

// Eval returns the value of an expression in the page.
func Eval[T any](b *Browser, expression string) T {
	b.t.Helper()
	return Run(b, chromedp.Evaluate[T](expression))
}

// Prefer sets the preferred color scheme of the page's reader.
func (b *Browser) Prefer(scheme string) {
	b.Do(func(ctx context.Context, t *chromedp.Target) (none chromedp.Void, err error) {
		_, err = cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return none, err
	})
}

// Type presses keys as a keyboard does: a script that handles a key keeps its character from being typed.
func (b *Browser) Type(keys string) {
	b.t.Helper()
	b.Do(func(ctx context.Context, t *chromedp.Target) (none chromedp.Void, err error) {
		for _, r := range keys {
			events := kb.Encode(r)
			down, up := events[0], events[len(events)-1]
			if len(events) == 3 { // the one between types the character in any case
				down.Text, down.UnmodifiedText = events[1].Text, events[1].UnmodifiedText
			}
			for _, e := range []*input.DispatchKeyEventParams{down, up} {
				if _, err := cdp.Call(ctx, t, input.DispatchKeyEvent, *e); err != nil {
					return none, err
				}
			}
		}
		return none, nil
	})
}

// Until waits until an expression is true in the page. During navigation there is no page to evaluate it in.
func (b *Browser) Until(expression string) {
	b.t.Helper()
	for deadline := patient.Deadline(b.t); ; {
		is, err := chromedp.Run(b, chromedp.Evaluate[bool](expression))
		if err == nil && is {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("never came true: %s (%v)\n%s", expression, err, Eval[string](b, "document.body.innerText"))
		}
		<-time.After(20 * time.Millisecond)
	}
}

// Shot saves a screenshot if the variable CROFT_TEST_SHOTS names a directory for them.
func (b *Browser) Shot(name string) {
	dir := os.Getenv("CROFT_TEST_SHOTS")
	if dir == "" {
		return
	}
	picture := Run(b, chromedp.FullScreenshot(100))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o600); err != nil {
		b.t.Error(err)
	}
}
