package pools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"croft"
	"croft/cli/instances"
	"croft/internal/shell"
	"croft/pool/runner"
)

// openSSH runs commands on machines with the system's ssh.
type openSSH struct {
	user     string // empty: as the machine says
	identity string // file of the private key; empty: as ssh is configured
	jump     string
	anyKey   bool // of machines whose pool does not hand out their host key

	// through returns the arguments with which ssh reaches an instance through the cloud; nil: ssh connects itself.
	through func(croft.InstanceID) ([]string, error)
}

// flags adds the flags that set the fields of s.
func (s *openSSH) flags(f *pflag.FlagSet) {
	f.StringVar(&s.user, "user", "", "log in to machines as this `user`")
	f.StringVar(&s.identity, "ssh-key", "", "`file` of the private key to log in to machines with")
	f.StringVarP(&s.jump, "jump", "J", "", "go through this `host` to machines that cannot be reached from here")
	f.BoolVar(&s.anyKey, "any-host-key", false,
		"believe every machine whose host key the pool does not hand out; for networks that you trust")
}

// prepare completes s for the cloud that the command calls.
func (s *openSSH) prepare(cmd *cobra.Command, overAPI bool) error {
	if s.identity != "" {
		if _, err := os.Stat(s.identity); err != nil {
			return croft.Errorf(croft.Invalid, "--ssh-key: %w", err)
		}
	}
	if overAPI && s.jump == "" {
		s.through = func(id croft.InstanceID) ([]string, error) { return instances.ProxyCommand(cmd, id) }
	}
	return nil
}

// Run implements runner.Shell.
func (s *openSSH) Run(ctx context.Context, m runner.Machine, command string, stdin io.Reader,
	stdout, stderr io.Writer) error {
	dir, err := os.MkdirTemp("", "croft-runner-")
	if err != nil {
		return fmt.Errorf("log in to %s: %w", m.Host, err)
	}
	defer os.RemoveAll(dir)
	given, err := s.arguments(m, filepath.Join(dir, "known_hosts"))
	if err != nil {
		return fmt.Errorf("log in to %s: %w", m.Host, err)
	}
	word := "exec sh -c " + shell.Quote(command) // whatever the user's shell is
	ssh := instances.OpenSSH(ctx, "ssh", append(given, "--", m.Host, word))
	ssh.Stdin, ssh.Stdout, ssh.Stderr = stdin, stdout, stderr
	err = ssh.Run()
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound):
		return croft.Errorf(croft.NotFound, "log in to %s: there is no ssh on this machine; install openssh-client", m.Host)
	case ended && exit.ExitCode() > 0 && exit.ExitCode() != 255 && ctx.Err() == nil:
		return &runner.Exit{Code: exit.ExitCode()}
	case ctx.Err() != nil:
		return croft.Errorf(croft.Unavailable, "the connection to %s was ended: %w", m.Host, context.Cause(ctx))
	}
	return croft.Errorf(croft.Unavailable, "ssh has no connection to %s", m.Host)
}

// arguments returns the arguments of ssh before the host. It writes the file with the machine's host key.
func (s *openSSH) arguments(m runner.Machine, knownHosts string) ([]string, error) {
	var given []string
	for _, option := range []string{"BatchMode=yes", "ConnectTimeout=15", "ServerAliveInterval=15",
		"ServerAliveCountMax=4", "ControlMaster=no", "ControlPath=none", "ForwardAgent=no", "ForwardX11=no",
		"ClearAllForwardings=yes", "RequestTTY=no", "EscapeChar=none", "LogLevel=ERROR"} {
		given = append(given, "-o", option)
	}
	switch {
	case m.HostKey != "":
		name := fmt.Sprintf("ticket-%d", m.Ticket)
		if err := os.WriteFile(knownHosts, []byte(name+" "+m.HostKey+"\n"), 0o600); err != nil {
			return nil, err
		}
		given = append(given, instances.OnlyHostKey(knownHosts, name, m.HostKey)...)
	case s.anyKey:
		given = append(given, "-o", "UserKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=no")
	default:
		given = append(given, "-o", "StrictHostKeyChecking=yes")
	}
	if s.identity != "" {
		given = append(given, "-i", s.identity, "-o", "IdentitiesOnly=yes")
	}
	if s.jump != "" {
		given = append(given, "-J", s.jump)
	}
	if s.through != nil && m.Instance != "" {
		proxy, err := s.through(croft.InstanceID(m.Instance))
		if err != nil {
			return nil, err
		}
		given = append(given, proxy...)
	}
	if m.Port != "" {
		given = append(given, "-p", m.Port)
	}
	user := s.user
	if user == "" {
		user = m.User
	}
	if user != "" {
		given = append(given, "-l", user)
	}
	return given, nil
}
