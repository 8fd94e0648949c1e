package pools

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/internal/command"
	"croft/internal/durable"
	"croft/internal/out"
	"croft/pool/server"
)

// tokenCommand returns the command that edits the file of tokens.
func tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Create, list and revoke the tokens of the manager's clients",
		Long: `A file of tokens says who may ask a manager of pools: a name, a role and the hash of a
token on each line. A client opens, looks at and closes tickets; an admin looks after
pools and resources too. croft pool serve --tokens FILE asks for tokens then, and notices
a change of the file within a second.`,
		Args: command.OnlySubcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(createTokenCommand(), listTokensCommand(), revokeTokenCommand())
	return cmd
}

// tokensFlag defines --tokens, the path of the file.
func tokensFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("tokens", "pool-tokens", "`file` of tokens")
}

func createTokenCommand() *cobra.Command {
	var role string
	var quota server.Quota
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Print a new token and add its hash to the file",
		Long: `create prints a new token, which nobody can find out from the file. Clients give it in
the settings pool.token or pool.token_file, as CROFT_POOL_TOKEN, or, where they know
nothing but a URL, as its password: http://any:TOKEN@host:49100.`,
		Args: command.Count(1, 1),
	}
	file := tokensFlag(cmd)
	cmd.Flags().StringVar(&role, "role", string(server.RoleClient), "`what` it is for: client or admin")
	cmd.Flags().IntVar(&quota.Open, "open", 0,
		"how many tickets it may have open at `once` (default: the setting pool.quota.open)")
	cmd.Flags().Float64Var(&quota.Rate, "rate", 0,
		"how many new tickets a `second` it may open (default: the setting pool.quota.rate)")
	command.CompleteFlag(cmd, "role", server.Roles)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		token, grant, err := server.NewToken(args[0], server.Role(role))
		if err = errors.Join(err, quota.Check()); err != nil {
			return err
		}
		if grant.Quota = quota; quota != (server.Quota{}) && grant.Role != server.RoleClient {
			return croft.Errorf(croft.Invalid, "--open and --rate are for tokens of clients: admins have no quota")
		}
		err = changeTokens(*file, true, func(text string, all []server.Grant) (string, error) {
			if slices.ContainsFunc(all, func(g server.Grant) bool { return g.Name == grant.Name }) {
				return "",
					croft.Errorf(croft.Conflict, "%s has a token named %s already: revoke that, or take another name",
						*file, grant.Name)
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
		path := *file
		if absolute, err := filepath.Abs(path); err == nil {
			path = absolute
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "token %s is added to %s; a manager reads that file if it was started with --tokens %s\n",
			grant.Name, path, path)
		return nil
	}
	return cmd
}

func listTokensCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List whose tokens a file has",
		Args:  command.Count(0, 0),
	}
	file := tokensFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		_, all, err := readTokens(*file)
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
	return cmd
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

func revokeTokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke NAME",
		Short: "Take a token out of the file",
		Args:  command.Count(1, 1),
	}
	file := tokensFlag(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return changeTokens(*file, false, func(text string, all []server.Grant) (string, error) {
			if !slices.ContainsFunc(all, func(g server.Grant) bool { return g.Name == args[0] }) {
				return "", croft.Errorf(croft.NotFound, "%s has no token named %s", *file, args[0])
			}
			lines := slices.DeleteFunc(strings.SplitAfter(text, "\n"), func(line string) bool {
				words := strings.Fields(line)
				return len(words) > 0 && words[0] == args[0]
			})
			return strings.Join(lines, ""), nil
		})
	}
	return cmd
}

func readTokens(file string) (string, []server.Grant, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", nil, croft.Errorf(croft.Invalid, "read the file of tokens: %w; name it with --tokens", err)
	}
	all, err := server.ParseTokens(file, text)
	return string(text), all, err
}

// changeTokens replaces a file of tokens atomically, so that no reader sees half of it.
func changeTokens(file string, mint bool, change func(text string, all []server.Grant) (string, error)) error {
	text, all, err := readTokens(file)
	if err != nil && !(mint && errors.Is(err, fs.ErrNotExist)) {
		return err
	}
	if text, err = change(text, all); err != nil {
		return err
	}
	mode := os.FileMode(0o600)
	if info, err := os.Stat(file); err == nil {
		mode = info.Mode().Perm()
	}
	return durable.Write(file, []byte(text), mode)
}
