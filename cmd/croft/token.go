package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/out"
	"croft/cloud/direct"
	"croft/internal/endpoint"
	"croft/internal/nearest"
	"croft/trust"
	"croft/trust/invitation"
	"croft/trust/pki"
)

// tokenCommand makes what other hosts join with.
func tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke tokens with which hosts join this cloud",
		Example: `  croft token create --note "rack 7"
  croft token list
  croft token revoke 5f0c1a2b`,
		Args: func(cmd *cobra.Command, args []string) error {
			return croft.Errorf(croft.Invalid, "usage: %s create, list or revoke", cmd.CommandPath())
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	args.AddCloudFlags(cmd.PersistentFlags())
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(out.Formats, cobra.ShellCompDirectiveNoFileComp)) // the flag is defined above
	cmd.AddCommand(tokenCreateCommand(), tokenListCommand(), tokenRevokeCommand())
	return cmd
}

// longestInvitation bounds how long a token counts: it is a secret on its way.
const longestInvitation = 7 * 24 * time.Hour

func tokenCreateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Print a token for croft up --join",
		Long: `create prints a token with which other machines become hosts of this cloud:

  croft up --join -          # and paste it; or --join @FILE

It counts for an hour (--for), any number of times, and has to be kept secret. It says
where hosts join (join.listen) and the SHA-256 of the authority of the certificate there, so that a new host speaks to no other; there the host proves that it
has the token, and gets its own certificates, which it renews by itself from then on.

Only new hosts join with it. One whose certificates ran out while it was away gets a
token of its own: --host NAME.

A cloud whose etcd is not croft's own, or has certificates of another authority, has no
server that signs. A token for it says where etcd is and whose certificate it
has. Where etcd asks clients for certificates or passwords, a host needs those in its
own settings (etcd.cert, etcd.key, etcd.user, etcd.password_file); so it does where
Placement is OpenStack's (placement.cloud).

etcd and Placement have to be reachable from there: the addresses are those that they
listen on, or what --etcd and --placement say.`,
		Args: args.Count(0, 0),
	}
	life := cmd.Flags().Duration("for", time.Hour, "how long the token counts, at most a week")
	note := cmd.Flags().String("note", "", "what it is for, in `words` that croft token list shows")
	host := cmd.Flags().String("host", "", "let this host, by `name` or UUID, join once more; without it only hosts that are new join")
	_ = cmd.RegisterFlagCompletionFunc("host", completeHosts) // the flag is defined above
	member := cmd.Flags().Bool("etcd-member", false, "where trust is strict: let hosts join with --etcd-member, and so reach etcd")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *life < time.Second || *life > longestInvitation {
			return croft.Errorf(croft.Invalid, "--for %s: use something between 1s and %s", *life, longestInvitation)
		}
		return with(cmd, func(ctx context.Context, c *client) error {
			ctx, cancel := context.WithTimeout(ctx, answerTimeout)
			defer cancel()
			token, err := c.invite(ctx, cmd, invited{*note, *host, *life, *member})
			if err != nil {
				return err
			}
			return printToken(cmd, c.settings.Output, token, *life)
		})
	}
	return cmd
}

// invited says what a token is for.
type invited struct {
	note string
	host string // its name or ID; empty: hosts that are new
	life time.Duration

	member bool // they may serve etcd also where hosts do not reach it
}

// invite makes a token.
func (c *client) invite(ctx context.Context, cmd *cobra.Command, i invited) (invitation.Token, error) {
	var none invitation.Token
	servers, err := c.store.JoinServers(ctx)
	if err != nil {
		return none, err
	}
	var grant invitation.Grant
	if i.member || !trust.AnyStrict(servers) {
		if grant, err = c.grant(ctx, cmd); err != nil {
			return none, err
		}
	}
	host, err := c.hostCalled(ctx, i.host)
	if err != nil {
		return none, err
	}
	token, err := c.leading(ctx, servers, grant.Endpoints, cmd.Flags().Changed("etcd"))
	if err != nil {
		return none, err
	}
	return token, c.store.PutInvitation(ctx, trust.Invitation{
		Name: token.Name(), Note: i.note, Host: host, Member: i.member, Sealed: token.Seal(grant), Verifier: token.Verifier(),
	}, i.life)
}

// grant is what a host gets that reaches etcd and Placement itself: where all are that
// serve them.
func (c *client) grant(ctx context.Context, cmd *cobra.Command) (g invitation.Grant, err error) {
	if g.Endpoints, err = c.etcdForOthers(ctx, cmd.Flags().Changed("etcd")); err != nil {
		return g, err
	}
	serving, err := c.store.Served(ctx)
	if err != nil {
		return g, err
	}
	if c.settings.Placement.Cloud == "" {
		g.Token = c.settings.Placement.Token
		one, err := c.placementForOthers(ctx, g.Endpoints[0], cmd.Flags().Changed("placement"))
		if err != nil {
			return g, err
		}
		all := strings.Split(one, ",")
		for _, m := range serving {
			all = addOutside(all, m.Placement)
		}
		g.Placement = strings.Join(all, ",")
	}
	for _, m := range serving {
		g.Endpoints = addOutside(g.Endpoints, m.Clients...)
	}
	return g, nil
}

