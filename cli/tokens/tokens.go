// Package tokens has the commands for tokens: those with which people and programs call the API of a cloud, those with
// which hosts join it, and those of the clients of a manager of pools.
package tokens

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/internal/command"
	"croft/internal/nearest"
	"croft/internal/out"
	"croft/internal/wording"
	"croft/pool/server"
	"croft/tenant/access"
)

// options are the flags of all commands of croft token.
type options struct {
	kind   string // value of --for
	tokens string // file of a manager of pools

	life             time.Duration
	role, user, note string
	project          bool // create the project
	host             string
	member           bool
	quota            server.Quota
	lifeFlag         string // the flag that set life, if it was the former one
}

// use is what tokens are for.
type use struct {
	name  string
	flags []string // of create, besides the common ones
	verbs map[string]func(*options, *cobra.Command, []string) error
	offer func(cmd *cobra.Command, given []string, prefix string) []string
}

// uses are the values of --for; the first one is the default.
var uses = []use{
	{"host", []string{"expires", "note", "host", "etcd-member"},
		map[string]func(*options, *cobra.Command, []string) error{"create": (*options).createForHost,
			"list": (*options).listForHosts, "remove": (*options).removeForHosts}, completeForHosts},
	{"api", []string{"expires", "note", "role", "user", "create"},
		map[string]func(*options, *cobra.Command, []string) error{"create": (*options).createForAPI,
			"list": (*options).listForAPI, "remove": (*options).removeForAPI}, completeForAPI},
	{"pool", []string{"role", "open", "rate"},
		map[string]func(*options, *cobra.Command, []string) error{"create": (*options).createForPool,
			"list": (*options).listForPool, "remove": (*options).removeForPool}, nil},
}

// Command returns the command croft token.
func Command() *cobra.Command {
	var o options
	create := &cobra.Command{
		Use:   "create [NAME]",
		Short: "Print a new token, once",
		Long: `create prints a token, which cannot be printed again: only its SHA-256 is kept.

--for host: machines become hosts of this cloud with it, any number of times, and it has
to be kept secret:

  croft up --join -          # and paste it; or --join @FILE

It is valid for an hour (--expires), and contains the address at which hosts join
(join.listen) and the SHA-256 of the certificate authority there, so that a new host
connects to no other server. The host proves that it has the token, and gets its own
certificates, which it then renews automatically. Only new hosts join with it. A host
whose certificates have expired needs a token made for it: --host NAME.

A cloud whose etcd is not croft's own, or has certificates of another authority, has no
server that signs. A token for such a cloud contains the address of etcd and the
authority of its certificate. Where etcd asks clients for certificates or passwords, a
host needs those in its own settings (etcd.cert, etcd.key, etcd.user,
etcd.password_file); the same holds if Placement is OpenStack's (placement.cloud). etcd
and Placement have to be reachable from the host: at the addresses that they listen on,
or those of --etcd and --placement.

--for api: its holder sends it with each request, as "Authorization: Bearer croft_...".
It is for a project (--project), which has to exist, unless --create creates it, with
the limits of new projects. It is valid for 30 days, or for --expires, up to a year. The
role (--role) sets its rights:

  reader           sees the project's instances, keys, quota and log
  member           also makes, changes and destroys instances, and keeps keys
  project-admin    also manages members, tokens and the projects below this one
  partition-admin  operates the whole cloud; of a project only if one is named

--for pool: its holder is NAME, a client of a manager of pools, or an admin (--role). It
is added to the file of tokens (--tokens) that croft serve pool --tokens reads. Clients
give it in the settings pool.token or pool.token_file, as CROFT_POOL_TOKEN, or, if they
accept only a URL, as its password: http://any:TOKEN@host:49100.`,
	}
	flags := create.Flags()
	command.DurationVar(flags, &o.life, "expires", 0, "how long it is valid: at most a week for hosts, a year for "+
		"the API")
	flags.StringVar(&o.note, "note", "", "what it is for, in `words` that croft token list shows")
	flags.StringVar(&o.host, "host", "",
		"let this host, by `name` or UUID, join again; without it only new hosts can join")
	_ = create.RegisterFlagCompletionFunc("host", args.CompleteHosts) // the flag is defined above
	flags.BoolVar(&o.member, "etcd-member", false,
		"where trust is strict: let hosts join with --etcd-member, and so reach etcd")
	flags.StringVar(&o.role, "role", "", "the `role` of its holder in the project (member), or for pools (client)")
	command.CompleteFlag(create, "role", slices.Concat(access.Words(access.TokenRoles), server.Roles))
	flags.StringVar(&o.user, "user", "", "`name` of the person or program that it stands for (default: yours)")
	flags.BoolVar(&o.project, "create", false, "create the project if there is none of this name")
	flags.IntVar(&o.quota.Open, "open", 0,
		"how many tickets it may have open at `once` (default: the setting pool.quota.open)")
	flags.Float64Var(&o.quota.Rate, "rate", 0,
		"how many new tickets a `second` it may open (default: the setting pool.quota.rate)")
	list := &cobra.Command{
		Use:   "list",
		Short: "List the tokens, without their secrets",
		Long: `list shows the tokens with which hosts may join; with --for api those of all projects, or
of one (--project), expired ones for a week; with --for pool those in a file (--tokens).`,
	}
	remove := &cobra.Command{
		Use:     "remove NAME...",
		Aliases: []string{"revoke"},
		Short:   "End tokens at once; hosts that joined with one stay",
		Long: `remove ends tokens at once, by the names or IDs that croft token list shows. Hosts that
have joined with one stay; croft host remove removes one.`,
		ValidArgsFunction: func(cmd *cobra.Command, given []string, prefix string) ([]string,
			cobra.ShellCompDirective) {
			u, err := o.use()
			if err != nil || u.offer == nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return u.offer(cmd, given, prefix), cobra.ShellCompDirectiveNoFileComp
		},
	}
	for _, sub := range []*cobra.Command{create, list, remove} {
		args.ForAnyProject(sub).RunE = func(cmd *cobra.Command, given []string) error {
			u, err := o.use()
			if err != nil {
				return err
			}
			if err := u.check(cmd, given); err != nil {
				return err
			}
			return u.verbs[sub.Name()](&o, cmd, given)
		}
	}
	cmd := verb.CloudGroup("token", "Make, list and remove tokens: for hosts that join, the API, or pools",
		`token manages tokens. With a token, a machine becomes a host of this cloud (--for host),
a person or a program calls its API for one project, in one role (--for api), or a
client requests resources from a manager of pools (--for pool).`,
		`  croft token create --note "rack 7"
  croft token create --for api --project research --role member --user ann --note "CI"
  croft token create --for pool ci --tokens pool-tokens
  croft token list --for api
  croft token remove --for api 1f3a5b7c9d0e`, create, list, remove)
	cmd.PersistentFlags().StringVar(&o.kind, "for", uses[0].name, "what it is for: `host`, api or pool")
	command.CompleteFlag(cmd, "for", words())
	cmd.PersistentFlags().StringVar(&o.tokens, "tokens", "pool-tokens", "`file` of tokens, with --for pool")
	return cmd
}

