package foreign

import (
	"fmt"
	"slices"
	"strings"

	"croft"
	"croft/internal/lazyregexp"
)

// readDnsmasq parses lines with these fields: end of the lease, MAC or IAID, address, name or *, client's id or *.
func readDnsmasq(text string) ([]Record, error) {
	var all []Record
	for i, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "duid" {
			continue // the server's own DUID, which precedes IPv6 leases
		}
		at := fmt.Sprint("line ", i+1)
		if len(words) < 4 {
			return nil, croft.Errorf(croft.Invalid, "%s: want a lease of dnsmasq: time, MAC address, address, name, id",
				at)
		}
		r, err := newRecord(strings.Trim(words[2], "[]"), at, false)
		if err != nil {
			return nil, err
		}
		if strings.Contains(words[1], ":") {
			r.Facts["mac"] = words[1]
		}
		if words[3] != "*" {
			r.Facts["name"] = words[3]
		}
		all = append(all, r)
	}
	return all, nil
}

var (
	leaseBegins = lazyregexp.New(`^\s*(?:lease|iaaddr|iaprefix)\s+(\S+)\s*\{`)
	leaseState  = lazyregexp.New(`^\s*binding state\s+([a-z]+)\s*;`)
	leaseMAC    = lazyregexp.New(`^\s*hardware\s+\S+\s+([0-9a-fA-F:]+)\s*;`)
	leaseName   = lazyregexp.New(`^\s*client-hostname\s+"([^"]*)"\s*;`)
	leaseEnds   = lazyregexp.New(`^\s*\}`)
)

// readDhcpd parses blocks: lease ADDRESS { ... }, and for IPv6 nested blocks iaaddr ADDRESS { ... }. The file is a log:
// only the last block of an address counts, and only if the lease is bound.
func readDhcpd(text string) ([]Record, error) {
	last := map[string]int{} // index in all, by address
	var all []Record
	var bound []bool
	open := -1
	for i, line := range strings.Split(text, "\n") {
		at := fmt.Sprint("line ", i+1)
		if found := leaseBegins.FindStringSubmatch(line); found != nil {
			r, err := newRecord(found[1], at, true)
			if err != nil {
				return nil, err
			}
			name := r.Prefix.String()
			if old, again := last[name]; again {
				bound[old] = false
			}
			open, last[name] = len(all), len(all)
			all, bound = append(all, r), append(bound, true)
			continue
		}
		if open < 0 {
			continue
		}
		if found := leaseState.FindStringSubmatch(line); found != nil {
			bound[open] = found[1] == "active"
		} else if found := leaseMAC.FindStringSubmatch(line); found != nil {
			all[open].Facts["mac"] = found[1]
		} else if found := leaseName.FindStringSubmatch(line); found != nil {
			all[open].Facts["name"] = found[1]
		} else if leaseEnds.MatchString(line) {
			open = -1
		}
	}
	if open >= 0 {
		return nil, croft.Errorf(croft.Invalid, "%s: the lease has no end: the list is cut off", all[open].At)
	}
	i := -1
	return slices.DeleteFunc(all, func(Record) bool { i++; return !bound[i] }), nil
}
