package ssh

import (
	"context"
	"time"

	"golang.org/x/crypto/ssh"
)

// Config says how machines are reached. The zero Config is what ssh would do for this user.
type Config struct {
	Home string // ~; empty: the user's home directory
	// File is the ssh configuration; empty: ~/.ssh/config and, for what that does not say, /etc/ssh/ssh_config.
	File  string
	Agent string // socket of the agent; empty: $SSH_AUTH_SOCK; none: no agent is asked
	// Credential gives short-lived certificates; nil: none are configured.
	Credential Credential
	// Timeout is how long a machine may take until it has shown its host key; 0: ConnectTimeout of the ssh
	// configuration, else 10 seconds.
	Timeout time.Duration
	// Keepalive is the time between two questions whether a machine is still there; 0: 15 seconds. One that has sent
	// nothing for three of them is lost.
	Keepalive time.Duration
	// Shell is how long the login shell of a machine may take to start a program; 0: 30 seconds. Then the connection
	// is lost: a shell that waits for its home directory, say, would keep the next program waiting too.
	Shell time.Duration
}

// A Credential gives what to log in with, besides the agent's keys and the user's own.
type Credential interface {
	// Signers returns keys with certificates that are valid for some minutes more. It is asked before each login, by
	// several goroutines at once.
	Signers(ctx context.Context) ([]ssh.Signer, error)
}
