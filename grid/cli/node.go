package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/grid/edit"
	"croft/grid/ssh"
	"croft/grid/state"
	"croft/grid/unit"
	"croft/internal/command"
	"croft/internal/durable"
	"croft/internal/out"
)

func nodeCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Add nodes, list them, and set their states",
		Long: `A node is a file below nodes/; the directories above it are its rack, its site and so on.
Its state says what place does with it:
  up           it gets slots
  out          it is lost: its slots go elsewhere
  drain        it is to be emptied: its slots go elsewhere, and are stopped there when they run elsewhere
  maintenance  it keeps its slots, gets no others, and is left alone
These commands change files alone; grid place and grid apply do the rest.`,
		Args: command.OnlySubcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(nodeAddCommand(o), nodeListCommand(o), renumberCommand(o),
		stateCommand(o, state.Up, "Let nodes get slots again"),
		stateCommand(o, state.Out, "Say that nodes are lost"),
		stateCommand(o, state.Drain, "Say that nodes are to be emptied"),
		stateCommand(o, state.Maintenance, "Say that nodes are to be left alone"), goneCommand(o))
	return cmd
}

func goneCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "gone NODE...",
		Short: "Say that nothing runs any more on nodes whose files were removed",
		Long: `Where the file of a node is removed or renamed, its units may still run. grid place keeps such
nodes in roster.yaml, and grid apply ends what runs there; an exclusive job starts nowhere else
before that. gone takes nodes out of roster.yaml, once they are empty or off for certain.`,
		Example: `  croft grid node gone web1`,
		Args:    command.Count(1, -1),
		RunE: func(cmd *cobra.Command, given []string) error {
			return o.change(cmd, func(s *state.State) error {
				for _, name := range given {
					if s.Node(name) != nil {
						return croft.Errorf(croft.Conflict, "%s has a file: remove it first, or set its state with croft grid "+
							"node out %s", name, name)
					}
					if !slices.ContainsFunc(s.Roster, func(n unit.Node) bool { return n.Name == name }) {
						return croft.Errorf(croft.NotFound, "%s has no node %s", state.RosterFile, name)
					}
				}
				file := filepath.Join(o.dir, state.RosterFile)
				if err := durable.Write(file, []byte(s.WithoutLeft(given)), 0o644); err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), state.RosterFile)
				return nil
			})
		},
	}
}

