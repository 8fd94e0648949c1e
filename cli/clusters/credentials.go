package clusters

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/cluster"
	"croft/cluster/seal"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/out"
)

func credentialCommand() *cobra.Command {
	cmd := verb.Group("credential", "Manage your credentials, with which the cloud builds clusters at sites",
		`credential keeps user names and passwords with which the cloud builds clusters for you
at OpenStack sites. Only you can use yours; admins of your project see that it exists,
and can remove it. The password is encrypted with a key that is not in etcd, and no
command prints it. It is read from the terminal, --password-file or stdin, never from an
argument.

Heat needs a password: application credentials cannot create the trust that Heat needs.`,
		`  croft cluster credential create lab --site lab --username anna --project-name physics
  croft cluster credential set lab --password-file new
  croft cluster credential list`,
		credentialList(), credentials.Show("Show a credential, without its secret"), credentialCreate(),
		credentialSet(), credentials.Remove("Remove credentials that no living cluster needs",
			func(ctx context.Context, c *args.Client, name string) error {
				return c.RemoveCredential(ctx, credentialNamed(c, name))
			}), rewrapCommand())
	for _, sub := range cmd.Commands() {
		args.AddCloudFlags(sub.Flags())
	}
	cmd.AddCommand(keyCommand()) // needs no cloud
	return cmd
}

// credentials are the user's own credentials.
var credentials = verb.Noun[cluster.Credential]{
	Name: "credential",
	Use:  "UUID|NAME",
	All: func(ctx context.Context, c *args.Client) ([]cluster.Credential, error) {
		return credentialsOf(ctx, c, false)
	},
	Find: func(ctx context.Context, c *args.Client, name string) (cluster.Credential, error) {
		return c.GetCredential(ctx, credentialNamed(c, name))
	},
	Word: func(one cluster.Credential) (string, string) { return one.Name, one.Username + " at site " + one.Site },
	Head: []string{"NAME", "SITE", "USERNAME", "PROJECT THERE", "USER", "STATE"},
	Row: func(one cluster.Credential) []out.Cell {
		return append(verb.Texts(one.Name, one.Site, out.OrDash(one.Username),
			out.OrDash(one.ProjectName+one.ProjectID), one.User), standing(one))
	},
	Rows: credentialRows,
}

func credentialNamed(c *args.Client, idOrName string) api.CredentialNamed {
	return api.CredentialNamed{InProject: api.InProject{Project: c.Project}, ID: idOrName}
}

// credentialsOf lists the credentials of the caller, or of all users.
func credentialsOf(ctx context.Context, c *args.Client, everybodys bool) ([]cluster.Credential, error) {
	list, err := c.ListCredentials(ctx, api.CredentialFilter{InProject: api.InProject{Project: c.Project},
		All: everybodys})
	return list.Credentials, err
}

func credentialRows(t *out.Table, one cluster.Credential) {
	t.Texts("name", one.Name)
	t.Texts("id", string(one.ID))
	t.Texts("site", one.Site)
	t.Texts("user", one.User+" in project "+string(one.Project))
	for _, row := range [][2]string{{"username", one.Username}, {"domain", one.UserDomain},
		{"project there", one.ProjectName + one.ProjectID}, {"its domain", one.ProjectDomain}} {
		if row[1] != "" {
			t.Texts(row[0], row[1])
		}
	}
	t.Row(out.Cell{Text: "state"}, standing(one))
}

func credentialList() *cobra.Command {
	var everybodys bool
	n := credentials
	n.All = func(ctx context.Context, c *args.Client) ([]cluster.Credential, error) {
		return credentialsOf(ctx, c, everybodys)
	}
	cmd := n.List("List your credentials, without their secrets")
	cmd.Flags().BoolVar(&everybodys, "all", false, "those of all users, for admins of the project and operators")
	return cmd
}

// standing describes whether a site accepts a credential.
func standing(one cluster.Credential) out.Cell {
	switch {
	case one.LastError != "":
		return out.Cell{Text: "refused: " + one.LastError, Color: out.Red}
	case one.VerifiedAt.IsZero():
		return out.Cell{Text: "not verified", Color: out.Yellow}
	}
	return out.Cell{Text: "accepted at " + moment(one.VerifiedAt), Color: out.Green}
}

// identity describes a user at a site, as flags give it.
type identity struct {
	api.NewCredential
	file       string
	unverified bool
}

func (i *identity) add(f *pflag.FlagSet) {
	f.StringVar(&i.Username, "username", "", "`name` of the user at the site")
	f.StringVar(&i.UserDomain, "user-domain", "", "`name` of the user's domain (Default)")
	f.StringVar(&i.ProjectName, "project-name", "", "`name` of the project at the site")
	f.StringVar(&i.ProjectID, "project-id", "", "`ID` of the project at the site, instead of its name")
	f.StringVar(&i.ProjectDomain, "project-domain", "", "`name` of that project's domain (Default)")
	f.StringVar(&i.file, "password-file", "", "read the password or token from this `file`; - is stdin (ask for it)")
	f.BoolVar(&i.unverified, "no-verify", false, "store it without logging in first")
}

// check returns whether the site has to accept the credential.
func (i *identity) check() api.CredentialCheck {
	verify := !i.unverified
	return api.CredentialCheck{Verify: &verify}
}

