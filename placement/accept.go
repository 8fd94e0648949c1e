package placement

import (
	"strconv"
	"strings"
)

// preferred returns the offer that an Accept header likes best, the first of equal
// ones; "" where it likes none. What cannot be read accepts nothing.
func preferred(accept string, offers ...string) string {
	best, bestQuality := "", 0.0
	for _, offer := range offers {
		if q := quality(accept, offer); q > bestQuality {
			best, bestQuality = offer, q
		}
	}
	return best
}

// quality is how much an Accept header likes a media type, by its most exact range.
func quality(accept, offer string) float64 {
	q, exactness := 0.0, -1
	family, _, _ := strings.Cut(offer, "/")
	for item := range strings.SplitSeq(accept, ",") {
		name, params, _ := strings.Cut(item, ";")
		exact := -1
		switch strings.ToLower(strings.TrimSpace(name)) {
		case offer:
			exact = 2
		case family + "/*":
			exact = 1
		case "*/*":
			exact = 0
		}
		if exact > exactness {
			q, exactness = weight(params), exact
		}
	}
	return q
}

// weight reads the q parameter; 1 without one.
func weight(params string) float64 {
	for p := range strings.SplitSeq(params, ";") {
		if name, value, ok := strings.Cut(p, "="); ok && strings.EqualFold(strings.TrimSpace(name), "q") {
			if q, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil {
				return q
			}
		}
	}
	return 1
}
