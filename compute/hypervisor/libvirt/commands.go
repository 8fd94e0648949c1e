package libvirt

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"croft"
	"croft/compute"
)

var _ compute.GuestAgents = (*Driver)(nil)

// guestAgent is the agent of one run of a guest.
type guestAgent struct {
	driver *Driver
	id     croft.InstanceID
	run    uint // number of the domain while it runs, which no other run has
}

// GuestAgent implements compute.GuestAgents.
func (d *Driver) GuestAgent(ctx context.Context, id croft.InstanceID) (compute.GuestAgent, error) {
	agent := guestAgent{driver: d, id: id}
	err := do(ctx, d.conn, about("look for the agent of", id), func(c *libvirt.Connect) error {
		return running(c, id, func(dom *libvirt.Domain, x libvirtxml.Domain) (err error) {
			if err := reachAgent(dom, x); err != nil {
				return err
			}
			agent.run, err = dom.GetID()
			return err
		})
	})
	return agent, err
}

// ask sends a command to the agent, and decodes its answer. libvirt waits at most agentTimeout for the agent to answer
// at all, and then as long for the answer to the command.
func (a guestAgent) ask(ctx context.Context, what, command string, arguments, answer any) error {
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	return do(ctx, a.driver.conn, about(what, a.id), func(c *libvirt.Connect) error {
		return running(c, a.id, func(dom *libvirt.Domain, x libvirtxml.Domain) error {
			if run, err := dom.GetID(); err != nil || run != a.run {
				return croft.Errorf(croft.Conflict, "the guest was started again meanwhile")
			}
			if err := reachAgent(dom, x); err != nil {
				return err
			}
			said, err := dom.QemuAgentCommand(string(text), agentTimeout, 0)
			if err != nil {
				return &compute.GuestError{Err: agentError(err)}
			}
			err = json.Unmarshal([]byte(said), &struct {
				Return any `json:"return"`
			}{answer})
			if err != nil {
				err = croft.Errorf(croft.Unavailable, "its guest agent answers wrongly: %w", err)
				return &compute.GuestError{Err: err}
			}
			return nil
		})
	})
}

// agentError returns the error for a command that the agent, or libvirt, did not carry out. It hides libvirt's own: a
// guest must not make the connection to libvirt count as lost, which libvirt reports in another way, too.
func agentError(err error) error {
	said, _ := errors.AsType[libvirt.Error](err)
	switch {
	case strings.Contains(said.Message, "has been disabled"), strings.Contains(said.Message, "has not been found"):
		return croft.Errorf(croft.Invalid, "its guest agent may not run commands (%s): permit guest-exec and "+
			"guest-exec-status in the guest's settings of qemu-ga", said.Message)
	case is(err, libvirt.ERR_AGENT_UNRESPONSIVE, libvirt.ERR_AGENT_UNSYNCED, libvirt.ERR_OPERATION_TIMEOUT,
		libvirt.ERR_AGENT_COMMAND_TIMEOUT):
		return croft.Errorf(croft.Unavailable, "its guest agent does not answer: start qemu-guest-agent again in the guest")
	case strings.Contains(said.Message, "execute child process"):
		return croft.Errorf(croft.Invalid, "the guest does not run it: %s", said.Message)
	}
	return croft.Errorf(croft.Unavailable, "its guest agent does not do it: %s", said.Message)
}

// limited is a script that runs the command in its arguments after a time limit in seconds and a limit of the output in
// bytes. The agent can neither end a command nor cut its output, and libvirt gives up an agent that sends too much.
const limited = `most=$1 within=$2
shift 2
keep() { head -c "$most"; cat >/dev/null; }
if timeout -k 5 5 true 2>/dev/null; then within="timeout -k 5 $within"; else within=; fi
exec 3>&1 4>&2 5<&0
code=$(
	exec 6>&1
	{ { { $within "$@" <&5 3>&- 4>&- 5<&- 6>&- 7>&-; echo $? >&6; } 2>&7 | keep >&3; } 7>&1 | keep >&4; }
)
exit "${code:-1}"
`

// Start implements compute.GuestAgent.
func (a guestAgent) Start(ctx context.Context, command compute.GuestCommand) (int64, error) {
	const what = "run a command in"
	var system struct {
		ID string `json:"id"`
	}
	if err := a.ask(ctx, what, "guest-get-osinfo", nil, &system); err != nil {
		return 0, err
	}
	words := command.Words
	if system.ID != "mswindows" {
		seconds := int64((command.Timeout + time.Second - 1) / time.Second)
		words = append([]string{"/bin/sh", "-c", limited, "croft", strconv.Itoa(compute.MaxGuestOutput + 1),
			strconv.FormatInt(seconds, 10)}, words...)
	}
	arguments := map[string]any{"path": words[0], "arg": words[1:], "capture-output": true}
	if len(command.Stdin) > 0 {
		arguments["input-data"] = command.Stdin
	}
	var started struct {
		PID int64 `json:"pid"`
	}
	err := a.ask(ctx, what, "guest-exec", arguments, &started)
	return started.PID, err
}

// Ended implements compute.GuestAgent.
func (a guestAgent) Ended(ctx context.Context, process int64) (*compute.GuestResult, error) {
	var status struct {
		Exited bool   `json:"exited"`
		Code   int    `json:"exitcode"`
		Signal int    `json:"signal"`
		Out    []byte `json:"out-data"`
		Err    []byte `json:"err-data"`
	}
	err := a.ask(ctx, "look at a command in", "guest-exec-status", map[string]any{"pid": process}, &status)
	if err != nil || !status.Exited {
		return nil, err
	}
	if status.Signal > 0 {
		status.Code = 128 + status.Signal
	}
	return &compute.GuestResult{Exit: status.Code, Stdout: status.Out, Stderr: status.Err}, nil
}