func nodeAddCommand(o *options) *cobra.Command {
	var n edit.Node
	cmd := &cobra.Command{
		Use:   "add PATH",
		Short: "Add a node",
		Long: `add writes the file of a node, such as nodes/syd/r1/web1.yaml for the path syd/r1/web1, with
an id that nothing else has had, and prints the files that it wrote. Without --address the
node's name is its address, which may be a Host of the ssh configuration. Where the address is
a name that leads to an IP address now, the file says that as ip, which ${ip} stands for.`,
		Example: `  croft grid node add here --local
  croft grid node add syd/r1/web1 --address web1.example.org:2222 --user ops --fact ssd --capacity cpu=8`,
		Args: command.Count(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			if n.Path = given[0]; cmd.Flags().Changed("weight") && !(n.Weight > 0 && n.Weight <= 10_000) {
				return croft.Errorf(croft.Invalid, "--weight %v: give more than 0, and at most 10000", n.Weight)
			}
			if n.Local && n.Address != "" {
				return croft.Errorf(croft.Invalid, "--local is this machine, which needs no --address")
			}
			return o.change(cmd, func(s *state.State) error {
				var known bool
				n.IP, known = addressOf(cmd.Context(), s, n)
				written, err := edit.Add(s, n, func() error {
					if _, err := o.load(cmd); err != nil {
						return fmt.Errorf("add the node %s: %w", n.Path, err)
					}
					return nil
				})
				if err != nil {
					return err
				}
				for _, file := range written {
					fmt.Fprintln(cmd.OutOrStdout(), file)
				}
				if !known {
					say(cmd, "croft: warning: the address of %s leads to no IP address now, so ${ip} is that name there: give "+
						"another --address, or write ip into its file", path.Base(n.Path))
				}
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&n.Address, "address", "", "`host` or host:port, or a Host of the ssh configuration")
	f.StringVar(&n.User, "user", "", "who logs in there (`name`)")
	f.StringVar(&n.HostKey, "host-key", "", "the `fingerprint` of its ssh host key, SHA256:...")
	f.BoolVar(&n.Local, "local", false, "it is this machine: commands run without ssh")
	f.Float64Var(&n.Weight, "weight", 0, "its share of slots, beside others of weight 1 (`number`)")
	f.StringArrayVar(&n.Facts, "fact", nil, "a `fact` that jobs may require or avoid, also NAME=VALUE (repeatable)")
	f.StringArrayVar(&n.Capacity, "capacity", nil, "what its slots may use (`key=amount`; repeatable)")
	return cmd
}

// lookupTime limits how long node add waits to look up the address of a name.
const lookupTime = 3 * time.Second

// addressOf returns the IP address for the name of a new node, after applying the ssh configuration; empty: the node
// needs none because it is local or its address is one already, or no address is known.
func addressOf(ctx context.Context, s *state.State, n edit.Node) (ip string, known bool) {
	if n.Local {
		return "", true
	}
	given := cmp.Or(n.Address, path.Base(n.Path))
	dialer := ssh.New(dialing(s, ""))
	defer dialer.Close()
	host, _, err := dialer.Reach(ctx, unit.Node{Address: given})
	if err != nil {
		return "", false
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if strings.Contains(given, host) {
			return "", true
		}
		return a.Unmap().String(), true
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return "", false
	}
	slices.SortFunc(all, func(a, b netip.Addr) int { // IPv4 first, and always the same one of several
		return cmp.Or(cmp.Compare(a.Unmap().BitLen(), b.Unmap().BitLen()), a.Compare(b))
	})
	return all[0].Unmap().String(), true
}

// stateCommand returns a command that sets the state of nodes.
func stateCommand(o *options, to, short string) *cobra.Command {
	var comment string
	cmd := &cobra.Command{
		Use:   to + " NODE...",
		Short: short,
		Args:  command.Count(1, -1),
		RunE: func(cmd *cobra.Command, given []string) error {
			return o.change(cmd, func(s *state.State) error {
				var nodes []*state.Node
				var errs []error
				for _, name := range given {
					n, err := findNode(s, name)
					nodes, errs = append(nodes, n), append(errs, err)
				}
				if err := errors.Join(errs...); err != nil {
					return err
				}
				for _, n := range nodes {
					if n.State == to {
						say(cmd, "%s is %s already", n.Name, to)
						continue
					}
					if err := edit.SetState(s, n, to, comment); err != nil {
						return err
					}
					fmt.Fprintln(cmd.OutOrStdout(), n.Path)
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&comment, "comment", "", "a `text` to put beside the state, such as the reason")
	return cmd
}

func renumberCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "renumber",
		Short: "Give ids to what has none, or one that is given twice",
		Long: `renumber mends ids after a merge of two branches that both added nodes: of those with the
same id, the first by path keeps it. What gets another id may move when it is next placed
afresh; slots that there are stay.`,
		Args: command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.locked(func() error {
				s, _, err := state.LoadForIDs(cmd.Context(), o.dir)
				if err != nil {
					return err
				}
				changed, err := edit.Renumber(s)
				for _, one := range changed {
					fmt.Fprintln(cmd.OutOrStdout(), one)
				}
				return err
			})
		},
	}
}

// nodeRow is a node as data.
type nodeRow struct {
	Name     string            `json:"name"`
	ID       int               `json:"id"`
	Path     string            `json:"path"`
	State    string            `json:"state"`
	Weight   float64           `json:"weight"`
	Local    bool              `json:"local,omitempty"`
	Address  string            `json:"address,omitempty"`
	Facts    map[string]string `json:"facts,omitempty"`
	Slots    int               `json:"slots"`
	Used     map[string]string `json:"used,omitempty"`
	Capacity map[string]string `json:"capacity,omitempty"`
}

func nodeListCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the nodes, with what their slots use",
		Args:  command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := o.data()
			if err != nil {
				return err
			}
			s, err := o.load(cmd)
			if err != nil {
				return err
			}
			rows := nodeRows(s)
			if data {
				return out.PrintData(cmd.OutOrStdout(), o.output, rows)
			}
			t := &out.Table{Color: out.IsColored(cmd.OutOrStdout())}
			t.Head("ID", "NAME", "STATE", "WEIGHT", "SLOTS", "USED", "ADDRESS", "IN")
			for _, r := range rows {
				var used []string
				for _, key := range slices.Sorted(maps.Keys(r.Capacity)) {
					used = append(used, fmt.Sprintf("%s %s/%s", key, r.Used[key], r.Capacity[key]))
				}
				address := r.Address
				if r.Local {
					address = "(here)"
				}
				t.Texts(strconv.Itoa(r.ID), r.Name, r.State, strconv.FormatFloat(r.Weight, 'f', -1, 64),
					strconv.Itoa(r.Slots), out.OrDash(strings.Join(used, ", ")), address,
					strings.TrimSuffix(r.Path, "/"+r.Name+".yaml"))
			}
			return t.Print(cmd.OutOrStdout())
		},
	}
	o.formats(cmd)
	return cmd
}

func nodeRows(s *state.State) []nodeRow {
	slots := map[*state.Node]int{}
	used := map[*state.Node]state.Amounts{}
	for _, j := range s.Jobs {
		for _, slot := range j.Slots {
			if slot.Node == nil {
				continue
			}
			slots[slot.Node]++
			if used[slot.Node] == nil {
				used[slot.Node] = state.Amounts{}
			}
			for key, n := range j.Uses {
				used[slot.Node][key] += n
			}
		}
	}
	rows := []nodeRow{}
	for _, n := range s.Leaves {
		r := nodeRow{Name: n.Name, ID: n.ID, Path: n.Path, State: n.State, Weight: float64(n.Weight) / (1 << 16),
			Local: n.Local, Address: n.Address, Facts: n.Facts, Slots: slots[n], Used: map[string]string{},
			Capacity: map[string]string{}}
		for key, amount := range n.Capacity {
			r.Capacity[key], r.Used[key] = state.FormatAmount(amount), state.FormatAmount(used[n][key])
		}
		rows = append(rows, r)
	}
	return rows
}
