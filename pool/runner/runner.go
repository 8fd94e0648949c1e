// Package runner gives every job of a CI system a machine of a pool, which is deleted after the job: it opens a ticket
// with a lease, runs the job over SSH, and closes the ticket. Fleet does so for GitHub, Executor for GitLab.
//
// A process that is killed leaves nothing behind: the leases of its tickets end, and with them the machines.
package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"croft"
	"croft/internal/delay"
	"croft/pool/api"
)

// Tickets asks for machines: a manager of pools, or a cloud.
type Tickets interface {
	// Open opens a ticket. The same key returns the same ticket. OverQuota; Invalid.
	Open(ctx context.Context, o api.Opening) (api.Ticket, error)
	// Wait returns the ticket once it has a resource, has ended, or can never be served. NotFound.
	Wait(ctx context.Context, id int64, w api.Waiting) (api.Ticket, error)
	// Close closes a ticket. Closing twice is no error. NotFound.
	Close(ctx context.Context, id int64) (api.Ticket, error)
	// Renew restarts the lease of a ticket. NotFound. Conflict: the ticket has ended.
	Renew(ctx context.Context, id int64) (api.Ticket, error)
	// Tickets lists tickets, without restarting their leases.
	Tickets(ctx context.Context, of api.Selection) (api.Tickets, error)
}

// Machine is the machine of a ticket, as SSH reaches it.
type Machine struct {
	Ticket   int64  `json:"ticket"`
	User     string `json:"user,omitempty"` // empty: as ssh is configured
	Host     string `json:"host"`
	Port     string `json:"port,omitempty"`     // empty: as ssh is configured
	HostKey  string `json:"host_key,omitempty"` // in the form of authorized_keys; empty: unknown
	Instance string `json:"instance,omitempty"` // UUID, if it is an instance of the cloud
}

// Shell runs commands on machines.
type Shell interface {
	// Run runs a command of sh with the given input. An *Exit error has the exit code of the command. Unavailable: the
	// machine is not reached, or the connection broke; then the command may have ended in any way.
	Run(ctx context.Context, m Machine, command string, stdin io.Reader, stdout, stderr io.Writer) error
}

// Exit is the error of a command that ended with an exit code other than 0.
type Exit struct{ Code int }

// Error implements error.
func (e *Exit) Error() string { return "exit code " + strconv.Itoa(e.Code) }

// MachineOf reads how SSH reaches the machine of a ticket. Resources of commands print it in the first line, as
// [USER@]HOST[:PORT], and may print the host key in the second. Invalid.
func MachineOf(t api.Ticket) (Machine, error) {
	m := Machine{Ticket: t.ID}
	if t.Resource == nil {
		return m, croft.Errorf(croft.Invalid, "ticket %d has no machine", t.ID)
	}
	if len(t.Resource.Facts) > 0 {
		var facts struct {
			Address  string `json:"address"`
			HostKey  string `json:"host_key"`
			Instance string `json:"instance"`
		}
		if err := json.Unmarshal(t.Resource.Facts, &facts); err != nil {
			return m, croft.Errorf(croft.Invalid, "read the facts about the machine of ticket %d: %w", t.ID, err)
		}
		m.Host, m.HostKey, m.Instance = facts.Address, facts.HostKey, facts.Instance
	} else {
		lines := strings.Split(string(t.Resource.Data), "\n")
		m.User, m.Host, m.Port = address(strings.TrimSpace(lines[0]))
		if len(lines) > 1 {
			m.HostKey = strings.TrimSpace(lines[1])
		}
	}
	if m.Host == "" || strings.HasPrefix(m.Host, "-") || strings.HasPrefix(m.User, "-") ||
		strings.ContainsAny(m.User+m.Host+m.Port, " \t'\"\\$`;%") {
		return m, croft.Errorf(croft.Invalid, "resource %s of pool %s hands out %.100q, and not [USER@]HOST[:PORT] in the "+
			"first line: have cmd_new print that", t.Resource.Name, t.Resource.Pool, t.Resource.Data)
	}
	if m.HostKey != "" {
		if _, _, _, _, err := ssh.ParseAuthorizedKey([]byte(m.HostKey)); err != nil {
			return m, croft.Errorf(croft.Invalid, "the second line of what resource %s of pool %s hands out is no host key, "+
				"such as ssh-ed25519 AAAA: %w", t.Resource.Name, t.Resource.Pool, err)
		}
	}
	return m, nil
}

