// Command pictures writes pictures of the page: of each view at three widths, in light and dark colors.
//
//	bin/croft page --print | go run ./cmd/pictures -o docs/pictures VIEWS
//
// The input is a link that logs in. VIEWS is a file with a line for each view: the name of its pictures, its path, and
// perhaps a key that is pressed there first. A picture NAME-WIDTH-SCHEME.webp shows at most the first 1,800 pixels of
// a view. Chromium must be installed.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// widths are a phone's, a laptop's and a large screen's, in pixels.
var widths = []int64{360, 1280, 2560}

const (
	tallest = 1800 // pixels
	quality = 60   // of WebP
	patient = 5 * time.Minute
)

func main() {
	dir := flag.String("o", "", "write the pictures into this `directory`")
	flag.Parse()
	if *dir == "" || flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: croft page --print | pictures -o DIR VIEWS")
		os.Exit(2)
	}
	if err := run(*dir, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(dir, file string) error {
	views, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	link, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return fmt.Errorf("read the link of croft page --print from the input: %w", err)
	}
	site, err := url.Parse(strings.TrimSpace(link))
	if err != nil {
		return err
	}
	profile, err := os.MkdirTemp("", "pictures.")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(profile) }()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.UserDataDir(profile), chromedp.Flag("hide-scrollbars", true))
	if chromium, err := exec.LookPath("chromium"); err == nil {
		options = append(options, chromedp.ExecPath(chromium))
	}
	ctx, end := chromedp.NewExecAllocator(context.Background(), options...)
	defer end()
	ctx, closed := chromedp.NewContext(ctx)
	defer closed()
	if _, err := chromedp.Run(ctx, chromedp.Navigate(site.String())); err != nil {
		return err
	}
	for line := range strings.Lines(string(views)) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if len(words) < 2 {
			return fmt.Errorf("%s: want a name and a path in %q", file, line)
		}
		at, err := site.Parse(words[1])
		if err != nil {
			return err
		}
		if err := draw(ctx, filepath.Join(dir, words[0]), at.String(), words[2:]); err != nil {
			return fmt.Errorf("draw %s: %w", words[0], err)
		}
	}
	return nil
}

// draw writes all pictures of a view. It fails if the server has no such view.
func draw(ctx context.Context, name, at string, keys []string) error {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	for _, width := range widths {
		if err := open(ctx, at, width, keys); err != nil {
			return err
		}
		for _, scheme := range []string{"light", "dark"} {
			picture, err := shot(ctx, width, scheme)
			if err != nil {
				return err
			}
			if err := os.WriteFile(fmt.Sprintf("%s-%d-%s.webp", name, width, scheme), picture, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// open loads a view at a width, as a browser of this width does, and presses the keys.
func open(ctx context.Context, at string, width int64, keys []string) error {
	if _, err := chromedp.Run(ctx, chromedp.EmulateViewport(width, lowest(width))); err != nil {
		return err
	}
	if _, err := chromedp.Run(ctx, chromedp.Navigate(at)); err != nil {
		return err
	}
	status, err := chromedp.Run(ctx, chromedp.Evaluate[int](
		`performance.getEntriesByType("navigation")[0].responseStatus`))
	if err != nil {
		return err
	}
	if status != 200 {
		return fmt.Errorf("%s answers %d", at, status)
	}
	if err := live(ctx); err != nil {
		return err
	}
	for _, key := range keys {
		if _, err := chromedp.Run(ctx, chromedp.KeyEvent(key)); err != nil {
			return err
		}
	}
	return nil
}

// live waits until a view that shows changes as they happen has its event stream, and a console is attached.
func live(ctx context.Context) error {
	for {
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`document.readyState == "complete" &&
			[...document.querySelectorAll("#live, #attached")].every((e) => e.matches(".on"))`))
		if err != nil || is {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.New("the view never became live")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func lowest(width int64) int64 { return min(900, width*2) }

func shot(ctx context.Context, width int64, scheme string) ([]byte, error) {
	height := lowest(width)
	for range 2 { // the first time to lay it out, which tells its height
		if _, err := chromedp.Run(ctx, chromedp.EmulateViewport(width, height)); err != nil {
			return nil, err
		}
		all, err := chromedp.Run(ctx, chromedp.Evaluate[int64]("document.documentElement.scrollHeight"))
		if err != nil {
			return nil, err
		}
		height = min(max(all, height), tallest)
	}
	return chromedp.Run(ctx, func(ctx context.Context, t *chromedp.Target) ([]byte, error) {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		if err != nil {
			return nil, err
		}
		q := int64(quality)
		answer, err := cdp.Call(ctx, t, page.CaptureScreenshot, page.CaptureScreenshotParams{
			Format: page.CaptureScreenshotFormatWebp, Quality: &q})
		if err != nil {
			return nil, err
		}
		return answer.Data, nil
	})
}
