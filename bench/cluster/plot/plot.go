// Package plot draws line charts as SVG, one below the other. It has less than a hundred lines because chart libraries
// load fonts at every start of a program, which would slow down each command.
package plot

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// Chart is a set of lines over one axis.
type Chart struct {
	Title string
	X, Y  string // axis titles, with units
	Lines []Line
}

// Line is the course of one quantity. Points are ordered by X.
type Line struct {
	Name string
	X, Y []float64
}

const (
	width, height         = 760.0, 240.0
	left, right, top, low = 64.0, 140.0, 34.0, 42.0
)

var colors = []string{"#1f6f8b", "#d1495b", "#66a182", "#8d5fa8", "#b8860b", "#555555"}

// Write draws charts as one SVG document.
func Write(w io.Writer, charts ...Chart) error {
	var b strings.Builder
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%g" height="%g" font-family="sans-serif" font-size="12">`+"\n",
		width, height*float64(len(charts)))
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	for i, c := range charts {
		fmt.Fprintf(&b, `<g transform="translate(0 %g)">`+"\n", height*float64(i))
		c.draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (c *Chart) draw(b *strings.Builder) {
	var endX, endY float64
	for _, l := range c.Lines {
		for i := range l.X {
			endX, endY = max(endX, l.X[i]), max(endY, l.Y[i])
		}
	}
	stepX, stepY := step(endX), step(endY)
	endX, endY = stepX*math.Ceil(endX/stepX), stepY*math.Ceil(endY/stepY)
	x := func(v float64) float64 { return left + v/endX*(width-left-right) }
	y := func(v float64) float64 { return height - low - v/endY*(height-top-low) }
	fmt.Fprintf(b, `<text x="%g" y="20" font-size="14" font-weight="bold">%s</text>`+"\n", left,
		html.EscapeString(c.Title))
	for v := 0.0; v <= endY*1.001; v += stepY {
		fmt.Fprintf(b, `<path d="M%.1f %.1fH%.1f" stroke="#ddd"/><text x="%.1f" y="%.1f" text-anchor="end">%g</text>`+
			"\n", left, y(v), width-right, left-6, y(v)+4, tidy(v))
	}
	for v := 0.0; v <= endX*1.001; v += stepX {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle">%g</text>`+"\n", x(v), height-low+16, tidy(v))
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n", (left+width-right)/2, height-8,
		html.EscapeString(c.X))
	fmt.Fprintf(b, `<text transform="translate(14 %.1f) rotate(-90)" text-anchor="middle">%s</text>`+"\n",
		(top+height-low)/2, html.EscapeString(c.Y))
	for i, l := range c.Lines {
		color := colors[i%len(colors)]
		var points []string
		for k := range l.X {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(l.X[k]), y(l.Y[k])))
		}
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.6"/>`+"\n",
			strings.Join(points, " "), color)
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" fill="%s">%s</text>`+"\n", width-right+10, top+16*float64(i+1), color,
			html.EscapeString(l.Name))
	}
}

// step returns the distance between grid lines: 1, 2 or 5 times a power of ten, so that there are four to ten lines.
func step(end float64) float64 {
	if end <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(end)))
	for _, s := range []float64{0.1, 0.2, 0.5, 1} {
		if end/(power*s) <= 10 {
			return power * s
		}
	}
	return power
}

// tidy removes accumulated floating-point error.
func tidy(v float64) float64 { return math.Round(v*1e6) / 1e6 }
