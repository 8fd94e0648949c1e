package kill

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"croft/compute"
	"croft/internal/durable"
)

// fenceAgent is a fence agent as those of Debian's package fence-agents are called. A machine is off while its file
// exists: then the process of its host does not start.
const fenceAgent = `#!/bin/sh
while read -r line; do
	case $line in
	action=*) action=${line#action=} ;;
	plug=*) plug=${line#plug=} ;;
	esac
done
case $action in
off)
	: > "$plug.off"
	while pid=$(cat "$plug.pid" 2>/dev/null) && kill -9 "$pid" 2>/dev/null; do sleep 0.05; done
	;;
status) [ -e "$plug.off" ] && exit 2 ;;
esac
exit 0
`

// writeSettings writes the settings that all programs read: the shared storage, and the fence agents.
func (w *world) writeSettings(hosts ...string) {
	shared := filepath.Join(w.dir, "shared")
	write := func(name, text string, mode os.FileMode) {
		file := filepath.Join(w.dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			w.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := os.Mkdir(shared, 0o700); err != nil {
		w.t.Fatal(err)
	}
	write(".config/croft/compute.yaml", fmt.Sprintf("storage: {shared: {%s: {path: %q}}}\n", storageName, shared),
		0o600)
	agent := strings.ReplaceAll(fenceAgent, "$plug.", w.dir+"/$plug.")
	write("fence-agent", agent, 0o755)
	var lines strings.Builder
	for _, name := range hosts {
		fmt.Fprintf(&lines, "%s: {agent: %q, plug: %s}\n", name, filepath.Join(w.dir, "fence-agent"), name)
	}
	write("fence.yaml", lines.String(), 0o600)
}

// switchOn gives a host its power back. Its guests are off.
func (h *host) switchOn() {
	h.process.switchOff()
	file := filepath.Join(h.stateDir, "sim.json")
	if text, err := os.ReadFile(file); err == nil {
		var all struct {
			Guests map[string]map[string]any `json:"guests"`
		}
		if err := json.Unmarshal(text, &all); err != nil {
			h.w.t.Errorf("the guests of %s: %v", h.name, err)
		}
		for _, g := range all.Guests {
			g["power"], g["started"] = compute.PowerOff, 0
		}
		if text, err = json.Marshal(all); err == nil {
			err = durable.Write(file, text, 0o600) // in one step: watch reads it at any time
		}
		if err != nil {
			h.w.t.Error(err)
		}
	}
	if err := os.Remove(h.off); err != nil {
		h.w.t.Error(err)
	}
}

// fence declares a host dead, whose process is running, suspended or killed, and which its fence agent or the operator
// switches off; then the host returns, and is mostly taken back.
func (a *actor) fence(h *host) {
	if !h.claim() {
		return
	}
	defer h.unclaim()
	a.w.count("fence a host")
	how := "--off"
	switch a.r.IntN(4) {
	case 0:
		h.switchOff()
		how = "--confirm-off"
		a.awaitSilent(h.id()) // until then, the host counts as alive
	case 1:
		a.w.journal.write("FAULT: suspend %s, which is fenced", h.name)
		h.suspendOnly()
	}
	for range 8 { // etcd may be away for some seconds
		if a.run(false, "croft", "host", "fence", h.name, how, "--yes", h.name).ok() || a.w.over.Err() != nil {
			break
		}
		a.w.sleep(500 * time.Millisecond)
	}
	a.w.sleep(time.Duration(a.r.Int64N(int64(5 * time.Second))))
	h.switchOn()
	a.w.journal.write("FAULT ends: fence %s", h.name)
	a.w.sleep(time.Duration(a.r.Int64N(int64(3 * time.Second))))
	if a.r.IntN(4) != 0 {
		a.run(false, "croft", "host", "fence", h.name, "--on")
	}
}

// takeBack ends all fences, also those that were interrupted.
func (w *world) takeBack() {
	a := &actor{w: w, n: 106, r: w.random(106)}
	for _, h := range w.hosts {
		if h.member {
			continue
		}
		if h.isOff() {
			h.switchOn()
		}
		w.awaitReady(h.api)
		dead, err := w.isDead(h.id())
		for start := time.Now(); dead || err != nil; time.Sleep(time.Second) {
			if time.Since(start) > 3*time.Minute {
				w.t.Fatalf("host %s stays dead: %v", h.name, err)
			}
			if !a.run(true, "croft", "host", "fence", h.name, "--on").ok() {
				h.switchOff()
				a.run(true, "croft", "host", "fence", h.name, "--confirm-off", "--yes", h.name)
				h.switchOn()
				w.awaitReady(h.api)
			}
			dead, err = w.isDead(h.id())
		}
	}
}

// isDead reports whether a host was declared dead, or a fence of it began.
func (w *world) isDead(host string) (bool, error) { return w.hasKey("dead", host) }
