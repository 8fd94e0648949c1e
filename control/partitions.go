package control

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/control/federation"
	"croft/tenant/access"
)

var partitionOperations = noun{Tag: "partitions",
	Description: "Clouds: this one, called `home`, others of which an export was imported, which is shown for " +
		"reading alone, and peers, to which requests are forwarded. For operators.",
	Operations: []Operation{
		list(Operation{ID: "listPartitions", At: "GET /v1/partitions", May: access.Operates,
			Summary: "List the partitions that are known here"},
			func(ctx context.Context, c *call, _ nothing) (list api.PartitionList, err error) {
				list.Partitions, err = c.Cloud.Federation.List(ctx)
				return list, err
			}),
		do(Operation{ID: "getPartition", At: "GET /v1/partitions/{id}", May: access.Operates,
			Summary: "Get a partition"},
			func(ctx context.Context, c *call, in api.PartitionNamed) (federation.Partition, error) {
				return c.Cloud.Federation.Find(ctx, in.ID)
			}),
		do(Operation{ID: "removePartition", At: "DELETE /v1/partitions/{id}", May: access.Operates,
			Summary:     "Remove everything that was imported of a partition",
			Description: "A partition that is a peer stays one: removePeer ends that."},
			func(ctx context.Context, c *call, in api.PartitionNamed) (federation.Partition, error) {
				return c.Cloud.Federation.Remove(ctx, in.ID)
			}),
		do(Operation{ID: "listRows", At: "GET /v1/partitions/{id}/rows", May: access.Operates,
			Summary: "List everything of a kind that was imported of a partition"},
			func(ctx context.Context, c *call, in api.RowsOfKind) (api.RowList, error) {
				list := api.RowList{Rows: []json.RawMessage{}}
				err := c.Cloud.Federation.Rows(ctx, in.ID, in.Kind, func(row json.RawMessage) error {
					list.Rows = append(list.Rows, row)
					return nil
				})
				return list, err
			}),
		do(Operation{ID: "getCard", At: "GET /v1/card", May: access.Operates,
			Summary: "Get the card of this cloud",
			Description: "It is for the operators of another cloud, which then takes this one for a peer. There " +
				"is no secret in it."},
			func(ctx context.Context, c *call, in api.CardRequest) (federation.Card, error) {
				return c.Cloud.Federation.Card(ctx, in.Name, in.Endpoint)
			}),
		do(Operation{ID: "addPeer", At: "POST /v1/peers", May: access.Operates,
			Summary: "Make another cloud a peer, by its card",
			Description: "Requests that name it in the header X-Croft-Partition are forwarded to it, and its " +
				"users count here in the projects that are mapped. Of a peer, endpoint, keys and authorities are " +
				"taken from the card.",
			Conflict: api.NameTaken},
			func(ctx context.Context, c *call, in federation.NewPeer) (federation.Partition, error) {
				c.action.about("", actions.Object{Kind: actions.Partition, ID: string(in.Card.Partition),
					Name: in.Alias})
				p, err := c.Cloud.Federation.AddPeer(ctx, in)
				if errors.Is(err, federation.ErrOtherCard) {
					err = api.NewProblem(api.UUIDReused, err.Error())
				}
				return p, err
			}),
		do(Operation{ID: "removePeer", At: "DELETE /v1/peers/{id}", May: access.Operates,
			Summary:     "End the exchange of requests with a peer",
			Description: "Its mappings go too, at once; instances stay with their projects, and an import stays."},
			func(ctx context.Context, c *call, in api.PartitionNamed) (federation.Partition, error) {
				return c.Cloud.Federation.RemovePeer(ctx, in.ID)
			}),
		do(Operation{ID: "listSigners", At: "GET /v1/signers", May: access.Operates,
			Summary: "List the keys with which the servers of this cloud sign for its peers"},
			func(ctx context.Context, c *call, _ nothing) (api.SignerList, error) {
				all, err := c.Cloud.Federation.Signers(ctx)
				return api.SignerList{Signers: append([]federation.Signer{}, all...)}, err
			}),
		do(Operation{ID: "retireSigner", At: "DELETE /v1/signers/{id}", May: access.Operates,
			Object:      actions.Signer,
			Summary:     "Take a key out of the cards of this cloud",
			Description: "Peers go on to believe it until they get another card."},
			func(ctx context.Context, c *call, in api.SignerNamed) (nothing, error) {
				if strings.Contains(in.ID, "/") {
					return nothing{}, api.Hidden("key", in.ID)
				}
				return nothing{}, c.Cloud.Federation.RetireSigner(ctx, in.ID)
			}),
		stream(Operation{ID: "exportPartition", At: "GET /v1/export", May: access.Operates, Media: bytesMedia,
			Summary:     "Export what this cloud has on record",
			Description: "As of one moment, without secrets."}, exportPartition),
		do(Operation{ID: "importPartition", At: "POST /v1/import", Also: []int{http.StatusCreated},
			May:         access.Operates,
			Takes:       bytesMedia,
			Long:        true,
			Summary:     "Show another cloud's export, whole or not at all",
			Description: "The same export again changes nothing; an older one is refused."}, importPartition),
	},
}

