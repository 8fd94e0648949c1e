// Package foreign reads lists of addresses from other programs: tables in CSV, objects in JSON (NetBox, ip -j addr),
// and the leases of dnsmasq and of ISC dhcpd. Every error is Invalid and names the line or the item.
package foreign

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"croft"
	"croft/internal/lazyregexp"
)

// The formats.
const (
	CSV     = "csv"
	JSON    = "json"
	Dnsmasq = "dnsmasq" // dnsmasq.leases
	Dhcpd   = "dhcpd"   // dhcpd.leases
)

// Formats lists all formats.
var Formats = []string{CSV, JSON, Dnsmasq, Dhcpd}

var (
	dhcpdForm   = lazyregexp.New(`(?m)^(lease\s+\S+\s*\{|ia-[nt]a\s+")`)
	dnsmasqForm = lazyregexp.New(`(?m)^\d+ (?:[0-9a-fA-F:-]+|\d+) [0-9a-fA-F.:]+ \S+ \S+$`)
)

// Guess returns the format of a text, judged by its content. Invalid: the format is unknown.
func Guess(text []byte) (string, error) {
	text = withoutMark(text)
	trimmed := bytes.TrimSpace(text)
	first, _, _ := bytes.Cut(trimmed, []byte("\n"))
	switch {
	case bytes.HasPrefix(trimmed, []byte("[")) || bytes.HasPrefix(trimmed, []byte("{")):
		return JSON, nil
	case dhcpdForm.Match(text):
		return Dhcpd, nil
	case bytes.HasPrefix(first, []byte("duid ")) || dnsmasqForm.Match(first):
		return Dnsmasq, nil
	case addressColumn(columns(string(first))) >= 0:
		return CSV, nil
	}
	return "", croft.Errorf(croft.Invalid,
		"this looks like none of %s: say which with --format; a CSV has a line of column "+
			"names, one of which is address or prefix", strings.Join(Formats, ", "))
}

// withoutMark removes the byte order mark that spreadsheets put at the start of a UTF-8 text.
func withoutMark(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\ufeff")) }

// Read parses a list in a format.
func Read(text []byte, format string) ([]Record, error) {
	text = withoutMark(text)
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
		return nil, croft.Errorf(croft.Invalid, "the list is in UTF-16: save it as UTF-8")
	}
	if !utf8.Valid(text) {
		return nil, croft.Errorf(croft.Invalid, "the list is not in UTF-8")
	}
	switch format {
	case CSV:
		return readCSV(string(text))
	case JSON:
		return readJSON(text)
	case Dnsmasq:
		return readDnsmasq(string(text))
	case Dhcpd:
		return readDhcpd(string(text))
	}
	return nil, croft.Errorf(croft.Invalid, "format %q is not one of %s", format, strings.Join(Formats, ", "))
}