func words() (all []string) {
	for _, u := range uses {
		all = append(all, u.name)
	}
	return all
}

// use returns what --for names. A duration is the former meaning of --for: how long a token for hosts counts. Invalid.
func (o *options) use() (use, error) {
	if life, err := wording.ParseDuration(o.kind); err == nil {
		o.life, o.lifeFlag = life, "for"
		return uses[0], nil
	}
	i := slices.Index(words(), o.kind)
	if i < 0 {
		return use{}, croft.Errorf(croft.Invalid, "--for %q is not one of %s%s", o.kind, strings.Join(words(), ", "),
			nearest.Hint(o.kind, words()))
	}
	return uses[i], nil
}

// check refuses arguments and flags of tokens that are for something else. Invalid.
func (u use) check(cmd *cobra.Command, given []string) error {
	if cmd.Name() != "create" {
		return nil
	}
	if named := u.name == "pool"; named != (len(given) == 1) {
		return croft.Errorf(croft.Invalid, "usage: croft token create --for pool NAME, or --for host or api without a name")
	}
	for _, other := range uses {
		for _, flag := range other.flags {
			if cmd.Flags().Changed(flag) && !slices.Contains(u.flags, flag) {
				return croft.Errorf(croft.Invalid, "--%s is not for tokens for %s, but for %s: leave it out, or "+
					"give --for",
					flag, u.name, other.name)
			}
		}
	}
	return nil
}

// printSecret prints only the token on stdout, and a message on stderr; or data for programs.
func printSecret(c *args.Client, data any, secret, message string) error {
	if !c.WantsData() {
		c.Say("%s", message)
	}
	return c.PrintText(data, secret+"\n")
}

// expiry returns the time until which a token counts, in its color.
func expiry(at time.Time) out.Cell {
	if !time.Now().Before(at) {
		return out.Cell{Text: "expired", Color: out.Yellow}
	}
	return out.Cell{Text: at.Local().Format(time.DateTime)}
}
