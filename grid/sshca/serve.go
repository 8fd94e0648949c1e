package sshca

import (
	"context"
	"io"
	"strings"

	"golang.org/x/crypto/ssh"

	"croft"
	"croft/internal/wording"
)

// usage is the hint in the error for a malformed request.
const usage = "ask for: sign [--role ROLE] [--ttl 1h] < key.pub"

// Serve answers one request of a user. The user's name comes from the login, and nothing in the request can change it.
// command is the requested command, such as the value of SSH_ORIGINAL_COMMAND. Serve reads the public key from in.
func (a *CA) Serve(ctx context.Context, user, command string, in io.Reader) (*ssh.Certificate, error) {
	r := Request{User: user}
	words := strings.Fields(command)
	if len(words) == 0 || words[0] != "sign" {
		return nil, croft.Errorf(croft.Invalid, "%q is not served; %s", command, usage)
	}
	for words = words[1:]; len(words) > 0; words = words[1:] {
		name, value, joined := strings.Cut(words[0], "=")
		if !joined {
			if len(words) == 1 {
				return nil, croft.Errorf(croft.Invalid, "%q is not served; %s", words[0], usage)
			}
			words = words[1:]
			value = words[0]
		}
		switch name {
		case "--role":
			if !nameForm.MatchString(value) {
				return nil, croft.Errorf(croft.Invalid, "%q is not a role; %s", value, usage)
			}
			r.Role = value
		case "--ttl":
			ttl, err := wording.ParseDuration(value)
			if err != nil || ttl <= 0 {
				return nil, croft.Errorf(croft.Invalid, "--ttl %s: give a time such as 30m; %s", value, usage)
			}
			r.TTL = ttl
		default:
			return nil, croft.Errorf(croft.Invalid, "%q is not served; %s", name, usage)
		}
	}
	text, err := io.ReadAll(io.LimitReader(in, keyMax+1))
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "read the public key: %w", err)
	}
	if r.Key, err = ParseKey(text); err != nil {
		return nil, err
	}
	return a.SignUser(ctx, r)
}