// address splits [USER@]HOST[:PORT].
func address(text string) (user, host, port string) {
	if before, after, found := strings.Cut(text, "@"); found {
		user, text = before, after
	}
	if host, port, err := net.SplitHostPort(text); err == nil {
		return user, host, port
	}
	return user, strings.Trim(text, "[]"), ""
}

// closeTime bounds the closing of a ticket after the work with it ended.
const closeTime = time.Minute

// closeTicket closes a ticket, even if ctx has ended.
func closeTicket(ctx context.Context, tickets Tickets, id int64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	for {
		_, err := tickets.Close(ctx, id)
		if err == nil || errors.Is(err, croft.NotFound) {
			return nil
		}
		if !errors.Is(err, croft.Unavailable) || delay.For(ctx, time.Second) != nil {
			return fmt.Errorf("close ticket %d: %w", id, err)
		}
	}
}

// keep renews the lease of a ticket until stop is called. The context that it returns ends if the ticket has ended; its
// cause says why.
func keep(ctx context.Context, tickets Tickets, id int64, lease time.Duration) (held context.Context, stop func()) {
	held, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for delay.For(held, lease/3) == nil {
			t, err := tickets.Renew(held, id)
			if errors.Is(err, croft.NotFound) || errors.Is(err, croft.Conflict) {
				cancel(croft.Errorf(croft.Conflict, "its machine is gone: %w", err))
				return
			}
			if err == nil && t.State != api.TicketOpen {
				cancel(croft.Errorf(croft.Conflict, "its machine is gone: %w", t.Err()))
				return
			}
		}
	}()
	return held, func() {
		cancel(context.Canceled)
		<-done
	}
}

// serve waits until a ticket has its machine. NoCapacity: no pool can ever serve it.
func serve(ctx context.Context, tickets Tickets, id int64, waits func(why string)) (Machine, error) {
	last := ""
	t, err := tickets.Wait(ctx, id, api.Waiting{Changed: func(t api.Ticket) {
		if t.WaitsFor != last {
			last = t.WaitsFor
			waits(last)
		}
	}})
	if err == nil {
		err = t.Err()
	}
	if err != nil {
		return Machine{}, err
	}
	return MachineOf(t)
}

// reach waits until the machine answers over SSH. Unavailable: it does not within patience.
func reach(ctx context.Context, shell Shell, m Machine, patience time.Duration) error {
	var last error
	for begun := time.Now(); ; {
		said := &tail{}
		err := shell.Run(ctx, m, "true", strings.NewReader(""), said, said)
		if err == nil {
			return nil
		}
		if !errors.Is(err, croft.Unavailable) {
			return fmt.Errorf("log in to the machine of ticket %d: %w%s", m.Ticket, err, said)
		}
		if ctx.Err() == nil {
			last = err
		}
		if ctx.Err() != nil || time.Since(begun) > patience || delay.For(ctx, time.Second) != nil {
			return croft.Errorf(croft.Unavailable, "the machine of ticket %d does not answer over SSH: %w%s", m.Ticket,
				last, said)
		}
	}
}

// tail keeps the end of a program's output for an error.
type tail struct{ text []byte }

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if extra := len(t.text) - 500; extra > 0 {
		t.text = t.text[extra:]
	}
	return len(p), nil
}

// String returns the last line, after a colon; empty: there was no output.
func (t *tail) String() string {
	lines := strings.Split(strings.TrimSpace(string(t.text)), "\n")
	if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
		return ": " + last
	}
	return ""
}
