package cli

import (
	"cmp"

	"croft/internal/command"
)

// listings maps each noun of a NotFound error to the command that lists what exists.
var listings = map[string]string{
	"aggregate": "croft aggregate list", "appliance": "croft cluster appliance list", "cluster": "croft cluster list",
	"context": "croft context list", "credential": "croft cluster credential list", "host": "croft host list",
	"image": "croft image list", "implementation": "croft cluster appliance implementation list APPLIANCE",
	"instance": "schedule list", "key": "croft key list", "member": "croft project show PROJECT",
	"partition": "croft partition list", "peer": "croft partition peer list", "policy": "croft policy list",
	"pool": "croft pool list", "project": "croft project list", "resource": "croft pool resources",
	"site": "croft cluster site list", "ticket": "croft pool ticket list", "token": "croft token list --for api",
}

// listing returns the end of the sentence of a NotFound error that names no remedy: the command that lists what exists.
func (p Program) listing(err error) string {
	return command.Listing(err, func(noun string) string {
		list := listings[noun]
		for _, more := range p.More {
			list = cmp.Or(list, more.Listings[noun])
		}
		return list
	})
}
