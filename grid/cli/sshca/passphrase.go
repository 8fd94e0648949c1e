package sshca

import (
	"bytes"
	"context"
	"os"
	"os/exec"

	"croft"
	"croft/internal/command"
)

// askPassphrase asks for a key's passphrase as ssh does: on the terminal, or with the program that SSH_ASKPASS names if
// there is no terminal or SSH_ASKPASS_REQUIRE demands it.
func askPassphrase(ctx context.Context, key string) ([]byte, error) {
	return ask(ctx, "passphrase of "+key)
}

func ask(ctx context.Context, prompt string) ([]byte, error) {
	program, require := os.Getenv("SSH_ASKPASS"), os.Getenv("SSH_ASKPASS_REQUIRE")
	if program == "" || require == "" || require == "never" {
		tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0) // standard input may be a public key
		if err == nil {
			defer tty.Close()
			return command.ReadSecret(ctx, tty, tty, prompt)
		}
	}
	if program == "" || require == "never" {
		return nil, croft.Errorf(croft.Invalid, "there is no terminal to ask for the passphrase: name a program with "+
			"SSH_ASKPASS, or put the key into an agent and use --agent")
	}
	cmd := exec.CommandContext(ctx, program, prompt+": ")
	cmd.Stderr = os.Stderr
	word, err := cmd.Output()
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "ask for the passphrase: %s: %w", program, err)
	}
	return bytes.TrimRight(word, "\r\n"), nil
}

// newPassphrase asks twice for a new passphrase.
func newPassphrase(ctx context.Context) ([]byte, error) {
	word, err := ask(ctx, "passphrase of the new authority")
	if err != nil {
		return nil, err
	}
	if len(word) == 0 {
		return nil, croft.Errorf(croft.Invalid, "the passphrase is empty: whoever reads the key could sign "+
			"(--no-passphrase makes such a key)")
	}
	again, err := ask(ctx, "same passphrase again")
	if err == nil && !bytes.Equal(word, again) {
		err = croft.Errorf(croft.Invalid, "the two passphrases differ: nothing was made")
	}
	return word, err
}
