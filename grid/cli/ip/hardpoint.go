package ip

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/spf13/cobra"

	"croft"
	"croft/grid/ipam"
	"croft/grid/ipam/setexpr"
	"croft/internal/command"
	"croft/internal/out"
)

// request is the input of a verb of the hard point.
type request struct {
	Pool    string `json:"pool"`    // get; free, list: only in this pool
	Job     string `json:"job"`     // get; free, list: only of this job
	Slot    *int   `json:"slot"`    // get: 0 if absent; free, list: all if absent
	Address string `json:"address"` // show, get, free: this address
}

// failure is the answer of a verb that failed.
type failure struct {
	Error string `json:"error"`
	Kind  string `json:"kind"` // invalid, not found, conflict, no capacity, unavailable; failed otherwise
}

const maxRequest = 1 << 20

func hardpointCommand(o *options) *cobra.Command {
	verbs := map[string]func(o *options, cmd *cobra.Command, r request) (any, error){
		"get": (*options).hardGet, "free": (*options).hardFree, "show": (*options).hardShow,
		"list": (*options).hardList,
	}
	cmd := &cobra.Command{
		Use:   "hardpoint get|free|show|list",
		Short: "Answer a program: JSON on standard input and output",
		Long: `hardpoint is the hard point ip of croft grid: one verb, with a request in JSON on standard
input and the answer on standard output. A script with the same verbs may stand in its
place.

  get   {"pool":"web","job":"shop/front","slot":0}
        {"address":"10.0.0.2","bits":24,"gateway":"10.0.0.1","pool":"web","owner":{...}}
  free  {"job":"shop/front","slot":0} or {"address":"10.0.0.2"}
        {"freed":["10.0.0.2"]}
  show  {"address":"10.0.0.2"}
        what croft ip show -o json prints
  list  {"pool":"web"} or {"job":"shop/front"} or {}
        {"leases":[{"address":"10.0.0.2","pool":"web","owner":{...}}]}

What cannot be done is {"error":"...","kind":"no capacity"}, and exit code 1.`,
		Args:      command.Count(1, 1),
		ValidArgs: []string{"get", "free", "show", "list"},
		RunE: func(cmd *cobra.Command, given []string) error {
			verb := verbs[given[0]]
			if verb == nil {
				return croft.Errorf(croft.Invalid, "the hard point has no verb %q, only get, free, show and list",
					given[0])
			}
			r, err := readRequest(cmd.InOrStdin())
			var result any
			if err == nil {
				result, err = verb(o, cmd, r)
			}
			if err != nil {
				kind := string(croft.KindOf(err))
				if kind == "" {
					kind = "failed"
				}
				return errors.Join(err, out.PrintData(cmd.OutOrStdout(), out.FormatJSON, failure{err.Error(), kind}))
			}
			return out.PrintData(cmd.OutOrStdout(), out.FormatJSON, result)
		},
	}
	return cmd
}

func readRequest(from io.Reader) (request, error) {
	var r request
	text, err := io.ReadAll(io.LimitReader(from, maxRequest+1))
	if err != nil {
		return r, fmt.Errorf("read the request: %w", err)
	}
	if len(text) > maxRequest {
		return r, croft.Errorf(croft.Invalid, "the request has more than %d bytes", maxRequest)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, croft.Errorf(croft.Invalid, "the request on standard input: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return r, croft.Errorf(croft.Invalid, "the request on standard input is more than one object")
	}
	return r, nil
}

func (r request) addr() (netip.Addr, error) {
	if r.Address == "" {
		return netip.Addr{}, nil
	}
	return setexpr.ParseAddr(r.Address)
}

// owned reports whether the request includes a lease.
func (r request) owned(n *ipam.Net, l ipam.Lease) bool {
	p := n.PoolOf(l.Addr)
	return (r.Job == "" || l.Owner.Job == r.Job) && (r.Slot == nil || l.Owner.Slot == *r.Slot) &&
		(r.Pool == "" || p != nil && p.Name == r.Pool)
}

func (o *options) hardGet(cmd *cobra.Command, r request) (any, error) {
	if r.Pool == "" || r.Job == "" {
		return nil, croft.Errorf(croft.Invalid, "get: the request names a pool and a job")
	}
	at, err := r.addr()
	if err != nil {
		return nil, err
	}
	owner := ipam.Owner{Job: r.Job}
	if r.Slot != nil {
		owner.Slot = *r.Slot
	}
	var g given
	err = o.change(cmd, func(n *ipam.Net) error {
		l, err := n.Get(r.Pool, owner, at)
		if err == nil {
			g, err = answer(n, r.Pool, l)
		}
		return err
	})
	return g, err
}

func (o *options) hardFree(cmd *cobra.Command, r request) (any, error) {
	at, err := r.addr()
	if err != nil {
		return nil, err
	}
	if r.Job == "" && !at.IsValid() {
		return nil, croft.Errorf(croft.Invalid, "free: the request names a job or an address")
	}
	freed := []string{}
	err = o.change(cmd, func(n *ipam.Net) error {
		for _, l := range n.Free(func(l ipam.Lease) bool {
			return r.owned(n, l) && (!at.IsValid() || l.Addr == at)
		}, true) {
			freed = append(freed, l.Addr.String())
		}
		return nil
	})
	return map[string][]string{"freed": freed}, err
}

func (o *options) hardShow(cmd *cobra.Command, r request) (any, error) {
	at, err := r.addr()
	if err != nil {
		return nil, err
	}
	if !at.IsValid() {
		return nil, croft.Errorf(croft.Invalid, "show: the request names an address")
	}
	var about *ipam.About
	err = o.read(cmd, func(n *ipam.Net) error {
		about, err = n.About(at)
		return err
	})
	return about, err
}

// leased is a lease in the answer of list.
type leased struct {
	Address string     `json:"address"`
	Pool    string     `json:"pool,omitempty"`
	Owner   ipam.Owner `json:"owner"`
}

func (o *options) hardList(cmd *cobra.Command, r request) (any, error) {
	all := []leased{}
	err := o.read(cmd, func(n *ipam.Net) error {
		for _, l := range n.Sorted() {
			if l.Freed() || !r.owned(n, l) {
				continue
			}
			one := leased{Address: l.Addr.String(), Owner: l.Owner}
			if p := n.PoolOf(l.Addr); p != nil {
				one.Pool = p.Name
			}
			all = append(all, one)
		}
		return nil
	})
	return map[string][]leased{"leases": all}, err
}
