// Package keys has the commands that store public SSH keys of a project in the cloud: croft key.
package keys

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/control/api"
	"croft/internal/out"
	"croft/internal/userfile"
	"croft/schedule"
	"croft/schedule/sshkeys"
)

// Command returns the command croft key.
func Command() *cobra.Command {
	return verb.CloudGroup("key", "Store public SSH keys, to name in requests",
		`key stores public SSH keys of a project in the cloud, so that its members can use
schedule --key NAME from any machine.`,
		`  croft key add laptop ~/.ssh/id_ed25519.pub
  croft key list
  croft schedule VCPU:1,MEMORY_MB:256,DISK_GB:1 --key laptop`,
		addCommand(), keys.List("List the keys"), removeCommand())
}

var keys = verb.Noun[schedule.Key]{
	Name: "key",
	All: func(ctx context.Context, c *args.Client) ([]schedule.Key, error) {
		list, err := c.ListKeys(ctx, api.InProject{Project: c.Project})
		if err == nil {
			c.NoteUnknownProject(c.Cmd, len(list.Keys))
		}
		return list.Keys, err
	},
	Word: func(k schedule.Key) (string, string) { return k.Name, comment(k.Line) },
	Head: []string{"NAME", "FINGERPRINT", "COMMENT", "ADDED"},
	Row: func(k schedule.Key) []out.Cell {
		return verb.Texts(k.Name, fingerprint(k.Line), comment(k.Line), k.Added.Format(time.DateTime))
	},
}

func addCommand() *cobra.Command {
	var line string
	return &cobra.Command{
		Use:   "add NAME FILE|-|KEY",
		Short: "Store a public key under a name",
		PreRunE: func(cmd *cobra.Command, given []string) (err error) {
			if err := checkKeyName(given[0]); err != nil {
				return err
			}
			line, err = oneKey(given[1], cmd.InOrStdin())
			return err
		},
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			k, err := c.AddKey(ctx, api.NewKey{InProject: api.InProject{Project: c.Project}, Name: c.Args[0],
				Line: line})
			if err != nil {
				return err
			}
			return c.Report(k, "key %s %s", k.Name, fingerprint(line))
		}),
	}
}

// checkKeyName returns an error for words that stand for other keys.
func checkKeyName(name string) error {
	if name == sshkeys.Agent || name == sshkeys.Auto {
		return croft.Errorf(croft.Invalid,
			"a key cannot be named %s, which stands for the keys of your SSH agent: choose another name", name)
	}
	return schedule.CheckName(name)
}

// oneKey reads exactly one key: a name cannot stand for several.
func oneKey(text string, stdin io.Reader) (string, error) {
	if text == "-" {
		data, err := userfile.ReadFrom(stdin, 64<<10)
		if err != nil {
			return "", croft.Errorf(croft.Invalid, "read the key: %w", err)
		}
		return sshkeys.Parse(string(data))
	}
	keys, err := sshkeys.ReadOne(text)
	if err != nil {
		return "", err
	}
	if len(keys) != 1 {
		return "", croft.Errorf(croft.Invalid, "there are %d keys in %s: give a file with one key", len(keys), text)
	}
	return keys[0], nil
}

func removeCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "remove NAME...",
		Short:             "Remove keys; instances that have them keep them",
		ValidArgsFunction: keys.Complete(-1),
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			return verb.Each(c.Args, keys.Known(ctx, c), func(name string) error {
				return c.RemoveKey(ctx, api.KeyNamed{InProject: api.InProject{Project: c.Project}, Name: name})
			})
		}),
	}
}

// fingerprint returns the fingerprint that ssh-keygen -l prints, for comparison by eye.
func fingerprint(line string) string {
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil {
		return "none"
	}
	return ssh.FingerprintSHA256(key)
}

func comment(line string) string {
	_, words, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil {
		return ""
	}
	return words
}
