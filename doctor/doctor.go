// Package doctor checks whether a host meets the agent's needs, and reports in one line per check what it
// found and what to do about it. It changes nothing, and it reads the host only through Probes, so that every
// answer can be tested anywhere.
package doctor

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Level is the severity of a finding.
type Level string

// The levels. Warn: the host works, but slower or with restrictions. Fail: it does not work.
const (
	OK   Level = "ok"
	Warn Level = "warn"
	Fail Level = "fail"
)

// Result is the finding of one check.
type Result struct {
	Level Level  `json:"level"`
	Check string `json:"check"`
	Found string `json:"found"`
	Do    string `json:"do,omitempty"` // what to do; empty: nothing
}

// A Check examines one aspect of the host. Its name is one or two words and the same in every release, since
// scripts refer to it.
type Check struct {
	Name string
	Look func(ctx context.Context) Result
}

// patience is the timeout of one check; the slowest normal one boots a tiny guest to prove KVM.
const patience = 20 * time.Second

// Run runs all checks concurrently and returns their findings in the order of checks.
func Run(ctx context.Context, checks []Check) []Result {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	findings := make([]Result, len(checks))
	var work sync.WaitGroup
	for i, c := range checks {
		work.Go(func() {
			findings[i] = c.Look(ctx)
			findings[i].Check = c.Name
		})
	}
	work.Wait()
	return findings
}

// Healthy reports whether nothing failed.
func Healthy(findings []Result) bool {
	return !slices.ContainsFunc(findings, func(f Result) bool { return f.Level == Fail })
}

func good(found string) Result     { return Result{Level: OK, Found: found} }
func warn(found, do string) Result { return Result{Level: Warn, Found: found, Do: do} }
func fail(found, do string) Result { return Result{Level: Fail, Found: found, Do: do} }

// Config says for which purposes the host is checked.
type Config struct {
	StateDir string
	Libvirt  bool // guests run in libvirt; false: simulated
	// the guests' libvirt network; empty: only a host bridge is used
	Network  string
	Bridge   string                  // the host bridge of the guests; empty: none
	Named    map[string]NamedNetwork // networks that guests may request by name
	Spoofing bool                    // guests may send from any address
	VirtType string                  // auto, kvm or qemu
	Metadata bool                    // this host serves metadata
	Arch     string                  // the machine's architecture in Go's notation
	Ports    []Port                  // ports on which croft listens
}

// NamedNetwork is a libvirt network or a host bridge.
type NamedNetwork struct{ Network, Bridge string }

// Port is a listening address of croft and its purpose.
type Port struct {
	Use  string // etcd, Placement ...
	Addr netip.AddrPort
}
