package backups

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/cluster"
	"croft/compute/backup"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/delay"
	"croft/internal/out"
	"croft/internal/plain"
)

var stores = verb.Noun[api.BackupStore]{
	Name: "store",
	All: func(ctx context.Context, c *args.Client) ([]api.BackupStore, error) {
		list, err := c.ListBackupStores(ctx, api.InProject{Project: c.Project})
		return list.Stores, err
	},
	Find: func(ctx context.Context, c *args.Client, name string) (api.BackupStore, error) {
		return c.GetBackupStore(ctx, api.BackupStoreInProject{BackupStoreNamed: api.BackupStoreNamed{Name: name},
			InProject: api.InProject{Project: c.Project}})
	},
	Word: func(s api.BackupStore) (string, string) { return s.Name, string(s.State) },
	Head: []string{"NAME", "STATE", "REPOSITORY", "PROJECTS", "CHECKED", "FREE"},
	Row: func(s api.BackupStore) []out.Cell {
		return verb.Texts(s.Name, string(s.State), s.Repository, projects(s), clock(s.Checked), cmp.Or(free(s), "-"))
	},
	Rows: func(t *out.Table, s api.BackupStore) {
		for _, row := range [][2]string{{"name", s.Name}, {"state", string(s.State)}, {"error", s.Error},
			{"repository", s.Repository}, {"projects", projects(s)}, {"created", s.Created.Format(time.DateTime)},
			{"checked", clock(s.Checked)}, {"free", free(s)}} {
			if row[1] != "" {
				t.Texts(row[0], row[1])
			}
		}
	},
}

// free describes the space of a store, after the last job; empty: it is not known.
func free(s api.BackupStore) string {
	if s.Room == nil {
		return ""
	}
	return fmt.Sprintf("%s of %s", out.Bytes(s.Room.Free), out.Bytes(s.Room.Size))
}

func projects(s api.BackupStore) string {
	var all []string
	for _, p := range s.Projects {
		all = append(all, string(p))
	}
	return strings.Join(all, ", ")
}

func storeCommand() *cobra.Command {
	return verb.CloudGroup("store", "Say where backups are kept",
		`store manages where backups are kept: repositories of restic outside the hosts, in a
directory that all hosts mount, or at an address that restic knows. The password goes in,
sealed, and never comes out: keep a copy of it, or the backups are lost with the cloud.
A host that makes a backup gets the access to the store for that job.`,
		`  croft backup store add main /mnt/backups --password-file secret
  croft backup store add s3 s3:https://s3.example/backups --env-file keys
  croft backup store check main`,
		storeAdd(), stores.List("List the stores"), stores.Show("Show a store, without its password"), storeCheck(),
		storeRemove())
}

func storeRemove() *cobra.Command {
	var forget bool
	var yes string
	cmd := stores.Remove("Forget stores; their repositories stay",
		func(ctx context.Context, c *args.Client, name string) error {
			in := api.BackupStoreRemoval{BackupStoreNamed: api.BackupStoreNamed{Name: name}}
			if forget {
				in.Forget = name
			}
			return c.RemoveBackupStore(ctx, in)
		})
	remove := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		for _, name := range given {
			if !forget {
				break
			}
			if err := verb.NameAgain(cmd, "forget backup store", name, yes, fmt.Sprintf("the backups in store %s and "+
				"the schedules for it will be removed from the cloud, in all projects; to forget it, type its name "+
				"again: ", plain.Line(name))); err != nil {
				return err
			}
		}
		return remove(cmd, given)
	}
	cmd.Long = `remove forgets stores that have no backups and no schedules; what their repositories
contain stays there. With --forget, for a store that is gone for good, its backups and
schedules are removed from the cloud too, after its name was typed again. An instance
that is being restored from such a backup must have ended.`
	cmd.Flags().BoolVar(&forget, "forget", false, "with its backups and schedules: it is gone for good")
	cmd.Flags().StringVar(&yes, "yes", "", "the name of the store once more, instead of a question")
	return cmd
}

// longestSecret limits the length of a password or of a file of variables, in bytes.
const longestSecret = 64 << 10

// secret reads a password: from a file, from the terminal without showing it, or from stdin. Errors never contain it.
func secret(cmd *cobra.Command, file string) (api.Given, error) {
	var text []byte
	var err error
	in, isFile := cmd.InOrStdin().(*os.File)
	if file == "" && isFile && out.IsTerminal(in) {
		text, err = command.ReadSecret(cmd.Context(), in, cmd.ErrOrStderr(), "password")
	} else {
		if file == "" {
			file = "-"
		}
		text, err = args.ReadFile(cmd.InOrStdin(), "the password", file, longestSecret)
	}
	if err != nil {
		return api.Given{}, err
	}
	word := strings.TrimRight(string(text), "\r\n")
	if word == "" || strings.ContainsAny(word, "\r\n\x00") {
		return api.Given{}, croft.Errorf(croft.Invalid, "the password is empty, or has several lines")
	}
	return api.Given{Secret: cluster.NewSecret(word)}, nil
}

