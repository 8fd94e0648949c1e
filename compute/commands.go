package compute

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"croft"
	"croft/internal/delay"
	"croft/internal/httpapi"
	"croft/internal/turns"
	"croft/internal/wording"
)

// GuestAgents is a hypervisor that reaches the agents in guests.
type GuestAgents interface {
	// GuestAgent returns the agent of the guest that runs now. ErrNoAgent. Conflict: the guest is off. NotFound.
	GuestAgent(ctx context.Context, id croft.InstanceID) (GuestAgent, error)
}

// GuestAgent runs commands in one guest until that goes off: it never reaches a later guest with the same UUID. Its
// methods return in bounded time. Conflict: that guest is off. Unavailable: its agent does not answer.
type GuestAgent interface {
	// Start starts a command as the user of the agent, which is root. Invalid: the guest does not run it.
	Start(ctx context.Context, command GuestCommand) (process int64, err error)
	// Ended returns how a process ended, once; nil: it runs.
	Ended(ctx context.Context, process int64) (*GuestResult, error)
}

// GuestCommand is a command to run in a guest.
type GuestCommand struct {
	Words   []string      `json:"words"` // the program, found by its PATH, and its arguments
	Stdin   []byte        `json:"stdin,omitempty"`
	Timeout time.Duration `json:"timeout"`
}

// GuestResult says how a command in a guest ended.
type GuestResult struct {
	Exit   int    `json:"exit"` // as a shell has it: 128 and the number of the signal that ended it
	Stdout []byte `json:"stdout,omitempty"`
	Stderr []byte `json:"stderr,omitempty"`
	Cut    bool   `json:"cut,omitempty"`  // it wrote more than MaxGuestOutput to stdout or stderr
	Late   bool   `json:"late,omitempty"` // the guest ended it because its time was over
}

// Limits of commands in guests.
const (
	MaxGuestCommand = 128 << 10 // bytes of all words
	MaxGuestWord    = 64 << 10  // bytes of one of them
	MaxGuestInput   = 256 << 10 // bytes of stdin
	MaxGuestOutput  = 1 << 20   // bytes of stdout, and of stderr

	LongestGuestCommand = 10 * time.Minute
)

// commandsPerGuest limits how many commands of one guest the host waits for at once, and guestCalls how many agents it
// calls at once, because each call may take until its time limit and has one of the threads of libvirtd meanwhile.
// callsPerProject of them are for the guests of one project, whose agents may answer as slowly as they like. Commands
// and snapshots take these turns.
const (
	commandsPerGuest = 4
	guestCalls       = 8
	callsPerProject  = 2
)

// Intervals at which a command is looked at; they grow.
const (
	firstLook = 50 * time.Millisecond
	lastLook  = time.Second
)

// overtime is how long the host waits after the time of a command for the guest to end it.
const overtime = 15 * time.Second

// requestTime limits how long a client that was let in may take to send its command.
const requestTime = 30 * time.Second

// commands runs commands in the guests of a host.
type commands struct {
	api *API

	mu      sync.Mutex
	running map[croft.InstanceID]int
}

func newCommands(api *API) *commands {
	return &commands{api: api, running: map[croft.InstanceID]int{}}
}

// agentTurns are the turns of calls to agents in guests, by project.
type agentTurns struct{ turns.Fair[croft.Project] }

func newAgentTurns() *agentTurns {
	return &agentTurns{turns.Fair[croft.Project]{Total: guestCalls, PerKey: callsPerProject}}
}

// take waits for a turn to call the agent of a guest of a project, and returns the function that ends it. Unavailable:
// until end, too many others were being called all the time.
func (t *agentTurns) take(ctx context.Context, project croft.Project, end time.Time) (leave func(), err error) {
	waiting, cancel := context.WithDeadlineCause(ctx, end, croft.Errorf(croft.Unavailable, "the host waits for the "+
		"agents of too many guests, which answer slowly: try again later"))
	defer cancel()
	return t.Take(waiting, project)
}

// enter counts a command of a guest. Conflict: it runs too many.
func (c *commands) enter(id croft.InstanceID) (leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[id] == commandsPerGuest {
		return nil, croft.Errorf(croft.Conflict, "%d commands that were started there have not ended yet: wait for one",
			commandsPerGuest)
	}
	c.running[id]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.running[id]--; c.running[id] == 0 {
			delete(c.running, id)
		}
	}, nil
}

// ExitTimedOut is the exit code of timeout(1) for a command that it ended. Busybox's, and one that has to kill, return
// the number of the signal and 128.
const ExitTimedOut = 124

// isTimeout reports whether an exit code is one of timeout(1) for a command that it ended.
func isTimeout(code int) bool { return code == ExitTimedOut || code == 128+9 || code == 128+15 }

// GuestError is an error whose cause is in the guest, so that whoever may use the guest may know it.
type GuestError struct{ Err error }

func (e *GuestError) Error() string { return e.Err.Error() }

// Unwrap gives it the kind of its cause.
func (e *GuestError) Unwrap() error { return e.Err }

// CommandAnswer is the answer to a GuestCommand, with one of both.
type CommandAnswer struct {
	Result *GuestResult  `json:"result,omitempty"`
	Error  *CommandError `json:"error,omitempty"`
}

