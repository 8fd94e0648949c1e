// Package gate stands between the agents of hosts that are not trusted with etcd and
// what those need of it and of Placement. Its Server, in the control process, serves
// the interfaces of compute over HTTP/2 and checks each call against the host that the
// caller's certificate names; its Client, on the host, implements those interfaces, so
// that an agent cannot tell the difference. What a host may do is in one table, policy,
// and nothing else is served.
package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"croft"
	"croft/audit"
)

// Prefix is the path below which a Server expects to be mounted.
const Prefix = "/v1/agent/"

// What both ends of a stream rely on: each sends a line that often, and takes the other
// one for lost that has sent none for so long. An agent that ends, or whose connection
// does, is noticed at once; one whose network is cut as soon as its lease in etcd would
// have run out.
const (
	beatEvery = 3 * time.Second
	silence   = 10 * time.Second
)

// ErrRefused says that a host asked for what is not its own. It has no kind: an honest
// agent never sees it, and nothing that an agent does about errors would be right.
var ErrRefused = errors.New("the gate refuses")

// errCrowded says that a host may go on a moment later.
var errCrowded = croft.Errorf(croft.Unavailable, "this host asks for too much at once; ask again in a moment")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
}

// failure is an error on the wire.
type failure struct {
	Kind  croft.Kind `json:"kind,omitempty"`
	Error string     `json:"error"`
}

// status is what an error is answered with.
func status(err error) int {
	switch {
	case errors.Is(err, ErrRefused):
		return http.StatusForbidden
	case errors.Is(err, errCrowded):
		return http.StatusTooManyRequests
	}
	return croft.HTTPStatus(err)
}

// The nouns do not put on record what only their store knows; on the wire it is needed.
type (
	orderMessage struct {
		croft.Order
		Revision int64 `json:"revision,omitempty"`
	}
	instance struct {
		croft.Instance
		Revision int64 `json:"revision,omitempty"`
	}
	host struct {
		croft.Host
		Token string `json:"token,omitempty"`
	}
)

func sendOrder(o croft.Order) orderMessage { return orderMessage{o, o.Revision} }

func (o orderMessage) noun() croft.Order {
	o.Order.Revision = o.Revision
	return o.Order
}

func sendInstance(i croft.Instance) instance { return instance{i, i.Revision} }

func (i instance) noun() croft.Instance {
	i.Instance.Revision = i.Revision
	return i.Instance
}

// hostEvidence is what is on record for one host.
type hostEvidence struct {
	Hosts        map[croft.HostID]croft.Host `json:"hosts"`
	Instances    []instance                  `json:"instances"`
	Orders       []orderMessage              `json:"orders"`
	Observations []croft.Observation         `json:"observations"`
}

func sendEvidence(e audit.Evidence) hostEvidence {
	sent := hostEvidence{Hosts: e.Hosts, Observations: e.Observations}
	for _, inst := range e.Instances {
		sent.Instances = append(sent.Instances, sendInstance(inst))
	}
	for _, o := range e.Orders {
		sent.Orders = append(sent.Orders, sendOrder(o))
	}
	return sent
}

func (h hostEvidence) noun(only croft.HostID) audit.Evidence {
	e := audit.Evidence{
		Only: only, Hosts: h.Hosts, Instances: map[croft.InstanceID]croft.Instance{}, Observations: h.Observations,
		Claims: map[croft.HostID]map[croft.InstanceID]croft.Resources{}, Contents: map[croft.HostID]audit.Contents{},
	}
	if e.Hosts == nil {
		e.Hosts = map[croft.HostID]croft.Host{}
	}
	for _, i := range h.Instances {
		e.Instances[i.ID] = i.noun()
	}
	for _, o := range h.Orders {
		e.Orders = append(e.Orders, o.noun())
	}
	return e
}

// hostEvidenceCall is the name of HostEvidence on the wire, older than the method's.
const hostEvidenceCall = "HostBooks"

// evidenceQuery asks for what is on record for a host, and for records of more instances.
type evidenceQuery struct {
	Host croft.HostID       `json:"host"`
	More []croft.InstanceID `json:"more,omitempty"`
}

// line is one of a stream, in either direction. An empty one only says that its
// sender lives.
type line struct {
	Instance croft.InstanceID `json:"instance,omitempty"` // server, of WatchOrders: wake it

	Agent *croft.Agent `json:"agent,omitempty"` // client, of Serve: the first line
	Known bool         `json:"known,omitempty"` // client: the host is known, it may be alive
	May   *bool        `json:"may,omitempty"`   // client: the answer to Lock
	Lock  *agentLock   `json:"seat,omitempty"`  // server: somebody took the host's agent lock
}

// agentLock says who holds it: the client, where there is no rival.
type agentLock struct {
	Rival *croft.Agent `json:"rival,omitempty"`
}

// maxLine bounds a line of a stream.
const maxLine = 16 << 10

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("gate: encode %T: %v", v, err)) // our own plain structs: cannot happen
	}
	return append(text, '\n')
}
