package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestAChartIsAnXMLDocumentWithEveryLine(t *testing.T) {
	var b strings.Builder
	err := Write(&b,
		Chart{Title: "a < b & c", X: "s", Y: "ms", Lines: []Line{{"p50", []float64{0, 1, 2}, []float64{0, 50, 100}},
			{"p99", []float64{0, 1, 2}, []float64{3, 4, 5}}}},
		Chart{Title: "nothing happened"},
	)
	if err != nil {
		t.Fatal(err)
	}
	lines, texts := 0, ""
	d := xml.NewDecoder(strings.NewReader(b.String()))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if token.Name.Local == "polyline" {
				lines++
			}
		case xml.CharData:
			texts += string(token)
		}
	}
	if lines != 2 || !strings.Contains(texts, "a < b & c") || !strings.Contains(texts, "p99") {
		t.Errorf("%d lines, and the texts %q", lines, texts)
	}
	if !strings.Contains(b.String(), `points="64.0,198.0 342.0,116.0 620.0,34.0"`) {
		t.Errorf("the line from the lower left to the upper right is not there:\n%s", b.String())
	}
}

func TestGridLinesAreAtRoundNumbers(t *testing.T) {
	for end, want := range map[float64]float64{0: 1, 1: 0.1, 7: 1, 12: 2, 30: 5, 99: 10, 100: 10, 101: 20, 1234: 200} {
		if got := tidy(step(end)); got != want {
			t.Errorf("to %v in steps of %v, want %v", end, got, want)
		}
	}
}