// CommandError says why a command has no result.
type CommandError struct {
	Kind    croft.Kind `json:"kind"`
	Message string     `json:"message"`
	Guest   bool       `json:"guest,omitempty"` // as in GuestError
}

// serve is the handler. The client sends its command after it knows that the guest was reached: until then, the UUID
// may have passed to another instance.
func (c *commands) serve(w http.ResponseWriter, r *http.Request) {
	id, err := croft.ParseInstanceID(r.PathValue("id"))
	if err != nil {
		httpapi.Error(w, err)
		return
	}
	agents, ok := c.api.Agent.Hypervisor.(GuestAgents)
	if !ok || r.Header.Get("Upgrade") != ConsoleProtocol {
		w.Header().Set("Upgrade", ConsoleProtocol)
		http.Error(w, "a command wants the protocol "+ConsoleProtocol, http.StatusUpgradeRequired)
		return
	}
	leave, err := c.enter(id)
	if err != nil {
		httpapi.Error(w, err)
		return
	}
	defer leave()
	order, err := c.api.Agent.Orders.Order(r.Context(), c.api.Agent.Host.ID, id)
	if err != nil {
		httpapi.Error(w, err)
		return
	}
	guest, err := agents.GuestAgent(r.Context(), id)
	if err != nil {
		httpapi.Error(w, err)
		return
	}
	c.api.attached.Add(1)
	defer c.api.attached.Done()
	client, early, err := switchProtocol(w)
	if err != nil {
		return
	}
	defer func() { _ = client.Close() }()
	began := time.Now()
	err = c.converse(r.Context(), client, early, guest, order.Project)
	c.api.Agent.Log.Info("command in the guest ended", "instance", id, "host", c.api.Agent.Host.ID, "took",
		time.Since(began), "err", err)
}

// converse reads a command, runs it and sends the answer. It ends when the client leaves.
func (c *commands) converse(ctx context.Context, client net.Conn, early io.Reader, guest GuestAgent,
	project croft.Project) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var command GuestCommand
	_ = client.SetReadDeadline(time.Now().Add(requestTime)) // a connection without one fails below
	stop := context.AfterFunc(ctx, func() { _ = client.Close() })
	defer stop()
	const most = 2 * (MaxGuestCommand + MaxGuestInput) // as JSON
	if err := json.NewDecoder(io.LimitReader(early, most)).Decode(&command); err != nil {
		return fmt.Errorf("read the command: %w", err)
	}
	_ = client.SetReadDeadline(time.Time{})
	var watch sync.WaitGroup
	watch.Go(func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, client) // until it leaves
	})
	defer watch.Wait()
	defer func() { _ = client.Close() }()
	result, err := c.run(ctx, guest, project, command)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	answer := CommandAnswer{Result: result}
	if err != nil {
		_, guests := errors.AsType[*GuestError](err)
		answer.Error = &CommandError{croft.KindOf(err), err.Error(), guests || errors.Is(err, ErrNoAgent)}
	}
	return errors.Join(err, json.NewEncoder(client).Encode(answer))
}

// run starts a command and waits for its end. What has started goes on in the guest after an error.
func (c *commands) run(ctx context.Context, guest GuestAgent, project croft.Project, command GuestCommand) (
	*GuestResult, error) {
	if command.Timeout <= 0 || command.Timeout > LongestGuestCommand || len(command.Words) == 0 {
		return nil, croft.Errorf(croft.Invalid, "the command has no words, or a time limit that is not allowed")
	}
	var process int64
	began := time.Now()
	end := began.Add(command.Timeout + overtime)
	err := c.call(ctx, project, end, func(ctx context.Context) (err error) {
		process, err = guest.Start(ctx, command)
		return err
	})
	if err != nil {
		return nil, err
	}
	for pause := firstLook; ; pause = min(pause*3/2, lastLook) {
		var result *GuestResult
		err := c.call(ctx, project, end, func(ctx context.Context) (err error) {
			result, err = guest.Ended(ctx, process)
			return err
		})
		switch {
		case err != nil:
			return nil, err
		case result != nil:
			result.Late = isTimeout(result.Exit) && time.Since(began) >= command.Timeout
			result.bound()
			return result, nil
		case time.Now().After(end):
			return nil, &GuestError{croft.Errorf(croft.Unavailable,
				"it has not ended within %s, and goes on in the guest as process %d", wording.Duration(command.Timeout),
				process)}
		}
		if err := delay.For(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// call calls an agent when not too many are being called. Unavailable: until end, there were too many all the time.
func (c *commands) call(ctx context.Context, project croft.Project, end time.Time,
	f func(context.Context) error) error {
	leave, err := c.api.Agent.agentTurns.take(ctx, project, end)
	if err != nil {
		return err
	}
	defer leave()
	return f(ctx)
}

// bound cuts what is too long.
func (r *GuestResult) bound() {
	for _, text := range []*[]byte{&r.Stdout, &r.Stderr} {
		if len(*text) > MaxGuestOutput {
			*text, r.Cut = (*text)[:MaxGuestOutput], true
		}
	}
}
