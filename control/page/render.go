package page

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"math"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"croft"
	"croft/control/api"
	"croft/internal/lazyregexp"
	"croft/internal/plain"
	"croft/internal/wording"
)

//go:embed assets templates
var files embed.FS

// asset is a file that pages refer to, under a name with its hash, so that browsers may keep it.
type asset struct{ name, kind, text string }

// assets has the assets by their names in addresses, and hashed these names by the names of the files.
var assets, hashed = func() (map[string]asset, map[string]string) {
	all, names := map[string]asset{}, map[string]string{}
	entries, err := fs.ReadDir(files, "assets")
	if err != nil {
		panic(err) // the directory is embedded
	}
	for _, e := range entries {
		text, err := fs.ReadFile(files, "assets/"+e.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(text)
		ext := path.Ext(e.Name())
		name := strings.TrimSuffix(e.Name(), ext) + "." + hex.EncodeToString(sum[:6]) + ext
		all[name] = asset{e.Name(), cmp.Or(mime.TypeByExtension(ext), "application/octet-stream"), string(text)}
		names[e.Name()] = name
	}
	return all, names
}()

func serveAsset(w http.ResponseWriter, r *http.Request) {
	a, known := assets[r.PathValue("file")]
	if !known {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", a.kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeContent(w, r, a.name, time.Time{}, strings.NewReader(a.text))
}

// pages has the template of each page, with the layout around it.
var pages = func() map[string]*template.Template {
	all := map[string]*template.Template{}
	base := template.Must(template.New("layout.html").Funcs(functions).ParseFS(files, "templates/layout.html",
		"templates/parts.html"))
	entries, err := fs.ReadDir(files, "templates")
	if err != nil {
		panic(err) // the directory is embedded
	}
	for _, e := range entries {
		if e.Name() != "layout.html" && e.Name() != "parts.html" {
			own := template.Must(template.Must(base.Clone()).ParseFS(files, "templates/"+e.Name()))
			all[strings.TrimSuffix(e.Name(), ".html")] = own
		}
	}
	return all
}()

var functions = template.FuncMap{
	"asset":  func(name string) string { return Root + "/assets/" + hashed[name] },
	"t":      text,
	"lines":  textLines,
	"link":   link,
	"ago":    ago,
	"state":  stateOf,
	"amount": amounts,
	"until":  until,
	"when":   func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") },
	"join":   strings.Join,
	"gib":    func(n int64) string { return fmt.Sprintf("%d GiB", n) },
	"size":   sizeOf,
	"count":  func(n int, noun string) string { return wording.Count(n, noun) },
	"now":    func() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000Z") },
	"final":  finalOrNot,
	"broken": broken,
	"image":  imageName,
}

// mostHidden is how many of successive hidden characters are shown: each takes 32 bytes, and a guest writes many.
const mostHidden = 4

// text shows a text that users or guests wrote: isolated from the direction of its surroundings, and with control
// characters, and characters that change the direction, as visible codes.
func text(v any) template.HTML {
	var b strings.Builder
	b.WriteString("<bdi>")
	run := 0 // of hidden characters
	end := func() {
		if more := run - mostHidden; more > 0 {
			fmt.Fprintf(&b, `<span class="code">%d more</span>`, more)
		}
		run = 0
	}
	for _, r := range fmt.Sprint(v) {
		if !hidden(r) {
			end()
			b.WriteString(template.HTMLEscapeString(string(r)))
			continue
		}
		if run++; run <= mostHidden {
			fmt.Fprintf(&b, `<span class="code">U+%04X</span>`, r)
		}
	}
	end()
	b.WriteString("</bdi>")
	return template.HTML(b.String()) // everything in it is escaped
}

// textLines shows a text of several lines, for a pre.
func textLines(v string) template.HTML {
	var b strings.Builder
	for n, line := range strings.Split(v, "\n") {
		if n > 0 {
			b.WriteByte('\n')
		}
		if line != "" {
			b.WriteString(string(text(line)))
		}
	}
	return template.HTML(b.String()) // everything in it is escaped
}

// broken is text that may break into lines after its commas and ampersands.
func broken(v any) template.HTML {
	return template.HTML(strings.NewReplacer(",", ",<wbr>", "&amp;", "&amp;<wbr>").Replace(string(text(v))))
}

// hidden reports whether a character changes a text without being visible.
func hidden(r rune) bool {
	return plain.Steers(r) || r == unicode.ReplacementChar || unicode.Is(unicode.Co, r)
}

// fieldForm matches the values of fields, and the text of a text area.
var fieldForm = lazyregexp.New(`(?s) value="[^"]*"|<textarea\b.*?</textarea>`)

// visible returns HTML in which the characters that change a text without being visible are codes, also in titles and
// in attributes, where text cannot mark them. The values of fields stay, because forms send them back.
func visible(page []byte) []byte {
	steers := func(r rune) bool { return r != '\n' && r != '\t' && r != '\r' && plain.Steers(r) }
	if bytes.IndexFunc(page, steers) < 0 {
		return page
	}
	var b bytes.Buffer
	show := func(text []byte) {
		for _, r := range string(text) {
			if steers(r) {
				fmt.Fprintf(&b, "U+%04X", r)
			} else {
				b.WriteRune(r)
			}
		}
	}
	at := 0
	for _, field := range fieldForm.Get().FindAllIndex(page, -1) {
		show(page[at:field[0]])
		b.Write(page[field[0]:field[1]])
		at = field[1]
	}
	show(page[at:])
	return b.Bytes()
}

// ago shows how long ago a time was; scripts keep it current.
func ago(t time.Time) template.HTML {
	if t.IsZero() {
		return "–"
	}
	at := t.UTC().Format(time.RFC3339)
	return template.HTML(fmt.Sprintf(`<time data-ago datetime="%s" title="%s">%s</time>`, at, at, wording.Age(time.Since(t))))
}

// until shows when something ends.
func until(t time.Time) template.HTML {
	if t.IsZero() {
		return "never"
	}
	at := t.UTC().Format(time.RFC3339)
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s" data-until>in %s</time>`, at, at, wording.Age(time.Until(t))))
}

// stateOf shows a state as a word with a symbol, so that it can be told apart without colors.
func stateOf(state string) template.HTML {
	class, symbol := "busy", "◐"
	switch state {
	case "running", "ready", "available", "in_use":
		class, symbol = "good", "●"
	case "stopped", "gone", "held", "drained":
		class, symbol = "off", "○"
	case "failed", "lost", "damaged", "dead":
		class, symbol = "bad", "✕"
	case "unknown", "unreachable", "silent", "returned":
		class, symbol = "warn", "?"
	}
	return template.HTML(fmt.Sprintf(`<span class="state %s"><span aria-hidden="true">%s</span> %s</span>`, class,
		symbol, template.HTMLEscapeString(state)))
}

// amounts shows resources briefly. Lines do not break within an amount.
func amounts(r croft.Resources) string {
	var parts []string
	for _, class := range slices.Sorted(maps.Keys(r)) {
		switch n := r[class]; class {
		case "VCPU":
			parts = append(parts, fmt.Sprintf("%d vCPU", n))
		case "MEMORY_MB":
			parts = append(parts, "memory "+bytesOf(n<<20))
		case "DISK_GB":
			parts = append(parts, fmt.Sprintf("disk %d GiB", n))
		default:
			parts = append(parts, fmt.Sprintf("%s %d", class, n))
		}
	}
	slices.Reverse(parts) // processors first
	for n, amount := range parts {
		parts[n] = strings.ReplaceAll(amount, " ", "\u00a0")
	}
	return strings.Join(parts, ", ")
}

// sizeOf shows a number of bytes of any integer type.
func sizeOf(n any) (string, error) {
	switch n := n.(type) {
	case int64:
		return bytesOf(n), nil
	case uint64:
		return bytesOf(int64(min(n, math.MaxInt64))), nil
	}
	return "", fmt.Errorf("%T is no number of bytes", n)
}

// bytesOf shows a number of bytes.
func bytesOf(n int64) string {
	units, value := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}, float64(n)
	for len(units) > 1 && value >= 1024 {
		units, value = units[1:], value/1024
	}
	if value == float64(int64(value)) {
		return fmt.Sprintf("%d %s", int64(value), units[0])
	}
	return fmt.Sprintf("%.1f %s", value, units[0])
}

// row is a line of the list of instances.
type row struct {
	api.Instance
	Link     string
	Operator bool
	Projects bool // the list has several projects
	Picks    bool // it has boxes to pick instances
	Picked   bool
}

// ImageName returns the name of the image, or the file name of its URL.
func (r row) ImageName() string { return imageName(r.Image) }

func imageName(image string) string {
	if address, err := url.Parse(image); err == nil && address.Host != "" && path.Base(address.Path) != "/" {
		return path.Base(address.Path)
	}
	return image
}
