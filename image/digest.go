package image

import (
	"strings"
)

// digest is the checksum that a file must have; zero: any content.
type digest struct {
	algo string // sha256 or sha512
	hex  string // lower case
}

// digestOf derives the algorithm from the number of digits.
func digestOf(hex string) (digest, bool) {
	if !isHex(hex) {
		return digest{}, false
	}
	switch len(hex) {
	case 64:
		return digest{"sha256", strings.ToLower(hex)}, true
	case 128:
		return digest{"sha512", strings.ToLower(hex)}, true
	}
	return digest{}, false
}

func isHex(s string) bool {
	return strings.Trim(s, "0123456789abcdefABCDEF") == ""
}