// longestSecret limits the length of a password, in bytes.
const longestSecret = 4 << 10

// secret reads the password: from a file, from the terminal without showing it, or from stdin. Errors never contain it.
func (i *identity) secret(cmd *cobra.Command) (api.Given, error) {
	var text []byte
	var err error
	in, isFile := cmd.InOrStdin().(*os.File)
	switch {
	case i.file != "":
		text, err = readFile(cmd.InOrStdin(), i.file, longestSecret)
	case isFile && out.IsTerminal(in):
		text, err = command.ReadSecret(cmd.Context(), in, cmd.ErrOrStderr(), "password")
	default:
		text, err = readFile(cmd.InOrStdin(), "-", longestSecret)
	}
	if err != nil {
		return api.Given{}, err
	}
	word := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if word == "" {
		return api.Given{}, croft.Errorf(croft.Invalid, "the password is empty")
	}
	return api.Given{Secret: cluster.NewSecret(word)}, nil
}

func credentialCreate() *cobra.Command {
	var i identity
	cmd := &cobra.Command{
		Use:   "create NAME --site SITE",
		Short: "Store a credential, after checking that the site accepts it",
		RunE: func(cmd *cobra.Command, given []string) (err error) {
			if err := cluster.CheckName("a credential", given[0]); err != nil {
				return err
			}
			if i.Site == "" {
				return croft.Errorf(croft.Invalid, "name the site with --site")
			}
			err = args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				return wantsCredential(ctx, c, i.Site)
			})
			if err != nil {
				return err
			}
			i.Name, i.CredentialCheck = given[0], i.check()
			if i.Secret, err = i.secret(cmd); err != nil {
				return err
			}
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				i.Project = c.Project
				made, err := c.CreateCredential(ctx, i.NewCredential)
				if err != nil {
					return sites.Near(ctx, c, i.Site, err)
				}
				return c.Report(made, "credential %s for site %s is %s", made.Name, made.Site, standing(made).Text)
			})
		},
	}
	cmd.Flags().StringVar(&i.Site, "site", "", "the `site` that it is for")
	cmd.Flags().StringVar((*string)(&i.Kind), "kind", "", "password, or token for a site of type croft (`kind`)")
	_ = cmd.RegisterFlagCompletionFunc("site", sites.Complete(-1)) // the flag was defined above
	i.add(cmd.Flags())
	return cmd
}

// wantsCredential returns an error if a site does not exist or needs no credential, before the user types a password.
func wantsCredential(ctx context.Context, c *args.Client, site string) error {
	at, err := sites.Find(ctx, c, site)
	if err != nil {
		return sites.Near(ctx, c, site, err)
	}
	_, err = at.CredentialKind()
	return err
}

func credentialSet() *cobra.Command {
	var i identity
	var ask bool
	cmd := &cobra.Command{
		Use:   "set UUID|NAME",
		Short: "Change a credential, such as its password",
		Long: `set changes what its flags say: --password asks for a new password, --password-file
reads it. Clusters that wait because the site refused the old one continue
automatically.`,
		ValidArgsFunction: credentials.Complete(1),
	}
	cmd.Flags().BoolVar(&ask, "password", false, "ask for a new password")
	i.add(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		f := cmd.Flags()
		change := api.CredentialChange{CredentialCheck: i.check(), CredentialChange: cluster.CredentialChange{
			Username: verb.Given(f, "username", &i.Username), UserDomain: verb.Given(f, "user-domain", &i.UserDomain),
			ProjectName: verb.Given(f, "project-name", &i.ProjectName),
			ProjectID:   verb.Given(f, "project-id", &i.ProjectID), ProjectDomain: verb.Given(f, "project-domain",
				&i.ProjectDomain)}}
		if ask || i.file != "" {
			secret, err := i.secret(cmd)
			if err != nil {
				return err
			}
			change.Secret = &secret
		}
		if change.Secret == nil && change.CredentialChange == (cluster.CredentialChange{}) {
			return croft.Errorf(croft.Invalid, "no change is given: see %s --help", cmd.CommandPath())
		}
		return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
			change.CredentialNamed = credentialNamed(c, given[0])
			now, err := c.ChangeCredential(ctx, change)
			if err != nil {
				return credentials.Near(ctx, c, given[0], err)
			}
			return c.Report(now, "credential %s is %s", now.Name, standing(now).Text)
		})
	}
	return cmd
}

func keyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "key FILE",
		Short: "Make a key file, with which servers seal secrets",
		Long: `key makes a file with a new key that only you may read, for clusters.credential_key_file
in compute.yaml. Every server of a cloud needs the same file. Anyone who has it and a
copy of etcd can decrypt the secrets; if it is lost, all users have to set their
passwords again.

To change the key: name the new file first and the old one behind it on every server,
then croft cluster credential rewrap, then remove the old one.`,
		RunE: func(cmd *cobra.Command, given []string) error {
			id, err := seal.Generate(given[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "key %s is in %s\n", id, given[0])
			return nil
		},
	}
}

func rewrapCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rewrap",
		Short: "Encrypt all secrets again with the first key of the servers, for operators",
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			done, err := c.RewrapSecrets(ctx)
			if err != nil {
				return err
			}
			return c.Report(done, "%d secrets are sealed by another key now", done.Secrets)
		}),
	}
}