// Bounds of exports and imports.
const (
	transferTime = 10 * time.Minute
	maxImport    = 1 << 30 // bytes
)

func exportPartition(c *call, in api.Export) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), transferTime)
	defer cancel()
	w := &lateAnswer{call: c}
	_, err := c.Cloud.Federation.Export(ctx, in.Name, w)
	if err != nil && w.begun { // the client sees that the last line is missing
		return nil
	}
	return err
}

// lateAnswer starts an answer when the first bytes are written, so that an error before them can be the answer.
type lateAnswer struct {
	call  *call
	begun bool
}

// Write implements io.Writer.
func (a *lateAnswer) Write(text []byte) (int, error) {
	if !a.begun {
		a.begun = true
		a.call.begin()
	}
	return a.call.w.Write(text)
}

func importPartition(ctx context.Context, c *call, in api.Import) (federation.Partition, error) {
	ctx, cancel := context.WithTimeout(ctx, transferTime)
	defer cancel()
	p, changed, err := c.Cloud.Federation.Import(ctx, http.MaxBytesReader(c.w, c.r.Body, maxImport), in.As)
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return p, croft.Errorf(croft.Invalid, "the export is larger than %d MiB", maxImport>>20)
	}
	if changed {
		c.status = http.StatusCreated
	}
	return p, err
}

// listMappings lists which projects of peers have their members in a project. Users of a peer see only mappings of
// their own peer.
func listMappings(ctx context.Context, c *call, _ api.ProjectNamed) (api.MappingList, error) {
	list := api.MappingList{Mappings: []federation.Mapping{}}
	all, err := c.Cloud.Federation.Mappings(ctx, c.project)
	for _, m := range all {
		if c.caller.Peer == "" || c.caller.Peer == m.Peer {
			list.Mappings = append(list.Mappings, m)
		}
	}
	return list, err
}

// mayMap lets operators map any peer, and users of a peer their own one in the projects that they administer. Other
// callers get the same error whether or not a peer exists.
func mayMap(ctx context.Context, c *call, m federation.Mapping) (federation.Mapping, error) {
	switch {
	case c.caller.Operator():
		return m, nil
	case c.caller.Peer == "":
		return m, api.NewProblem(api.ForbiddenVerb,
			"only operators, and the users of another cloud themselves, say which of its projects have members here")
	}
	own, err := c.Cloud.Federation.Find(ctx, string(c.caller.Peer))
	if err != nil {
		return m, err
	}
	if m.Peer != own.ID && string(m.Peer) != own.Alias {
		return m, api.NewProblem(api.ForbiddenVerb, "users of another cloud map projects of that one alone, which is "+
			own.Alias+" here")
	}
	m.Peer = own.ID
	return m, nil
}

func setMapping(ctx context.Context, c *call, in api.NewMapping) (federation.Mapping, error) {
	m, err := mayMap(ctx, c, federation.Mapping{Project: c.project, Peer: in.Peer, Theirs: in.Theirs,
		TheirsID: in.TheirsID, Role: in.Role})
	if err != nil {
		return m, err
	}
	if !c.caller.Operator() { // tenants of that cloud may not map other projects of it
		if m.Theirs != c.caller.PeerProject || m.TheirsID != "" && m.TheirsID != c.caller.PeerProjectID {
			return m, api.NewProblem(api.ForbiddenVerb, "users of another cloud map the project alone for which they ask, "+
				"which is "+string(c.caller.PeerProject)+": have somebody of the other project, or an operator, do it")
		}
		m.TheirsID = c.caller.PeerProjectID
	}
	m, err = c.Cloud.Federation.Map(ctx, m)
	if croft.KindOf(err) == croft.Conflict && !c.caller.Operator() { // the other project may be secret
		err = api.NewProblem(api.InUse, "that project of your cloud has its members in a project here already")
	}
	return m, err
}

func removeMapping(ctx context.Context, c *call, in api.MappingNamed) (nothing, error) {
	m, err := mayMap(ctx, c, federation.Mapping{Project: c.project, Peer: in.Peer, Theirs: in.Theirs})
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, c.Cloud.Federation.Unmap(ctx, m)
}
