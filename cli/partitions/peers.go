package partitions

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/control/api"
	"croft/control/federation"
	"croft/control/federation/assertion"
	"croft/internal/command"
	"croft/internal/out"
	"croft/internal/wording"
	"croft/node"
	"croft/tenant/access"
)

func cardCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "card",
		Short: "Print this cloud's card, which another cloud needs to exchange requests with it",
		Long: `card prints a card of this cloud: its UUID, where its API is, the public keys with which
its servers sign, and the authority of its certificate. There is no secret in it. The
operators of the other cloud add it with croft partition peer add --card, and compare
the fingerprint that both commands print on stderr. Each server of the API has its own
key. Give peers a new card after you add a server, and after croft partition key rotate.`,
		Example: `  croft partition card --name east --endpoint https://east.example:8781 > east.card`,
	}
	name := cmd.Flags().String("name", "", "`alias` that others use unless they choose another")
	at := cmd.Flags().String("endpoint", "", "`URL` where others reach the API (default: where a server of it listens)")
	cmd.RunE = verb.Run(func(ctx context.Context, c *args.Client) error {
		card, err := c.GetCard(ctx, api.CardRequest{Name: *name, Endpoint: *at})
		if err != nil {
			return err
		}
		c.Say("the card of %s at %s; fingerprint %s", card.Partition, card.Endpoint,
			card.Fingerprint())
		return out.PrintData(c.Cmd.OutOrStdout(), out.FormatJSON, card)
	})
	return cmd
}

func peerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "peer",
		Short: "Exchange requests with other clouds",
		Long: `peer manages the clouds with which this one exchanges requests. Users here send a
request to a peer with --partition ALIAS (CROFT_PARTITION): their cloud forwards it and
vouches for them. Users of a peer have rights here once operators have mapped their
project to one here: croft project member add.`,
		Example: `  croft partition peer add --card east.card --alias east --roles reader,member
  croft partition peer list
  croft partition peer remove east`,
	}
	cmd.AddCommand(peerAddCommand(), peers.List("List the peers"), peerShowCommand(), peerRemoveCommand())
	return cmd
}

func peerAddCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add --card FILE",
		Short: "Add another cloud as a peer by its card, or replace its card",
		Long: `add reads a card (- is stdin). A card of a known peer with other keys, another endpoint
or other authorities is refused, because its author could act for the users of that
peer; --replace accepts it, and keys that are not in it are no longer valid. The roles
are the most that users may have through the peer, in both directions.`,
	}
	file := cmd.Flags().String("card", "", "`file` with the card of the other cloud")
	alias := cmd.Flags().String("alias", "", "`name` of the peer here (default: what the card proposes)")
	roles := cmd.Flags().StringSlice("roles", nil, "`roles` that users may have: reader, member, project-admin")
	command.CompleteFlag(cmd, "roles", access.Words(federation.PeerRoles))
	replace := cmd.Flags().Bool("replace", false, "accept a card that differs from the stored one of the peer")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		card, err := readCard(cmd, *file)
		if err != nil {
			return err
		}
		wanted := federation.NewPeer{Card: card, Alias: *alias, Replace: *replace}
		for _, r := range *roles {
			wanted.Roles = append(wanted.Roles, access.Role(r))
		}
		return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
			p, err := c.AddPeer(ctx, wanted)
			if err != nil {
				return err
			}
			return c.Report(p, "%s (%s) at %s is a peer; the fingerprint of its card is %s", p.Alias,
				p.ID,
				p.Peer.Endpoint, card.Fingerprint())
		})
	}
	return cmd
}

// readCard reads a card from a file, or from stdin.
func readCard(cmd *cobra.Command, file string) (federation.Card, error) {
	if file == "" {
		return federation.Card{}, croft.Errorf(croft.Invalid, "name the file with the card: --card FILE; the operators of "+
			"the other cloud print it with `croft partition card`")
	}
	text, err := args.ReadFile(cmd.InOrStdin(), "the card", file, 1<<20)
	if err != nil {
		return federation.Card{}, err
	}
	card, err := federation.ParseCard(text)
	if err != nil {
		return card, fmt.Errorf("read %s: %w", file, err)
	}
	return card, nil
}

// peers are the partitions with which this cloud exchanges requests.
var peers = verb.Noun[federation.Partition]{
	Name: "peer",
	Use:  "PEER",
	All: func(ctx context.Context, c *args.Client) ([]federation.Partition, error) {
		all, err := partitions.All(ctx, c)
		return slices.DeleteFunc(all, func(p federation.Partition) bool { return p.Peer == nil }), err
	},
	Find: func(ctx context.Context, c *args.Client, idOrAlias string) (federation.Partition, error) {
		p, err := partitions.Find(ctx, c, idOrAlias)
		if err == nil && p.Peer == nil {
			err = croft.Errorf(croft.NotFound, "%s is not a peer; `croft partition peer list` shows all", p.Alias)
		}
		return p, err
	},
	Head: []string{"ALIAS", "ID", "ENDPOINT", "ROLES", "KEYS", "ADDED"},
	Row: func(p federation.Partition) []out.Cell {
		return verb.Texts(p.Alias, string(p.ID), p.Peer.Endpoint, rolesOf(p.Peer), fmt.Sprint(len(p.Peer.Keys)),
			p.Peer.Added.Format(time.DateTime))
	},
	Rows: func(t *out.Table, p federation.Partition) {
		t.Texts("partition", string(p.ID))
		t.Texts("alias", p.Alias)
		peerRows(t, p.Peer)
	},
}

