// Package login has the commands that log in to a cloud for all later commands, and log out: croft login and croft
// logout.
package login

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/client"
	"croft/client/login"
	"croft/internal/command"
	"croft/internal/out"
	"croft/internal/userfile"
	"croft/tenant/access"
)

// Command returns the command croft login.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "login URL",
		Short: "Log in to a cloud, for all commands",
		Long: `login logs in to the cloud whose API is at URL: it prints an address and a code, to be
entered in a browser on any machine, and stores the tokens of the cloud's identity
provider. With --token it stores a token of croft instead, which it reads from standard
input or prompts for.

Later commands use it, and renew what expires, until croft logout. With --name you can
keep several logins, as contexts: the latest is the current one, until croft context
use. Which cloud a command means is decided by, in this order: its flags (--context,
--etcd), CROFT_URL with CROFT_TOKEN, CROFT_CONTEXT, settings that name a cloud, the
current context, and then the cloud of this machine.

Contexts are kept in croft/login.json below the directory of your settings, which only
you may read.`,
		Example: `  croft login https://cloud.example:8781
  croft login --name work https://cloud.example:8781 --ca cloud.pem --token < token`,
	}
	ca := cmd.Flags().String("ca", "", "`file` with the authority of the cloud's certificate")
	name := cmd.Flags().String("name", login.Default, "`name` of the context, which is replaced if there is one")
	token := cmd.Flags().Bool("token", false, "store a token of croft, from standard input")
	project := cmd.Flags().String("project", "", "the project to use, for users with roles in several (`name`)")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		s := client.Settings{URL: given[0], Home: croft.Project(*project)}
		if err := login.CheckName(*name); err != nil {
			return err
		}
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
		c.User = caller.User
		if c.Refresh == "" && !caller.Expires.IsZero() { // a token of croft, which is bound to its project
			c.Expires, c.Project = caller.Expires, cmp.Or(c.Project, caller.Project)
		}
		if err := login.Own().Put(*name, c); err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "logged in to %s as %s\n", s.URL, words(caller))
		if *name != login.Default {
			fmt.Fprintf(cmd.ErrOrStderr(), "context %s is the current one\n", *name)
		}
		return nil
	}
	return cmd
}

// words describes the caller.
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

// credentials returns the credentials for the login.
func credentials(cmd *cobra.Command, s client.Settings, token bool) (login.Context, error) {
	if token {
		text, err := readToken(cmd)
		return login.Context{Token: text}, err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), args.AnswerTimeout)
	defer cancel()
	client, err := client.New(s)
	if err != nil {
		return login.Context{}, err
	}
	root, err := client.Root(ctx) // without credentials: there are none yet
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

// longestToken limits the length of a token.
const longestToken = 16 << 10

// readToken asks for a token on a terminal; otherwise it reads the token from stdin.
func readToken(cmd *cobra.Command) (string, error) {
	var text []byte
	var err error
	if in, ok := cmd.InOrStdin().(*os.File); ok && out.IsTerminal(in) {
		text, err = command.ReadSecret(cmd.Context(), in, cmd.ErrOrStderr(), "token")
	} else {
		text, err = userfile.ReadFrom(cmd.InOrStdin(), longestToken)
	}
	if errors.Is(err, context.Canceled) {
		return "", err
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

// whoami asks the cloud for the caller, before anything is stored.
func whoami(ctx context.Context, s client.Settings) (caller access.Caller, err error) {
	ctx, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
	defer cancel()
	client, err := client.New(s)
	if err != nil {
		return caller, err
	}
	caller, err = client.Caller(ctx)
	return caller, errors.Join(err, client.Close())
}

// EndCommand returns the command croft logout.
func EndCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "logout [CONTEXT]",
		Short: "Remove a login from this machine",
		Long: `logout removes the login that croft login stored on this machine: the current context,
or the named one. Others stay. A token of croft is valid until it expires or is removed
(croft token remove --for api).`,
		ValidArgsFunction: completeContexts,
		RunE: func(cmd *cobra.Command, given []string) error {
			if len(given) > 0 {
				return forget(cmd, given[0])
			}
			name, err := current()
			if err != nil {
				return err
			}
			return forget(cmd, name)
		},
	}
	return cmd
}

// current returns the context that is used unless another one is named. NotFound.
func current() (string, error) {
	if name := os.Getenv(login.Variable); name != "" {
		return name, nil
	}
	all, err := login.Own().Peek()
	if err != nil {
		return "", err
	}
	if all.Current == "" && len(all.Contexts) > 0 {
		return "", croft.Errorf(croft.NotFound, "no context is the current one: name one of %s",
			strings.Join(all.Names(), ", "))
	}
	if all.Current == "" {
		return "", croft.Errorf(croft.NotFound, "nobody is logged in")
	}
	return all.Current, nil
}

// forget removes a context.
func forget(cmd *cobra.Command, name string) error {
	c, err := login.Own().Remove(name)
	if err != nil {
		return err
	}
	until := ""
	if !c.Expires.IsZero() {
		until = fmt.Sprintf("; its token is valid until %s", c.Expires.Local().Format(time.DateTime))
	}
	which := ""
	if name != login.Default {
		which = " " + name
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "the login%s of %s is removed%s\n", which, c.URL, until)
	return nil
}

// WhoAmICommand returns the command croft whoami.
func WhoAmICommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "whoami",
		Short: "Show your user, project and roles, and the address of the cloud",
		Long: `whoami prints your user name in the cloud, your project and your roles, how you
authenticate (a token, a login, the socket of this machine, or the cloud's etcd), and
the address of the cloud.`,
		Example: `  croft whoami
  croft whoami --context work -o json`,
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			caller, err := c.Caller(ctx)
			if err != nil {
				return err
			}
			cloud := c.Settings.URL
			if cloud == "" {
				cloud = strings.Join(c.Settings.Etcd.Endpoints, ",")
			}
			data := struct {
				access.Caller
				Cloud string `json:"cloud"`
			}{caller, cloud}
			return c.Print(data, func(t *out.Table) {
				rows := [][2]string{{"user", caller.User}, {"project", out.OrDash(string(caller.Project))},
					{"roles", strings.Join(access.Words(caller.Roles), ", ")}, {"via", caller.Via}, {"cloud", cloud}}
				if !caller.Expires.IsZero() {
					rows = append(rows, [2]string{"expires", caller.Expires.Local().Format(time.DateTime)})
				}
				for _, row := range rows {
					t.Texts(row[0], row[1])
				}
			})
		}),
	}
	args.AddCloudFlags(cmd.Flags())
	return cmd
}
