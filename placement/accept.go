package placement

import (
	"strconv"
	"strings"
)

// preferred returns the media type that an Accept header prefers, the first among equals; "": it accepts none. A
// malformed header accepts nothing.
func preferred(accept string, types ...string) string {
	best, bestQuality := "", 0.0
	for _, t := range types {
		if q := quality(accept, t); q > bestQuality {
			best, bestQuality = t, q
		}
	}
	return best
}

// quality returns the weight of a media type in an Accept header, taken from the most specific range.
func quality(accept, mediaType string) float64 {
	q, exactness := 0.0, -1
	family, _, _ := strings.Cut(mediaType, "/")
	for item := range strings.SplitSeq(accept, ",") {
		name, params, _ := strings.Cut(item, ";")
		exact := -1
		switch strings.ToLower(strings.TrimSpace(name)) {
		case mediaType:
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

// weight parses the q parameter, 1 by default.
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
