// Package login has the commands that say once, for all later commands, which cloud the user means and who the user is
// there: croft login and croft logout.
package login

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"croft"
	"croft/access"
	"croft/cli/args"
	"croft/cli/out"
	"croft/cloud/login"
	"croft/cloud/remote"
)

// Command makes the command croft login.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "login URL",
		Short: "Log in to a cloud, for all commands",
		Long: `login logs in to the cloud whose API is at URL: it prints a page and a code, to be
entered in a browser on any machine, and keeps what the cloud's identity provider then
gives. With --token it keeps a token of croft instead, which it reads from standard
input or asks for.

Later commands use it, and renew what expires, until croft logout. What is said in
another way goes before: flags, CROFT_URL, and settings that name etcd or Placement. On
a machine that runs a cloud, a login goes before that cloud.

It is kept in croft/login.json below the directory of your settings, which nobody else
may read.`,
		Example: `  croft login https://cloud.example:8781
  croft login https://cloud.example:8781 --ca cloud.pem --token < token`,
		Args: args.Count(1, 1),
	}
	ca := cmd.Flags().String("ca", "", "`file` with the authority of the cloud's certificate")
	token := cmd.Flags().Bool("token", false, "keep a token of croft, from standard input")
	project := cmd.Flags().String("project", "", "the project that is meant, for users with roles in several (`name`)")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		s := remote.Settings{URL: given[0], Home: croft.Project(*project)}
		if *project != "" {
			if err := s.Home.Check(); err != nil {
				return err
			}
		}
		if *ca != "" {
			var err error
			if s.CA, err = filepath.Abs(*ca); err != nil {
				return croft.Errorf(croft.Invalid, "--ca: %w", err)
			}
		}
		if err := s.Check(); err != nil {
			return err
		}
		c, err := credentials(cmd, s, *token)
		if err != nil {
			return err
		}
		c.URL, c.CA, c.Project, s.Token = s.URL, s.CA, s.Home, c.Token
		caller, err := whoami(cmd.Context(), s)
		if err != nil {
			return err
		}
		if err := c.Write(login.File()); err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "logged in to %s as %s\n", s.URL, words(caller))
		return nil
	}
	return cmd
}

// words says who somebody is.
func words(c access.Caller) string {
	var roles []string
	for _, r := range c.Roles {
		roles = append(roles, string(r))
	}
	where := "the whole cloud"
	if c.Project != "" {
		where = "project " + string(c.Project)
	}
	return fmt.Sprintf("%s, %s of %s", c.User, strings.Join(roles, ", "), where)
}

// credentials gets what the user logs in with.
func credentials(cmd *cobra.Command, s remote.Settings, token bool) (login.Context, error) {
	if token {
		text, err := readToken(cmd)
		return login.Context{Token: text}, err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), args.AnswerTimeout)
	defer cancel()
	client, err := remote.New(s)
	if err != nil {
		return login.Context{}, err
	}
	root, err := client.Root(ctx) // without credentials, since there are none
	if err := errors.Join(err, client.Close()); err != nil {
		return login.Context{}, err
	}
	if root.Login == nil {
		return login.Context{}, croft.Errorf(croft.Invalid,
			"the cloud at %s has no identity provider: ask for a token of croft, and use --token", s.URL)
	}
	return login.Device(cmd.Context(), login.Issuer{URL: root.Login.Issuer, Client: root.Login.Client},
		func(p login.Prompt) {
			fmt.Fprintf(cmd.ErrOrStderr(), "open %s and enter the code %s\n", p.Page, p.Code)
			if p.Full != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "or open %s\n", p.Full)
			}
		})
}

// longestToken bounds what is read.
const longestToken = 16 << 10

// readToken asks for a token on a terminal, and otherwise reads it.
func readToken(cmd *cobra.Command) (string, error) {
	var text []byte
	var err error
	if in, ok := cmd.InOrStdin().(*os.File); ok && out.IsTerminal(in) {
		fmt.Fprint(cmd.ErrOrStderr(), "token: ")
		text, err = term.ReadPassword(int(in.Fd()))
		fmt.Fprintln(cmd.ErrOrStderr())
	} else {
		text, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), longestToken))
	}
	if err != nil {
		return "", croft.Errorf(croft.Invalid, "read the token: %w", err)
	}
	secret, err := access.ParseSecret(strings.TrimSpace(string(text)))
	if err != nil {
		return "", err
	}
	return secret.Text(), nil
}

// whoami asks the cloud who the user is, before anything is kept.
func whoami(ctx context.Context, s remote.Settings) (caller access.Caller, err error) {
	ctx, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
	defer cancel()
	client, err := remote.New(s)
	if err != nil {
		return caller, err
	}
	caller, err = client.Caller(ctx)
	return caller, errors.Join(err, client.Close())
}

// EndCommand makes the command croft logout.
func EndCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "logout",
		Short: "Forget the login",
		Long: `logout removes what croft login kept on this machine. A token of croft counts until it
expires or is revoked (croft access revoke).`,
		Args: args.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			file := login.File()
			c, err := login.Read(file)
			if errors.Is(err, croft.NotFound) {
				return err
			}
			if err := login.Remove(file); err != nil {
				return err
			}
			where := ""
			if err == nil {
				where = " of " + c.URL
				if !c.Expires.IsZero() {
					where += fmt.Sprintf(", which counted until %s", c.Expires.Local().Format(time.DateTime))
				}
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "the login%s is forgotten\n", where)
			return nil
		},
	}
}
