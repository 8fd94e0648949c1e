package tokens

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/verb"
	"croft/internal/durable"
	"croft/internal/out"
	"croft/internal/userfile"
	"croft/pool/server"
)

func (o *options) createForPool(cmd *cobra.Command, given []string) error {
	token, grant, err := server.NewToken(given[0], server.Role(cmp.Or(o.role, string(server.RoleClient))))
	if err = errors.Join(err, o.quota.Check()); err != nil {
		return err
	}
	if grant.Quota = o.quota; o.quota != (server.Quota{}) && grant.Role != server.RoleClient {
		return croft.Errorf(croft.Invalid, "--open and --rate are for tokens of clients: admins have no quota")
	}
	err = o.changeFile(true, func(text string, all []server.Grant) (string, error) {
		if slices.ContainsFunc(all, func(g server.Grant) bool { return g.Name == grant.Name }) {
			return "", croft.Errorf(croft.Conflict, "%s has a token named %s already: revoke that, or take another name",
				o.tokens, grant.Name)
		}
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		return text + grant.Line(), nil
	})
	if err != nil {
		return err
	}
	if _, err = fmt.Fprintln(cmd.OutOrStdout(), token); err != nil {
		return err
	}
	path := o.tokens
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "token %s is added to %s; a manager reads that file if it was started with --tokens %s\n",
		grant.Name, path, path)
	return nil
}

func (o *options) listForPool(cmd *cobra.Command, _ []string) error {
	_, all, err := o.readFile()
	if err != nil {
		return err
	}
	t := &out.Table{Color: out.IsColored(cmd.OutOrStdout())}
	t.Head("NAME", "ROLE", "OPEN", "RATE")
	for _, g := range all {
		t.Texts(g.Name, string(g.Role), quotaInWords(g, g.Open == 0, g.Open), quotaInWords(g, g.Rate == 0, g.Rate))
	}
	return t.Print(cmd.OutOrStdout())
}

// quotaInWords formats a number of a token's quota.
func quotaInWords(g server.Grant, unsaid bool, number any) string {
	switch {
	case g.Role != server.RoleClient:
		return "-"
	case unsaid:
		return "default"
	}
	return fmt.Sprint(number)
}

func (o *options) removeForPool(_ *cobra.Command, given []string) error {
	return o.changeFile(false, func(text string, all []server.Grant) (string, error) {
		check := func(name string) error {
			if !slices.ContainsFunc(all, func(g server.Grant) bool { return g.Name == name }) {
				return croft.Errorf(croft.NotFound, "%s has no token named %s", o.tokens, name)
			}
			return nil
		}
		lines := strings.SplitAfter(text, "\n")
		err := verb.Each(given, check, func(name string) error {
			lines = slices.DeleteFunc(lines, func(line string) bool {
				words := strings.Fields(line)
				return len(words) > 0 && words[0] == name
			})
			return check(name)
		})
		return strings.Join(lines, ""), err
	})
}

func (o *options) readFile() (string, []server.Grant, error) {
	text, err := userfile.Read(o.tokens)
	if err != nil {
		return "", nil, croft.Errorf(croft.Invalid, "read the file of tokens: %w; name it with --tokens", err)
	}
	all, err := server.ParseTokens(o.tokens, text)
	return string(text), all, err
}

// changeFile replaces the file of tokens atomically, so that no reader sees half of it.
func (o *options) changeFile(mint bool, change func(text string, all []server.Grant) (string, error)) error {
	text, all, err := o.readFile()
	if err != nil && !(mint && errors.Is(err, fs.ErrNotExist)) {
		return err
	}
	if text, err = change(text, all); err != nil {
		return err
	}
	mode := os.FileMode(0o600)
	if info, err := os.Stat(o.tokens); err == nil {
		mode = info.Mode().Perm()
	}
	return durable.Write(o.tokens, []byte(text), mode)
}
