package ip

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/grid/ipam"
	"croft/grid/ipam/foreign"
	"croft/grid/ipam/setexpr"
	"croft/internal/command"
	"croft/internal/nearest"
	"croft/internal/out"
)

func tagCommand(o *options) *cobra.Command {
	var remove []string
	cmd := &cobra.Command{
		Use:   "tag ADDRESS|PREFIX [TAG|KEY=TEXT]...",
		Short: "Say something of an address or a prefix",
		Long: `tag changes net/meta/v4/10.0.0.0_8.yaml, or whatever the file of the address or prefix is
called. Tags are added to those of shorter prefixes; other facts go before theirs.
Addresses of which reserved: true is said in a file are given by no pool.`,
		Example: `  croft ip tag 10.0.0.0/8 office contact=ops
  croft ip tag 10.0.0.9 printer --remove contact`,
		Args: command.Count(1, -1),
		RunE: func(cmd *cobra.Command, given []string) error {
			p, err := prefixOf(given[0])
			if err != nil {
				return err
			}
			c := ipam.Change{Set: map[string]string{}}
			for _, word := range given[1:] {
				if key, text, is := strings.Cut(word, "="); is {
					c.Set[key] = text
				} else {
					c.AddTags = append(c.AddTags, word)
				}
			}
			if len(given) == 1 && len(remove) == 0 {
				return croft.Errorf(croft.Invalid, "usage: %s: give a tag, KEY=TEXT or --remove", cmd.UseLine())
			}
			return o.change(cmd, func(n *ipam.Net) error {
				for _, word := range remove {
					is, err := n.HasKey(p, word)
					if err != nil {
						return err
					}
					if is {
						c.Remove = append(c.Remove, word)
					} else {
						c.RemoveTags = append(c.RemoveTags, word)
					}
				}
				_, err := n.Describe(p, c)
				return err
			})
		},
	}
	cmd.Flags().StringArrayVar(&remove, "remove", nil, "remove a tag or a key (`name`; repeatable)")
	return cmd
}

func prefixOf(text string) (netip.Prefix, error) {
	if strings.Contains(text, "/") {
		return setexpr.ParsePrefix(text)
	}
	a, err := setexpr.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}

const maxImport = 256 << 20

func importCommand(o *options) *cobra.Command {
	var format, as string
	ways := []string{ipam.AsReserved, ipam.AsFacts, ipam.AsLeases}
	cmd := &cobra.Command{
		Use:   "import FILE|-",
		Short: "Read a list of addresses from another program",
		Long: `import reads addresses and prefixes with what is said of them into net/meta, all of the list
or nothing:
  csv      a table with a line of column names, one of which is address or prefix
           (NetBox, Kea, phpIPAM, spreadsheets); tags, owner, and all others become facts
  json     objects with address or prefix: NetBox's API, ip -j addr, Kea's lease4-get-all
  dnsmasq  dnsmasq.leases
  dhcpd    dhcpd.leases and dhcpd6.leases: leases that are bound

--as reserved (the default) keeps pools from giving the addresses; --as facts does not;
--as leases leases each to the owner that is named, or to its name; an address with neither is
reserved.`,
		Example: `  croft ip import netbox.csv
  ip -j addr | croft ip import -
  croft ip import /var/lib/misc/dnsmasq.leases --as leases`,
		Args: command.Count(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			if !slices.Contains(ways, as) {
				return croft.Errorf(croft.Invalid, "--as %s: give %s%s", as, strings.Join(ways, ", "),
					nearest.Hint(as, ways))
			}
			text, err := readAll(cmd, given[0])
			if err != nil {
				return err
			}
			if format == "" {
				if format, err = foreign.Guess(text); err != nil {
					return croft.Errorf(croft.Invalid, "%s: %w", given[0], err)
				}
			}
			records, err := foreign.Read(text, format)
			if err != nil {
				return croft.Errorf(croft.Invalid, "%s: %w", given[0], err)
			}
			var done ipam.Imported
			err = o.change(cmd, func(n *ipam.Net) error {
				if done, err = n.Import(records, as); err != nil {
					return croft.Errorf(croft.KindOf(err), "%s: %w", given[0], err)
				}
				return nil
			})
			if err != nil {
				return err
			}
			return o.print(cmd, done, func() error {
				fmt.Fprintf(cmd.ErrOrStderr(), "%d addresses and prefixes read, %d described, %d leased\n",
					done.Records,
					done.Changed, done.Leased)
				if len(done.Nameless) > 0 {
					fmt.Fprintf(cmd.ErrOrStderr(), "%d of them have neither an owner nor a name, so they are reserved "+
						"instead: %v\n", len(done.Nameless), done.Nameless[:min(len(done.Nameless), 8)])
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&format, "format", "", "csv, json, dnsmasq or dhcpd (`format`; default: what it looks like)")
	cmd.Flags().StringVar(&as, "as", ipam.AsReserved, "reserved, facts or leases (`way`)")
	command.CompleteFlag(cmd, "format", foreign.Formats)
	command.CompleteFlag(cmd, "as", ways)
	cmd.Flags().StringVarP(&o.output, "output", "o", out.FormatText, "print text, json or yaml (`form`)")
	return cmd
}

func readAll(cmd *cobra.Command, name string) ([]byte, error) {
	from := cmd.InOrStdin()
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, croft.Errorf(croft.NotFound, "import: %w", err)
		}
		defer f.Close()
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, maxImport+1))
	if err == nil && len(text) > maxImport {
		err = croft.Errorf(croft.Invalid, "more than %d bytes", maxImport)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return text, nil
}
