package main

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestStyled(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []span
	}{
		{"a line without styles is one span", "NAME  STATE", []span{{"NAME  STATE", ""}}},
		{"a color lasts until it is reset", "a \x1b[32mrunning\x1b[0m b",
			[]span{{"a ", ""}, {"running", "g"}, {" b", ""}}},
		{"what moves the cursor is left out", "\x1b[2K\x1b[?25ldone\x1b[K", []span{{"done", ""}}},
		{"an unknown style is none", "\x1b[38;5;12mblue\x1b[0m", []span{{"blue", ""}}},
		{"of nothing but controls nothing is left", "\x1b[2K\x07", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := styled(c.text); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestASessionIsDrawn(t *testing.T) {
	var s screen
	s.prompt(`schedule "a&b" <x>`)
	s.line("10 %\r\x1b[K100 %\r", 3*time.Second)
	s.line("\x1b[31mno\x1b[0m room", time.Millisecond)
	s.line("web  booting", 0)
	s.line("\x1b[1A\x1b[Jweb  running", 0)
	s.line("\x1b[9A\x1b[Jweb  ready", 0)
	s.prompt("exit")
	drawn := string(s.svg("a <b>"))
	decoder := xml.NewDecoder(strings.NewReader(drawn))
	var text strings.Builder
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("no XML: %v", err)
		}
		if chars, ok := token.(xml.CharData); ok {
			text.Write(chars)
		}
	}
	for _, want := range []string{"a <b>", `$ schedule "a&b" <x>`, "web  ready", "$ exit"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in the drawing:\n%s", want, drawn)
		}
	}
	if strings.Contains(text.String(), "booting") || s.now != 2*(beforeTyping+afterTyping)+longestPause+
		time.Millisecond {
		t.Errorf("it lasts %s:\n%s", s.now, drawn)
	}
}

func TestLongLinesAreWrapped(t *testing.T) {
	var s screen
	s.line("\x1b[1m"+strings.Repeat("a", columns-1)+"\x1b[0mbcd", 0)
	want := strings.Repeat("a", columns-1) + "b\ncd\n"
	if got := s.plainText(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
