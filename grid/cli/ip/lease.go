package ip

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/grid/ipam"
	"croft/grid/ipam/setexpr"
	"croft/internal/command"
	"croft/internal/wording"
)

func addCommand(o *options) *cobra.Command {
	p := &ipam.Pool{}
	var gateway string
	cmd := &cobra.Command{
		Use:   "add POOL PREFIX",
		Short: "Make a pool of addresses",
		Long: `add writes net/pools/POOL.yaml. The network and broadcast addresses of IPv4, the
gateway, and what is excluded are never given. A pool may be within another one, which
then gives none of its addresses.`,
		Example: `  croft ip add web 10.0.0.0/24 --gateway 10.0.0.1 --exclude 10.0.0.2-10.0.0.9 --tag web
  croft ip add db 10.0.0.128/26 --within web --strategy hash`,
		Args: command.Count(2, 2),
		RunE: func(cmd *cobra.Command, given []string) (err error) {
			p.Name = given[0]
			if p.Prefix, err = setexpr.ParsePrefix(given[1]); err != nil {
				return err
			}
			if gateway != "" {
				if p.Gateway, err = setexpr.ParseAddr(gateway); err != nil {
					return err
				}
			}
			if p.Strategy != ipam.First && p.Strategy != ipam.Hash {
				return croft.Errorf(croft.Invalid, "--strategy %s: give %s or %s", p.Strategy, ipam.First, ipam.Hash)
			}
			if p.Hold < 0 {
				return croft.Errorf(croft.Invalid, "--hold %s: give a duration, or 0", wording.Duration(p.Hold))
			}
			for _, tag := range p.Tags {
				if err := ipam.CheckName(tag); err != nil {
					return croft.Errorf(croft.Invalid, "--tag: %w", err)
				}
			}
			return o.change(cmd, func(n *ipam.Net) error { return n.Put(p) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&gateway, "gateway", "", "the `address` of the gateway, which is never given")
	f.StringArrayVar(&p.Exclude, "exclude", nil,
		"an address, range or prefix that is never given (`addresses`; repeatable)")
	f.StringArrayVar(&p.Tags, "tag", nil, "a `tag` of all its addresses (repeatable)")
	f.StringVar(&p.Strategy, "strategy", ipam.First, "give the first free address, or one by the hash of its owner")
	command.DurationVar(f, &p.Hold, "hold", ipam.DefaultHold,
		"how long a freed address is held for its former owner (`duration`)")
	f.StringVar(&p.Within, "within", "", "the `pool` that this one is a part of")
	return cmd
}

// given is the answer of get.
type given struct {
	Address string     `json:"address"`
	Bits    int        `json:"bits"` // length of the pool's prefix
	Gateway string     `json:"gateway,omitempty"`
	Pool    string     `json:"pool"`
	Owner   ipam.Owner `json:"owner"`
}

func answer(n *ipam.Net, pool string, l ipam.Lease) (given, error) {
	p, err := n.Pool(pool)
	if err != nil {
		return given{}, err
	}
	g := given{Address: l.Addr.String(), Bits: p.Prefix.Bits(), Pool: pool, Owner: l.Owner}
	if p.Gateway.IsValid() {
		g.Gateway = p.Gateway.String()
	}
	return g, nil
}

func getCommand(o *options) *cobra.Command {
	var at string
	cmd := &cobra.Command{
		Use:   "get POOL OWNER",
		Short: "Give an owner an address, the same one each time",
		Long: `get prints the address that the owner has in the pool; an owner without one gets one.
An owner is JOB/SLOT, such as shop/front@7/0; without a number at the end it is slot 0.
An address that the owner freed a short time ago is given again.`,
		Example: `  croft ip get web shop/front/0
  croft ip get web printer --at 10.0.0.9`,
		Args: command.Count(2, 2),
		RunE: func(cmd *cobra.Command, words []string) error {
			owner, err := ipam.ParseOwner(words[1])
			if err != nil {
				return err
			}
			var wanted netip.Addr
			if at != "" {
				if wanted, err = setexpr.ParseAddr(at); err != nil {
					return err
				}
			}
			var g given
			err = o.change(cmd, func(n *ipam.Net) error {
				l, err := n.Get(words[0], owner, wanted)
				if err == nil {
					g, err = answer(n, words[0], l)
				}
				return err
			})
			if err != nil {
				return err
			}
			return o.print(cmd, g, func() error {
				fmt.Fprintln(cmd.OutOrStdout(), g.Address)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "this `address` and no other")
	o.formats(cmd)
	return cmd
}

func freeCommand(o *options) *cobra.Command {
	var pool string
	var now bool
	cmd := &cobra.Command{
		Use:   "free ADDRESS|OWNER...",
		Short: "Give addresses back",
		Long: `free ends the leases of addresses, or of owners: all of theirs, or those in one pool.
An address is held for its former owner as long as its pool says (24h by default): a
file says so in place of the lease. With --now others may have it at once.`,
		Args: command.Count(1, -1),
		RunE: func(cmd *cobra.Command, words []string) error {
			var freed []ipam.Lease
			err := o.change(cmd, func(n *ipam.Net) error {
				for _, word := range words {
					some, err := free(n, word, pool, !now)
					if err != nil {
						return err
					}
					freed = append(freed, some...)
				}
				return nil
			})
			if err != nil {
				return err
			}
			for _, l := range freed {
				fmt.Fprintln(cmd.OutOrStdout(), l.Addr)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&pool, "pool", "", "free the owner's addresses in this `pool` alone")
	cmd.Flags().BoolVar(&now, "now", false, "hold the addresses for nobody")
	return cmd
}

// free frees the addresses that a word means. NotFound: there is nothing to free.
func free(n *ipam.Net, word, pool string, hold bool) ([]ipam.Lease, error) {
	if pool != "" {
		if _, err := n.Pool(pool); err != nil {
			return nil, err
		}
	}
	inPool := func(l ipam.Lease) bool {
		p := n.PoolOf(l.Addr)
		return pool == "" || p != nil && p.Name == pool
	}
	var chosen func(l ipam.Lease) bool
	if a, err := setexpr.ParseAddr(word); err == nil {
		chosen = func(l ipam.Lease) bool { return l.Addr == a && inPool(l) }
	} else {
		owner, err := ipam.ParseOwner(word)
		if err != nil {
			return nil, err
		}
		chosen = func(l ipam.Lease) bool { return l.Owner == owner && inPool(l) }
	}
	held := false
	for _, l := range n.Leases {
		held = held || chosen(l) && l.Holds(time.Now())
	}
	if !held {
		return nil, croft.Errorf(croft.NotFound, "free %s: nothing is leased there", word)
	}
	return n.Free(chosen, hold), nil
}
