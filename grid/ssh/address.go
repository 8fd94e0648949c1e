package ssh

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"croft"
	"croft/grid/unit"
)

// where is an address that somebody gave, divided.
type where struct{ user, host, port string }

// parseWhere reads host, host:port, [host]:port, user@host and ssh://user@host:port.
func parseWhere(address string) (where, error) {
	var w where
	rest := strings.TrimPrefix(address, "ssh://")
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		w.user, rest = rest[:i], rest[i+1:]
	}
	w.host = rest
	if strings.HasPrefix(rest, "[") || strings.Count(rest, ":") == 1 {
		var err error
		if w.host, w.port, err = net.SplitHostPort(rest); err != nil && strings.HasSuffix(rest, "]") {
			w.host, w.port = rest[1:len(rest)-1], ""
		} else if err != nil {
			return w, croft.Errorf(croft.Invalid, "address %q: give host, host:port or [address]:port", address)
		}
	}
	if w.host == "" || strings.HasPrefix(w.host, "-") || strings.ContainsAny(w.host, " \t\r\n/@") {
		return w, croft.Errorf(croft.Invalid, "address %q: give host, host:port or [address]:port", address)
	}
	if (w.port != "" || strings.HasSuffix(rest, ":") && w.host+":" == rest) && !isPort(w.port) {
		return w, croft.Errorf(croft.Invalid, "address %q: a port is a number from 1 to 65535", address)
	}
	return w, nil
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// whereIs divides the address of a node. Invalid.
func whereIs(n unit.Node) (where, error) {
	w, err := parseWhere(cmp.Or(n.Address, n.Name))
	w.user = cmp.Or(n.User, w.user)
	return w, err
}

// A target is how ssh reaches a machine, by its configuration.
type target struct {
	where
	host, port, user string
	timeout          time.Duration // until the machine has shown its host key
	jumps            string        // what ProxyJump names, the first one first; or empty
	known            []string      // files of known hosts, those of the user first
	weak             string        // about a configuration that asks for less than verified host keys; or empty
}

// String is the target in error messages.
func (t *target) String() string { return t.user + "@" + net.JoinHostPort(t.host, t.port) }

// timeoutDefault is how long a machine may take until it has shown its host key.
const timeoutDefault = 10 * time.Second

// resolve asks ssh how it reaches a machine. Invalid: the ssh configuration or the address is wrong.
func (d *Dialer) resolve(ctx context.Context, w where) (*target, error) {
	cmd, err := d.command(ctx, w, "-G")
	if err != nil {
		return nil, err
	}
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	switch {
	case ctx.Err() != nil:
		return nil, croft.Errorf(croft.Unavailable, "read the ssh configuration: %w", context.Cause(ctx))
	case err != nil:
		return nil, croft.Errorf(croft.Invalid, "read the ssh configuration: %w", errors.New(
			cmp.Or(said(complaint.String()), err.Error())))
	}
	t := &target{where: w, timeout: timeoutDefault}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		keyword, value, _ := strings.Cut(lines.Text(), " ")
		switch keyword {
		case "hostname":
			t.host = value
		case "port":
			t.port = value
		case "user":
			t.user = value
		case "connecttimeout":
			if seconds, err := strconv.Atoi(value); err == nil && seconds > 0 {
				t.timeout = time.Duration(seconds) * time.Second
			}
		case "proxyjump":
			t.jumps = value
		case "stricthostkeychecking":
			if value != "ask" && value != "true" && value != "yes" {
				t.weak = " (StrictHostKeyChecking " + strings.Replace(value, "false", "no", 1) + " has no effect here)"
			}
		case "userknownhostsfile":
			t.known = append(knownFiles(value), t.known...)
		case "globalknownhostsfile":
			t.known = append(t.known, knownFiles(value)...)
		}
	}
	if d.config.Timeout > 0 {
		t.timeout = wholeSeconds(d.config.Timeout)
	}
	return t, nil
}

// jumpsMax is how many machines a connection may go through.
const jumpsMax = 8

// checkJumps refuses machines that are reached by each other, for which ssh would start without end. Only the first
// machine that ProxyJump names may have a ProxyJump of its own. Invalid.
func (d *Dialer) checkJumps(ctx context.Context, t *target) error {
	trail := []string{t.String()}
	for t.jumps != "" && t.jumps != "none" {
		first, _, _ := strings.Cut(t.jumps, ",")
		w, err := parseWhere(strings.TrimSpace(first))
		if err == nil {
			t, err = d.resolve(ctx, w)
		}
		if err != nil {
			return fmt.Errorf("ProxyJump: %w", err)
		}
		if trail = append(trail, t.String()); len(trail) > jumpsMax {
			return croft.Errorf(croft.Invalid, "ProxyJump leads over more than %d machines, or in a circle: %s",
				jumpsMax, strings.Join(trail, ", "))
		}
	}
	return nil
}

func knownFiles(list string) (files []string) {
	for _, f := range strings.Fields(list) {
		if rest, home := strings.CutPrefix(f, "~/"); home {
			if me, err := user.Current(); err == nil {
				f = filepath.Join(me.HomeDir, rest)
			}
		}
		files = append(files, f)
	}
	return files
}

// Reach returns the host and port at which a node is reached after all jumps, as the ssh configuration has them.
// Invalid.
func (d *Dialer) Reach(ctx context.Context, n unit.Node) (host, port string, err error) {
	w, err := whereIs(n)
	if err != nil {
		return "", "", err
	}
	t, err := d.resolve(ctx, w)
	if err != nil {
		return "", "", err
	}
	return t.host, t.port, nil
}