func rolesOf(p *federation.Peer) string { return strings.Join(access.Words(p.Roles), ",") }

func peerShowCommand() *cobra.Command {
	cmd := peers.Show("Show a peer: its address, its keys, and the roles of its users")
	cmd.ValidArgsFunction = complete
	return cmd
}

// peerRows adds the data about a peer to a table.
func peerRows(t *out.Table, p *federation.Peer) {
	t.Texts("endpoint", p.Endpoint)
	t.Texts("roles", rolesOf(p))
	t.Texts("authority", map[bool]string{true: "those of the system", false: "its own"}[p.CA == ""])
	for _, k := range p.Keys {
		t.Texts("key", k.ID())
	}
}

func peerRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove PEER",
		Short: "End the exchange of requests with a peer, at once",
		Long: `remove ends the exchange of requests with a peer, including requests in progress, and
the memberships of its projects. Instances stay with the projects here, and what was
imported stays too (croft partition remove removes that).`,
		ValidArgsFunction: complete,
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			p, err := c.RemovePeer(ctx, api.PartitionNamed{ID: c.Args[0]})
			if err == nil {
				c.Say("%s (%s) is no longer a peer", p.Alias, p.ID)
			}
			return err
		}),
	}
}

func keyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Manage the keys with which this cloud signs requests to peers",
		Long: `key manages the keys with which servers of the API sign the requests that they forward.
Each server makes one, in state_dir/peers of its machine, which only root can read; the
public keys are in this cloud's card. To change one:

  croft partition key rotate            on that machine: a new key, which signs from tomorrow
  croft partition card > east.card      for each peer, who adds it today
  croft partition key remove ID         later: the former key leaves the cards`,
	}
	cmd.AddCommand(signers.List("List the keys that are in the cards of this cloud"), keyRotateCommand(),
		keyRemoveCommand())
	return cmd
}

// signers are the keys with which the servers of this cloud sign.
var signers = verb.Noun[federation.Signer]{
	Name: "key",
	All: func(ctx context.Context, c *args.Client) ([]federation.Signer, error) {
		list, err := c.ListSigners(ctx)
		return list.Signers, err
	},
	Head: []string{"ID", "HOST", "ENDPOINT", "SINCE", "SIGNS"},
	Row: func(s federation.Signer) []out.Cell {
		signs := "now"
		if s.Use.After(time.Now()) {
			signs = "from " + s.Use.Local().Format(time.DateTime)
		}
		return verb.Texts(s.Key.ID(), s.Host, s.Endpoint, s.Since.Local().Format(time.DateTime), signs)
	},
}

// longestDelay limits how long a new key waits before it is used.
const longestDelay = 366 * 24 * time.Hour

func keyRotateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Make a new key for this machine's server of the API, used after a delay",
		Long: `rotate makes a key in the state directory of this machine, where the server of the API
finds it within seconds and adds it to this cloud's card. Peers refuse signatures of
keys that they do not have, so the server signs with it only after a delay
(--use-after).`,
	}
	args.AddHostFlags(cmd, args.StateDirFlag, args.LogLevelFlag)
	after := command.Duration(cmd.Flags(), "use-after", 24*time.Hour,
		"`duration` until it signs: give peers a new card before")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *after < 0 || *after > longestDelay {
			return croft.Errorf(croft.Invalid, "--use-after %s: use something between 0s and %s",
				wording.Duration(*after), wording.Duration(longestDelay))
		}
		s, _, err := args.LoadHostSettings(cmd, args.StateDirFlag, args.LogLevelFlag)
		if err != nil {
			return err
		}
		keys := &assertion.Keys{Dir: node.PeerKeys(s.StateDir)}
		if _, err := os.Stat(keys.Dir); err != nil {
			return croft.Errorf(croft.NotFound, "%s has no keys for peers: they are on machines that serve the API",
				s.StateDir)
		}
		made, err := keys.Make(time.Now().Add(*after))
		if err == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "key %s signs from %s on: give each peer a new card before\n",
				made.Public.ID(),
				made.Use.Local().Format(time.DateTime))
		}
		return err
	}
	return cmd
}

func keyRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "remove ID",
		Aliases: []string{"retire"},
		Short:   "Take a key out of the cards of this cloud",
		Long: `remove takes a key out of the cards that this cloud prints from now on. A peer accepts
the key until it has a newer card.`,
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			err := c.RetireSigner(ctx, api.SignerNamed{ID: c.Args[0]})
			if err == nil {
				c.Say("key %s is in no card from now on: give each peer a new one",
					c.Args[0])
			}
			return err
		}),
	}
}