// environment reads the variables of a store from a file with lines NAME=VALUE. Errors never contain a value. Invalid.
func environment(cmd *cobra.Command, file string) (map[string]api.Given, error) {
	if file == "" {
		return nil, nil
	}
	text, err := args.ReadFile(cmd.InOrStdin(), "the variables", file, longestSecret)
	if err != nil {
		return nil, err
	}
	all := map[string]api.Given{}
	for _, line := range strings.Split(string(text), "\n") {
		line = strings.TrimRight(line, "\r")
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, is := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		if !is {
			return nil, croft.Errorf(croft.Invalid, "read the variables: a line of %s is not NAME=VALUE", file)
		}
		all[name] = api.Given{Secret: cluster.NewSecret(value)}
	}
	return all, nil
}

func storeAdd() *cobra.Command {
	var in api.NewBackupStore
	var passwordFile, envFile string
	var of []string
	cmd := &cobra.Command{
		Use:   "add NAME REPOSITORY",
		Short: "Add a store",
		Long: `add adds a repository of restic: a directory that all hosts mount, such as
/mnt/backups, or an address as restic has it, such as sftp:user@host:/dir,
s3:https://host/bucket or rest:https://host/. A host opens it with the password, or makes
it if there is none. Credentials of the backend, such as AWS_ACCESS_KEY_ID, are read from
a file.`,
	}
	cmd.RunE = func(cmd *cobra.Command, given []string) (err error) {
		in.Name, in.Repository = given[0], given[1]
		if err := backup.CheckRepository(in.Repository); err != nil {
			return err // before the user types a password
		}
		if in.Password, err = secret(cmd, passwordFile); err != nil {
			return err
		}
		if in.Environment, err = environment(cmd, envFile); err != nil {
			return err
		}
		for _, p := range of {
			in.Projects = append(in.Projects, croft.Project(p))
		}
		return verb.Wait(func(ctx context.Context, c *args.Client) error {
			s, err := verb.Asked(ctx, c.CreateBackupStore, in)
			if err == nil {
				s, err = awaitStore(ctx, c, s)
			}
			if err != nil {
				return err
			}
			return c.Report(s, "backup store %s is ready: keep a copy of its password", s.Name)
		})(cmd, given)
	}
	cmd.Flags().StringVar(&passwordFile, "password-file", "",
		"read the repository's password from this `file`; - is stdin (ask for it)")
	cmd.Flags().StringVar(&envFile, "env-file", "", "read credentials of the backend from this `file`, as NAME=VALUE")
	cmd.Flags().StringSliceVar(&of, "for", nil, "only this `project` may use it; can be repeated (all)")
	return cmd
}

// awaitStore returns the store once a host has checked it.
func awaitStore(ctx context.Context, c *args.Client, s api.BackupStore) (api.BackupStore, error) {
	for s.State == backup.Checking {
		err := delay.For(ctx, poll)
		if err == nil {
			err = verb.Within(ctx, func(ctx context.Context) error {
				s, err = stores.Find(ctx, c, s.Name)
				return err
			})
		}
		if err != nil {
			return s, err
		}
	}
	if s.State != backup.Ready {
		return s, croft.Errorf(croft.Unavailable, "backup store %s cannot be used: %s; `croft backup store check "+
			"%s` tries again, `croft backup store remove %s` forgets it", s.Name, s.Error, s.Name, s.Name)
	}
	return s, nil
}

func storeCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check NAME...",
		Short: "Verify all data of stores",
		Long: `check has a host run restic check with all data of the repository, which reads all of it.
Of a store that could not be opened yet it only tries that again.`,
		ValidArgsFunction: stores.Complete(-1),
		RunE: verb.Wait(func(ctx context.Context, c *args.Client) error {
			return verb.Each(c.Args, stores.Known(ctx, c), func(name string) error {
				s, err := verb.Asked(ctx, c.CheckBackupStore, api.BackupStoreNamed{Name: name})
				if err == nil {
					s, err = awaitStore(ctx, c, s)
				}
				if err != nil {
					return stores.Near(ctx, c, name, err)
				}
				c.Say("backup store %s is verified", s.Name)
				return nil
			})
		}),
	}
}
