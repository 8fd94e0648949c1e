package main

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Pauses in the drawing: waits up to longestPause are shown unchanged.
const (
	longestPause = 1200 * time.Millisecond
	beforeTyping = 900 * time.Millisecond
	afterTyping  = 400 * time.Millisecond
)

// Sizes in the units of the SVG.
const (
	lineHeight = 19
	charWidth  = 8.125
	margin     = 16
	titleBar   = 34
)

// screen collects what a terminal shows, with the time at which each line appears.
type screen struct {
	rows  []row
	typed int // rows up to the last command, which are never overwritten
	now   time.Duration
}

type row struct {
	at    time.Duration
	spans []span
}

// span is a text in one style: the classes of style in svg.
type span struct{ text, class string }

// prompt adds a line with a command.
func (s *screen) prompt(command string) {
	if len(s.rows) > 0 {
		s.rows = append(s.rows, row{at: s.now})
	}
	s.now += beforeTyping
	s.rows = append(s.rows, row{s.now, []span{{"$ ", "p"}, {command, "b"}}})
	s.now += afterTyping
	s.typed = len(s.rows)
}

// line adds a line of output with its delay after the previous one.
func (s *screen) line(text string, after time.Duration) {
	text = strings.TrimRight(text, "\r")
	if i := strings.LastIndexByte(text, '\r'); i >= 0 {
		text = text[i+1:] // overwritten text
	}
	for _, m := range cursorUp.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(cmp.Or(m[1], "1"))
		s.rows = s.rows[:max(s.typed, len(s.rows)-n)]
	}
	spans := styled(text)
	if len(spans) == 0 {
		return
	}
	s.now += min(after, longestPause)
	for _, part := range wrapped(spans) {
		s.rows = append(s.rows, row{s.now, part})
	}
}

// wrapped cuts a line into rows of the terminal's width.
func wrapped(spans []span) [][]span {
	rows := [][]span{nil}
	room := columns
	for _, s := range spans {
		text := []rune(s.text)
		for len(text) > room {
			rows[len(rows)-1] = append(rows[len(rows)-1], span{string(text[:room]), s.class})
			rows, text, room = append(rows, nil), text[room:], columns
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], span{string(text), s.class})
		room -= len(text)
	}
	return rows
}

func (s *screen) plainText() string {
	var b strings.Builder
	for _, r := range s.rows {
		for _, span := range r.spans {
			b.WriteString(span.text)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// control matches the control sequences of ECMA-48; group 1 holds the parameters of one that selects a style.
var control = regexp.MustCompile(`\x1b\[([0-9;]*)m|\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|[\x00-\x08\x0b-\x1f]`)

// cursorUp moves back over lines that are then redrawn, like progress bars.
var cursorUp = regexp.MustCompile(`\x1b\[([0-9]*)[AF]`)

// styles maps codes of ECMA-48 to classes; other codes are ignored.
var styles = map[string]string{"1": "b", "2": "d", "31": "r", "32": "g", "33": "y", "1;32": "g b"}

// styled splits a line into spans, without invisible characters.
func styled(text string) []span {
	var spans []span
	class := ""
	add := func(text string) {
		if text != "" {
			spans = append(spans, span{text, class})
		}
	}
	for {
		m := control.FindStringSubmatchIndex(text)
		if m == nil {
			add(text)
			return spans
		}
		add(text[:m[0]])
		if m[2] >= 0 {
			class = styles[text[m[2]:m[3]]]
		}
		text = text[m[1]:]
	}
}

// svg draws the screen in a window.
func (s *screen) svg(title string) []byte {
	const width = int(columns*charWidth) + 2*margin
	height := titleBar + len(s.rows)*lineHeight + margin
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" role="img" aria-label="%s">
<style>
text{font:13.5px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#d7dbe0;white-space:pre}
.p{fill:#7fb4ff}.b{font-weight:600;fill:#fff}.d{fill:#8b949e}.r{fill:#ff7b72}.g{fill:#7ee787}.y{fill:#e3b341}.t{fill:#8b949e}
.l{animation:show 1ms linear backwards}@keyframes show{from{opacity:0}}
@media (prefers-reduced-motion:reduce){.l{animation:none}}
</style>
<rect width="100%%" height="100%%" rx="9" fill="#11151b"/>
<circle cx="20" cy="17" r="5.5" fill="#ff5f57"/><circle cx="38" cy="17" r="5.5" fill="#febc2e"/><circle cx="56" cy="17" r="5.5" fill="#28c840"/>
<text class="t" x="%d" y="21" text-anchor="middle">%s</text>
`, width, height, width, html.EscapeString(title), width/2, html.EscapeString(title))
	for i, r := range s.rows {
		if len(r.spans) == 0 {
			continue
		}
		fmt.Fprintf(&b, `<text class="l" style="animation-delay:%.2fs" x="%d" y="%d">`,
			r.at.Seconds(), margin, titleBar+(i+1)*lineHeight-5)
		for _, span := range r.spans {
			if span.class == "" {
				b.WriteString(html.EscapeString(span.text))
				continue
			}
			fmt.Fprintf(&b, `<tspan class="%s">%s</tspan>`, span.class, html.EscapeString(span.text))
		}
		b.WriteString("</text>\n")
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