// addOutside adds the URLs that are not there and that other machines reach.
func addOutside(all []string, more ...string) []string {
	for _, one := range more {
		if one != "" && !slices.Contains(all, one) && (!endpoint.AnyLoopback([]string{one}) || endpoint.AnyLoopback(all)) {
			all = append(all, one)
		}
	}
	return all
}

// leading makes a token that leads to the cloud's join servers, or to etcd where hosts
// may join at none. given: loopback addresses are meant.
func (c *client) leading(ctx context.Context, servers []trust.JoinServer, endpoints []string, given bool) (token invitation.Token, err error) {
	token.Partition = c.store.Partition()
	unreached := ""
	for _, server := range servers {
		if server.Trust == "" {
			continue
		}
		for _, address := range server.Addresses {
			if endpoint.IsLoopback(address) && !given {
				unreached = address
				continue
			}
			token.Servers = append(token.Servers, address)
		}
	}
	switch {
	case len(token.Servers) > 0:
		token.Pin, err = c.authorityPin(ctx)
		return invitation.New(token), err
	case unreached != "":
		return token, croft.Errorf(croft.Invalid, "hosts join at %s, where only this machine reaches it: set join.listen to an address of this machine, and start croft up again", unreached)
	}
	token.Endpoints = endpoints
	token.CA, err = c.settings.Etcd.Authority()
	return invitation.New(token), err
}

// authorityPin is what the certificates of the cloud's hosts are known by.
func (c *client) authorityPin(ctx context.Context) (string, error) {
	trusted, err := c.store.Authority(ctx)
	if err != nil {
		return "", err
	}
	return pki.FirstPin(trusted)
}

// hostCalled is the host of a name or an ID; none where that is empty. NotFound.
func (c *client) hostCalled(ctx context.Context, idOrName string) (croft.HostID, error) {
	if idOrName == "" {
		return "", nil
	}
	all, err := c.store.Hosts(ctx)
	if err != nil {
		return "", err
	}
	var names []string
	for _, h := range all {
		if string(h.ID) == idOrName || h.Name == idOrName {
			return h.ID, nil
		}
		names = append(names, h.Name)
	}
	return "", croft.Errorf(croft.NotFound, "there is no host %q%s", idOrName, nearest.Hint(idOrName, names))
}

// etcdForOthers are the addresses of etcd that another machine reaches: those that
// were given, or what the members give out.
func (c *client) etcdForOthers(ctx context.Context, given bool) ([]string, error) {
	if given || !endpoint.AnyLoopback(c.settings.Etcd.Endpoints) {
		return c.settings.Etcd.Endpoints, nil
	}
	advertised, err := c.store.Advertised(ctx)
	if err != nil {
		return nil, err
	}
	var reached []string
	for _, member := range advertised {
		if member = endpoint.Outward(member); !endpoint.AnyLoopback([]string{member}) {
			reached = append(reached, member)
		}
	}
	if len(reached) == 0 {
		return nil, croft.Errorf(croft.Invalid, "etcd listens where only this machine reaches it: set etcd.listen to an address of this machine, "+
			"and how it is protected, and start croft up again; or give --etcd")
	}
	return reached, nil
}

// placementForOthers is the address of Placement that another machine reaches.
func (c *client) placementForOthers(ctx context.Context, etcd string, given bool) (string, error) {
	member := cmp.Or(c.settings.Placement.Endpoint, direct.DefaultPlacement)
	if given || !endpoint.AnyLoopback(strings.Split(member, ",")) {
		return member, nil
	}
	here, err := url.Parse(member)
	if err != nil {
		return "", croft.Errorf(croft.Invalid, "placement.endpoint: %w", err)
	}
	beside, err := url.Parse(etcd)
	if err != nil {
		return "", croft.Errorf(croft.Invalid, "etcd.endpoints: %w", err)
	}
	here.Host = net.JoinHostPort(beside.Hostname(), here.Port())
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", here.Host)
	if err != nil {
		return "", croft.Errorf(croft.Invalid, "Placement listens where only this machine reaches it, and not at %s: set placement.listen to an address of this machine "+
			"and placement.token to a word of your own, and start croft up again; or give --placement", here.Host)
	}
	_ = conn.Close()
	return here.String(), nil
}

// printToken prints the token alone, and beside it what it is for.
func printToken(cmd *cobra.Command, format string, token invitation.Token, life time.Duration) error {
	if format == out.FormatJSON || format == out.FormatYAML {
		return out.PrintData(cmd.OutOrStdout(), format, struct {
			Token   string    `json:"token"`
			Name    string    `json:"name"`
			Expires time.Time `json:"expires"`
		}{token.String(), shortToken(token.Name()), time.Now().Add(life).UTC().Truncate(time.Second)})
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "whoever has this can join for %s; on the other machine: croft up --join - (and paste it)\n", life)
	_, err := fmt.Fprintln(cmd.OutOrStdout(), token)
	return err
}
